#include "core/identity/comparator.h"

#include <algorithm>
#include <utility>

namespace space::identity {

std::string_view to_string(RefreshReason reason) {
  switch (reason) {
    case RefreshReason::kNotHere:
      return "not_here";
    case RefreshReason::kStale:
      return "stale";
    case RefreshReason::kNotYet:
      return "not_yet";
    case RefreshReason::kConflict:
      return "conflict";
  }
  std::unreachable();
}

Comparison compare(const SandboxId& addressed, const Claims& selected, const Receiver& receiver) {
  const auto& route = selected.route;
  if (addressed != route.sandbox) return Deny{};
  if (receiver.only_sandbox && *receiver.only_sandbox != addressed) return Deny{};
  if (receiver.record == nullptr) return RefreshRoute{RefreshReason::kNotHere};
  const auto& installed = receiver.record->route;
  if (installed.sandbox != addressed) return Deny{};
  if (route.generation < installed.generation) return RefreshRoute{RefreshReason::kStale};
  if (route.generation > installed.generation) return RefreshRoute{RefreshReason::kNotYet};
  if (route != installed) return RefreshRoute{RefreshReason::kConflict};
  if (selected.attempt != receiver.record->attempt) return RefreshRoute{RefreshReason::kStale};
  return Match{};
}

InstallVerdict judge_install(const RuntimeRecord* installed, Generation floor,
                             const RuntimeRecord& next) {
  const auto highest = installed != nullptr ? std::max(floor, installed->route.generation) : floor;
  if (next.route.generation > highest) return InstallVerdict::kReplace;
  if (installed == nullptr || next.route.generation < highest ||
      installed->route.generation < highest) {
    return InstallVerdict::kBehindFloor;
  }
  if (next.route != installed->route) return InstallVerdict::kConflicting;
  if (next.guest_process && installed->guest_process &&
      next.guest_process != installed->guest_process) {
    return InstallVerdict::kConflicting;
  }
  if (next.attempt < installed->attempt) return InstallVerdict::kAttemptBackwards;
  if (next.attempt > installed->attempt || next.owner != installed->owner ||
      next.operation != installed->operation) {
    return InstallVerdict::kSameRoute;
  }
  return next.first_public_pid == installed->first_public_pid ? InstallVerdict::kIdentical
                                                              : InstallVerdict::kConflicting;
}

}  // namespace space::identity
