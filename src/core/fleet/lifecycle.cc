#include "core/fleet/lifecycle.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace space::fleet {

using wire::hop::Outcome;

std::string_view to_string(ExecutionState state) {
  switch (state) {
    case ExecutionState::kStarting:
      return "starting";
    case ExecutionState::kInstalling:
      return "installing";
    case ExecutionState::kInstalled:
      return "installed";
    case ExecutionState::kRetiring:
      return "retiring";
    case ExecutionState::kParked:
      return "parked";
    case ExecutionState::kDiscarding:
      return "discarding";
    case ExecutionState::kGone:
      return "gone";
  }
  std::unreachable();
}

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::kCreate:
      return "create";
    case OperationKind::kPause:
      return "pause";
    case OperationKind::kResume:
      return "resume";
    case OperationKind::kMove:
      return "move";
    case OperationKind::kKill:
      return "kill";
  }
  std::unreachable();
}

std::string_view to_string(Step step) {
  switch (step) {
    case Step::kNone:
      return "none";
    case Step::kAllocate:
      return "allocate";
    case Step::kStart:
      return "start";
    case Step::kThaw:
      return "thaw";
    case Step::kInstall:
      return "install";
    case Step::kFreeze:
      return "freeze";
    case Step::kRetire:
      return "retire";
    case Step::kPublish:
      return "publish";
    case Step::kDiscard:
      return "discard";
    case Step::kFinish:
      return "finish";
  }
  std::unreachable();
}

namespace {

Execution& at(Snapshot& snapshot, Generation generation) {
  const auto found = std::ranges::find(snapshot.executions, generation,
                                       [](const Execution& e) { return e.route.generation; });
  SPACE_ASSERT(found != snapshot.executions.end());
  return *found;
}

Execution* parked_of(Snapshot& snapshot) {
  const auto found =
      std::ranges::find(snapshot.executions, ExecutionState::kParked, &Execution::state);
  return found == snapshot.executions.end() ? nullptr : &*found;
}

// The execution an operation works on: the newest that is not on its way out.
const Execution* active(const Snapshot& snapshot) {
  for (auto it = snapshot.executions.rbegin(); it != snapshot.executions.rend(); ++it) {
    if (it->state != ExecutionState::kDiscarding && it->state != ExecutionState::kGone) return &*it;
  }
  return nullptr;
}

void make_gone(Execution& execution) {
  execution.state = ExecutionState::kGone;
  execution.maybe_installed = false;
  std::ranges::fill(execution.secret, std::byte{});
  execution.secret.clear();
  execution.handle.clear();
  execution.remove_artifacts.clear();
}

// A thaw has no runtime of its own until it succeeded: the parked execution keeps it.
void discard(Execution& execution) {
  if (execution.state == ExecutionState::kGone) return;
  if (execution.state == ExecutionState::kStarting && execution.thaw) {
    make_gone(execution);
  } else {
    execution.state = ExecutionState::kDiscarding;
  }
}

bool removes(const Execution& execution, const std::string& artifact) {
  const auto& artifacts = execution.remove_artifacts;
  return std::ranges::find(artifacts, artifact) != artifacts.end();
}

// Nothing needs the published copy any more: it goes together with `execution`.
void remove_artifact_with(Snapshot& snapshot, Execution& execution) {
  auto artifact = std::exchange(snapshot.sandbox.artifact, {});
  if (artifact.empty() || removes(execution, artifact)) return;
  execution.remove_artifacts.push_back(std::move(artifact));
}

// The handle of one whose start had no known outcome is learned by starting it again, from its
// artifact.
bool needed_by_another(const Snapshot& snapshot, const Execution& execution) {
  return std::ranges::any_of(snapshot.executions, [&](const Execution& other) {
    return other.state == ExecutionState::kDiscarding && other.handle.empty() &&
           !other.artifact.empty() && removes(execution, other.artifact);
  });
}

void end_operation(Snapshot& snapshot, SandboxState state, std::string reason) {
  snapshot.sandbox.operation.reset();
  snapshot.sandbox.state = state;
  snapshot.sandbox.reason = std::move(reason);
}

// Rounded up; 0 when `end` is not after `now`.
std::uint32_t seconds_between(WallTime now, WallTime end) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(end - now).count();
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(left, 0, std::numeric_limits<std::uint32_t>::max()));
}

bool at_rest(SandboxState state) {
  return state == SandboxState::kRunning || state == SandboxState::kPaused;
}

}  // namespace

const Execution* find(const Snapshot& snapshot, Generation generation) {
  const auto found = std::ranges::find(snapshot.executions, generation,
                                       [](const Execution& e) { return e.route.generation; });
  return found == snapshot.executions.end() ? nullptr : &*found;
}

const Execution* parked(const Snapshot& snapshot) {
  const auto found =
      std::ranges::find(snapshot.executions, ExecutionState::kParked, &Execution::state);
  return found == snapshot.executions.end() ? nullptr : &*found;
}

const Execution* serving(const Snapshot& snapshot) {
  if (snapshot.sandbox.state != SandboxState::kRunning) return nullptr;
  const auto* newest = active(snapshot);
  return newest != nullptr && newest->state == ExecutionState::kInstalled ? newest : nullptr;
}

std::expected<void, Refusal> begin(Snapshot& snapshot, Operation operation) {
  auto& sandbox = snapshot.sandbox;
  const auto refuse = [](Outcome outcome, std::string message) {
    return std::unexpected(Refusal{outcome, std::move(message)});
  };
  const auto busy = [&]() {
    return refuse(at_rest(sandbox.state) ? Outcome::kConflict : Outcome::kUnavailable,
                  "the sandbox is " + std::string(wire::to_string(sandbox.state)) +
                      (sandbox.reason.empty() ? "" : ": " + sandbox.reason));
  };
  SandboxState next = sandbox.state;
  switch (operation.kind) {
    case OperationKind::kCreate:
      if (sandbox.generation.value != 0 || sandbox.operation) return busy();
      next = SandboxState::kCreating;
      break;
    case OperationKind::kPause:
      if (sandbox.state == SandboxState::kPaused) return refuse(Outcome::kConflict, "paused");
      if (sandbox.state != SandboxState::kRunning) return busy();
      next = SandboxState::kPausing;
      break;
    case OperationKind::kResume:
      if (sandbox.state != SandboxState::kPaused) return busy();
      next = SandboxState::kResuming;
      break;
    case OperationKind::kMove:
      if (!at_rest(sandbox.state)) return busy();
      next = SandboxState::kMoving;
      break;
    case OperationKind::kKill:
      if (sandbox.state == SandboxState::kKilled) return busy();
      next = SandboxState::kKilling;
      for (auto& execution : snapshot.executions) discard(execution);
      for (auto& execution : snapshot.executions) {
        if (execution.state == ExecutionState::kDiscarding)
          remove_artifact_with(snapshot, execution);
      }
      break;
  }
  if (sandbox.state == SandboxState::kRunning) {
    sandbox.left_s = seconds_between(operation.begun_at, sandbox.ends_at);
  }
  operation.base = sandbox.generation;
  sandbox.state = next;
  sandbox.reason.clear();
  sandbox.operation = std::move(operation);
  return {};
}

std::optional<OperationKind> at_timeout(const Sandbox& sandbox, WallTime now) {
  if (sandbox.ends_at > now) return std::nullopt;
  const bool pauses = sandbox.on_timeout == wire::TimeoutAction::kPause;
  switch (sandbox.state) {
    case SandboxState::kCreating:
    case SandboxState::kFailed:
      return OperationKind::kKill;
    case SandboxState::kRunning:
      return pauses ? OperationKind::kPause : OperationKind::kKill;
    case SandboxState::kLost:
      if (pauses) return std::nullopt;
      return OperationKind::kKill;
    case SandboxState::kPausing:
    case SandboxState::kPaused:
    case SandboxState::kResuming:
    case SandboxState::kMoving:
    case SandboxState::kKilling:
    case SandboxState::kKilled:
      return std::nullopt;
  }
  std::unreachable();
}

std::expected<void, Refusal> begin_timeout(Snapshot& snapshot, Operation operation) {
  const auto kind = at_timeout(snapshot.sandbox, operation.begun_at);
  if (!kind) return std::unexpected(Refusal{Outcome::kConflict, "its time is not over"});
  operation.kind = *kind;
  return begin(snapshot, std::move(operation));
}

NextStep next_step(const Snapshot& snapshot, const std::set<Generation>& postponed) {
  const auto& operation = snapshot.sandbox.operation;
  const auto discard_step = [&](auto&& wanted) -> NextStep {
    for (const auto& execution : snapshot.executions) {
      if (execution.state == ExecutionState::kDiscarding && wanted(execution) &&
          (execution.maybe_installed || !needed_by_another(snapshot, execution))) {
        return {Step::kDiscard, execution.route.generation};
      }
    }
    return {};
  };
  const auto not_postponed = [&](const Execution& e) {
    return !postponed.contains(e.route.generation);
  };
  if (!operation) return discard_step(not_postponed);
  if (operation->kind == OperationKind::kKill) {
    const auto step =
        discard_step([&](const Execution& e) { return e.maybe_installed || not_postponed(e); });
    return step.step == Step::kNone ? NextStep{Step::kFinish, {}} : step;
  }

  // Activates at the target; what may still be installed elsewhere is retired first (P-15).
  const auto activate = [&]() -> NextStep {
    const auto step = discard_step([](const Execution& e) { return e.maybe_installed; });
    return step.step == Step::kNone ? NextStep{Step::kAllocate, {}} : step;
  };
  const auto* execution = active(snapshot);
  if (execution == nullptr) return activate();
  const auto generation = execution->route.generation;
  const bool old = generation <= operation->base;
  switch (execution->state) {
    case ExecutionState::kStarting:
      return {execution->thaw ? Step::kThaw : Step::kStart, generation};
    case ExecutionState::kInstalling:
      return {Step::kInstall, generation};
    case ExecutionState::kInstalled:
      return old && operation->kind != OperationKind::kResume ? NextStep{Step::kFreeze, generation}
                                                              : NextStep{Step::kFinish, {}};
    case ExecutionState::kRetiring:
      return {Step::kRetire, generation};
    case ExecutionState::kParked:
      if (operation->kind == OperationKind::kPause) return {Step::kFinish, {}};
      if (execution->route.worker != operation->target && snapshot.sandbox.artifact.empty()) {
        return {Step::kPublish, generation};
      }
      return activate();
    case ExecutionState::kDiscarding:
    case ExecutionState::kGone:
      break;
  }
  std::unreachable();
}

bool allocate(Snapshot& snapshot, Allocation allocation) {
  auto& sandbox = snapshot.sandbox;
  if (sandbox.next_public_pid >
      static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()) -
          identity::kPublicPidBlock) {
    return false;
  }
  auto* source = parked_of(snapshot);
  const auto& target = *sandbox.operation->target;
  sandbox.generation.value = std::max(sandbox.generation.value, allocation.floor.value) + 1;
  Execution execution;
  execution.route.sandbox = sandbox.id;
  execution.route.generation = sandbox.generation;
  execution.route.worker = target;
  execution.route.substrate = allocation.substrate;
  execution.route.activation = allocation.activation;
  execution.secret = std::move(allocation.secret);
  execution.first_public_pid = sandbox.next_public_pid;
  execution.thaw = source != nullptr && source->route.worker == target;
  if (execution.thaw) {
    // From the moment a thaw may have begun the disk may move on, also in one that fails: the
    // published copy is old and must not be started from.
    remove_artifact_with(snapshot, *source);
  } else {
    execution.artifact = sandbox.artifact;
  }
  sandbox.next_public_pid += identity::kPublicPidBlock;
  snapshot.executions.push_back(std::move(execution));
  return true;
}

void started(Snapshot& snapshot, Generation generation, std::string handle) {
  auto& execution = at(snapshot, generation);
  execution.handle = std::move(handle);
  execution.state = ExecutionState::kInstalling;
}

void thawed(Snapshot& snapshot, Generation generation, std::string handle) {
  auto& execution = at(snapshot, generation);
  if (auto* source = parked_of(snapshot)) {
    auto& artifacts = source->remove_artifacts;
    execution.remove_artifacts.insert(execution.remove_artifacts.end(), artifacts.begin(),
                                      artifacts.end());
    make_gone(*source);
  }
  started(snapshot, generation, std::move(handle));
}

void installing(Snapshot& snapshot, Generation generation) {
  at(snapshot, generation).maybe_installed = true;
}

void installed(Snapshot& snapshot, Generation generation) {
  at(snapshot, generation).state = ExecutionState::kInstalled;
}

void frozen(Snapshot& snapshot, Generation generation, std::string handle) {
  auto& execution = at(snapshot, generation);
  execution.handle = std::move(handle);
  execution.state = ExecutionState::kRetiring;
}

void retired(Snapshot& snapshot, Generation generation) {
  auto& execution = at(snapshot, generation);
  execution.maybe_installed = false;
  if (execution.state == ExecutionState::kRetiring) execution.state = ExecutionState::kParked;
}

void publishing(Snapshot& snapshot, Generation generation, const std::string& artifact) {
  auto& execution = at(snapshot, generation);
  if (!removes(execution, artifact)) execution.remove_artifacts.push_back(artifact);
}

void published(Snapshot& snapshot, std::string artifact) {
  snapshot.sandbox.artifact = std::move(artifact);
}

void handle_learned(Snapshot& snapshot, Generation generation, std::string handle) {
  at(snapshot, generation).handle = std::move(handle);
}

void discarded(Snapshot& snapshot, Generation generation) { make_gone(at(snapshot, generation)); }

void finish(Snapshot& snapshot, WallTime now) {
  auto& sandbox = snapshot.sandbox;
  const auto operation = *sandbox.operation;
  switch (operation.kind) {
    case OperationKind::kPause:
      end_operation(snapshot, SandboxState::kPaused, {});
      return;
    case OperationKind::kKill:
      sandbox.ends_at = now;
      end_operation(snapshot, SandboxState::kKilled, {});
      return;
    case OperationKind::kCreate:
    case OperationKind::kResume:
    case OperationKind::kMove:
      break;
  }
  if (operation.timeout_s) sandbox.ends_at = now + std::chrono::seconds(*operation.timeout_s);
  // The new execution holds the newest state now: its source and the published copy may go.
  if (auto* source = parked_of(snapshot)) {
    discard(*source);
    remove_artifact_with(snapshot, *source);
  }
  end_operation(snapshot, SandboxState::kRunning, {});
}

void fail(Snapshot& snapshot, NextStep step, std::string detail) {
  auto& sandbox = snapshot.sandbox;
  const auto kind = sandbox.operation->kind;
  SPACE_ASSERT(kind != OperationKind::kKill);
  switch (step.step) {
    case Step::kFreeze:
      // A manager that answers a freeze with a failure serves on.
      if (sandbox.ends_at <= sandbox.operation->begun_at) {
        sandbox.ends_at = sandbox.operation->begun_at + kPauseAgain;
      }
      end_operation(snapshot, SandboxState::kRunning, std::move(detail));
      return;
    case Step::kStart:
    case Step::kThaw:
      // A failed start leaves nothing behind; a failed thaw leaves the runtime to the parked
      // execution.
      make_gone(at(snapshot, step.generation));
      break;
    case Step::kInstall: {
      auto& execution = at(snapshot, step.generation);
      execution.maybe_installed = false;
      if (execution.thaw) {
        // It holds the only copy.
        execution.state = ExecutionState::kParked;
      } else {
        discard(execution);
      }
      break;
    }
    case Step::kNone:
    case Step::kAllocate:
    case Step::kRetire:
    case Step::kPublish:
    case Step::kDiscard:
    case Step::kFinish:
      break;
  }
  const bool kept = parked(snapshot) != nullptr;
  end_operation(snapshot, kept ? SandboxState::kPaused : SandboxState::kFailed, std::move(detail));
}

std::optional<WorkerId> place(const std::vector<Candidate>& candidates,
                              const std::optional<WorkerId>& wish,
                              const std::optional<WorkerId>& except) {
  const Candidate* best = nullptr;
  for (const auto& candidate : candidates) {
    if (!candidate.usable || candidate.sandboxes >= candidate.max_sandboxes) continue;
    if ((wish && candidate.worker != *wish) || (except && candidate.worker == *except)) continue;
    if (best == nullptr || candidate.sandboxes < best->sandboxes) best = &candidate;
  }
  if (best == nullptr) return std::nullopt;
  return best->worker;
}

}  // namespace space::fleet
