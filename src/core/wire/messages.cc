#include "core/wire/messages.h"

#include <utility>

namespace space::wire {

std::string_view to_string(SandboxState state) {
  switch (state) {
    case SandboxState::kCreating:
      return "creating";
    case SandboxState::kRunning:
      return "running";
    case SandboxState::kPausing:
      return "pausing";
    case SandboxState::kPaused:
      return "paused";
    case SandboxState::kResuming:
      return "resuming";
    case SandboxState::kMoving:
      return "moving";
    case SandboxState::kKilling:
      return "killing";
    case SandboxState::kKilled:
      return "killed";
    case SandboxState::kFailed:
      return "failed";
    case SandboxState::kLost:
      return "lost";
  }
  std::unreachable();
}

}  // namespace space::wire
