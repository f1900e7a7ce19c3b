#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "core/identity/capability.h"
#include "core/identity/runtime_record.h"

namespace space::identity {

// Why the route must be resolved anew (P-8).
enum class RefreshReason : std::uint8_t { kNotHere = 1, kStale = 2, kNotYet = 3, kConflict = 4 };
std::string_view to_string(RefreshReason reason);

struct Match {
  friend bool operator==(Match, Match) = default;
};
struct RefreshRoute {
  RefreshReason reason;
  friend bool operator==(RefreshRoute, RefreshRoute) = default;
};
struct Deny {
  friend bool operator==(Deny, Deny) = default;
};
using Comparison = std::variant<Match, RefreshRoute, Deny>;

// What one receiver serves, as far as the comparison needs it.
struct Receiver {
  // Set where this receiver serves one sandbox only (netgtw, bridge, a pod's manager).
  std::optional<SandboxId> only_sandbox;
  // The record installed for the addressed sandbox, if any.
  const RuntimeRecord* record = nullptr;
};

// The comparator (ID-4, RCV-5, P-8): pure, total, and the only source of RefreshRoute. `addressed`
// is the sandbox id the OPEN names.
Comparison compare(const SandboxId& addressed, const Claims& selected, const Receiver& receiver);

// Whether a new record may replace what a receiver has (P-13). Compares what the control plane
// names (route, attempt, owner, operation, public pids); what the receiver adds to its record
// itself (transport, runtime handle) does not count, so that a redelivered install is kIdentical.
// Two different guest processes under one route are kConflicting: a second runtime needs a new
// generation.
enum class InstallVerdict : std::uint8_t {
  kReplace,           // generation above the floor: ends leases, new epoch
  kIdentical,         // redelivery: nothing changes
  kSameRoute,         // same route, owner or attempt advanced: keeps leases and epoch (P-12)
  kBehindFloor,       // refused: would go backwards (RCV-3)
  kConflicting,       // refused: equal generation, other placement; an alarm
  kAttemptBackwards,  // refused: same route, attempt below the installed one
};
// `floor` is the highest generation ever installed here for this sandbox, 0 if none.
InstallVerdict judge_install(const RuntimeRecord* installed, Generation floor,
                             const RuntimeRecord& next);

}  // namespace space::identity
