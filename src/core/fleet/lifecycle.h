#pragma once
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/identity/route_identity.h"
#include "core/identity/runtime_record.h"
#include "core/wire/messages.h"

// The life of a sandbox as values and pure functions (DESIGN 6). A lifecycle operation has no
// program counter: `next_step` reads from the stored state what is to be done next, so that whoever
// loads the state goes on where the last one stopped (LC-1). Each step's result is written by one
// of the functions below before the next step is looked up.
namespace space::fleet {

using identity::Generation;
using identity::OperationId;
using identity::OwnerId;
using identity::RouteIdentity;
using identity::SandboxId;
using identity::TeamId;
using identity::WorkerId;
using wire::SandboxState;

// What one activation of a sandbox is at. Only kInstalled serves.
enum class ExecutionState : std::uint8_t {
  kStarting = 1,  // its runtime is being made, or thawed when `thaw`
  kInstalling,    // the runtime is there, `handle` names it; the receiver has not acknowledged
  kInstalled,     // acknowledged by the receiver
  kRetiring,      // frozen and published as the parked one; the receiver has not acknowledged
  kParked,        // retired, its runtime kept frozen
  kDiscarding,    // to be retired if need be, and its runtime destroyed
  kGone,          // has no runtime and no secret any more; kept so that its number is not reused
};
constexpr bool is_known(ExecutionState s) {
  return s >= ExecutionState::kStarting && s <= ExecutionState::kGone;
}
std::string_view to_string(ExecutionState state);

struct Execution {
  RouteIdentity route;
  identity::Attempt attempt{1};
  ExecutionState state = ExecutionState::kStarting;
  bool thaw = false;  // made from the parked execution, whose runtime it takes over
  bool maybe_installed =
      false;           // an INSTALL may have reached the receiver and no RETIRED came since
  Bytes secret;        // 32 bytes; empty once gone
  std::string handle;  // of the runtime; empty: not known yet, or none
  std::uint32_t first_public_pid = 0;
  std::string artifact;                       // its runtime starts from; empty: a fresh disk
  std::vector<std::string> remove_artifacts;  // go when this execution is discarded
  static void fields(auto& r, auto& f) {
    f(r.route, r.attempt, r.state, r.thaw, r.maybe_installed, r.secret, r.handle,
      r.first_public_pid, r.artifact, r.remove_artifacts);
  }
  friend bool operator==(const Execution&, const Execution&) = default;
};

enum class OperationKind : std::uint8_t { kCreate = 1, kPause, kResume, kMove, kKill };
constexpr bool is_known(OperationKind k) {
  return k >= OperationKind::kCreate && k <= OperationKind::kKill;
}
std::string_view to_string(OperationKind kind);

struct Operation {
  OperationId id;
  OperationKind kind = OperationKind::kCreate;
  OwnerId owner;
  WallTime begun_at;
  Generation base;                         // newest generation when it began
  std::optional<WorkerId> target;          // create, resume, move: where the new execution goes
  std::optional<std::uint32_t> timeout_s;  // create, resume: life from the moment it serves
  static void fields(auto& r, auto& f) {
    f(r.id, r.kind, r.owner, r.begun_at, r.base, r.target, r.timeout_s);
  }
  friend bool operator==(const Operation&, const Operation&) = default;
};

struct Sandbox {
  SandboxId id;
  TeamId team;
  SandboxState state = SandboxState::kCreating;
  std::string reason;  // why failed or lost, or why the last operation did not succeed
  std::string template_name;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> envs;
  identity::CredentialHash access;  // of its access token
  std::uint32_t cpu_millis = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint32_t max_processes = 0;
  WallTime started_at;  // when its creation began
  WallTime ends_at;
  wire::TimeoutAction on_timeout = wire::TimeoutAction::kKill;
  std::uint32_t left_s = 0;  // of its life when it stopped running last
  Generation generation;     // highest number given out or reported by a receiver
  std::uint32_t next_public_pid = identity::kPublicPidBlock;
  std::string artifact;  // published copy of the parked execution's disk; the newest one
  std::optional<Operation> operation;  // not finished
  std::uint64_t revision = 0;          // raised by every commit
  static void fields(auto& r, auto& f) {
    f(r.id, r.team, r.state, r.reason, r.template_name, r.metadata, r.envs, r.access, r.cpu_millis,
      r.memory_bytes, r.disk_bytes, r.max_processes, r.started_at, r.ends_at, r.on_timeout,
      r.left_s, r.generation, r.next_public_pid, r.artifact, r.operation, r.revision);
  }
  friend bool operator==(const Sandbox&, const Sandbox&) = default;
};

// A sandbox with its executions that are not gone, ascending by generation.
struct Snapshot {
  Sandbox sandbox;
  std::vector<Execution> executions;
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

// Null when there is none. Valid until the vector changes.
const Execution* find(const Snapshot& snapshot, Generation generation);
const Execution* parked(const Snapshot& snapshot);
// The execution that serves: the newest one, installed and acknowledged, while no operation touches
// it.
const Execution* serving(const Snapshot& snapshot);

// Why an operation cannot begin.
struct Refusal {
  wire::hop::Outcome outcome = wire::hop::Outcome::kConflict;
  std::string message;
};
// Begins `operation` or changes nothing. Kill begins in every state but killed and takes the place
// of any other operation; the others need a sandbox at rest.
std::expected<void, Refusal> begin(Snapshot& snapshot, Operation operation);

// A pause at the timeout that fails gives the sandbox so much more time, and is tried again then.
inline constexpr std::chrono::seconds kPauseAgain{30};
// What the end of its time means for the sandbox now; null while it means nothing: its time is not
// over, it rests, an operation works on it, or it is lost and to be paused, and then waits to be
// found or killed.
std::optional<OperationKind> at_timeout(const Sandbox& sandbox, WallTime now);
// Begins that, whatever the kind in `operation`; kConflict when it is nothing.
std::expected<void, Refusal> begin_timeout(Snapshot& snapshot, Operation operation);

enum class Step : std::uint8_t {
  kNone = 1,  // nothing to do now
  kAllocate,  // give out the next generation at operation.target
  kStart,     // NODE_START
  kThaw,      // NODE_THAW
  kInstall,   // INSTALL
  kFreeze,    // NODE_FREEZE
  kRetire,    // RETIRE
  kPublish,   // NODE_PUBLISH
  kDiscard,   // RETIRE if it may be installed, then NODE_DESTROY
  kFinish,    // the operation is done
};
std::string_view to_string(Step step);
struct NextStep {
  Step step = Step::kNone;
  Generation generation;  // of the execution it is about
  friend bool operator==(const NextStep&, const NextStep&) = default;
};
// Discards in `postponed` are left for later, as far as nothing waits for them: an execution that
// may be installed is retired before the next one is activated (P-15) and before a kill is done. An
// artifact goes only after what may have been started from it.
NextStep next_step(const Snapshot& snapshot, const std::set<Generation>& postponed);

// ---- results of steps. Preconditions: the step is the one `next_step` names. ----
struct Allocation {
  Generation floor;  // as the target reports it
  identity::ActivationId activation;
  identity::Substrate substrate = identity::Substrate::kHost;
  Bytes secret;
};
// next = max(store, receiver) + 1 (PROTOCOL "Words"). False when the sandbox has used up its public
// pids.
bool allocate(Snapshot& snapshot, Allocation allocation);
void started(Snapshot& snapshot, Generation generation, std::string handle);
// The runtime passes from the parked execution to this one.
void thawed(Snapshot& snapshot, Generation generation, std::string handle);
// To be written before an INSTALL is sent.
void installing(Snapshot& snapshot, Generation generation);
void installed(Snapshot& snapshot, Generation generation);
void frozen(Snapshot& snapshot, Generation generation, std::string handle);
void retired(Snapshot& snapshot, Generation generation);
// To be written before a NODE_PUBLISH is sent: whatever becomes of it, the artifact goes when the
// execution does.
void publishing(Snapshot& snapshot, Generation generation, const std::string& artifact);
void published(Snapshot& snapshot, std::string artifact);
// Learned while discarding an execution whose start had no known outcome.
void handle_learned(Snapshot& snapshot, Generation generation, std::string handle);
void discarded(Snapshot& snapshot, Generation generation);
void finish(Snapshot& snapshot, WallTime now);
// The step failed for good: the operation ends and the sandbox rests where nothing is lost (C088,
// C089). A failed install must be known not to be installed. `detail` becomes the sandbox's reason.
void fail(Snapshot& snapshot, NextStep step, std::string detail);

// ---- placement ----
struct Candidate {
  WorkerId worker;
  bool usable = false;  // reachable, with healthy clock and a key bundle
  std::uint32_t sandboxes = 0;
  std::uint32_t max_sandboxes = 0;
};
// The usable worker with the fewest sandboxes and room, earlier ones first among equals; `wish`
// alone when given; never `except`.
std::optional<WorkerId> place(const std::vector<Candidate>& candidates,
                              const std::optional<WorkerId>& wish,
                              const std::optional<WorkerId>& except);

}  // namespace space::fleet
