#pragma once
#include <expected>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/secret.h"
#include "core/fleet/lifecycle.h"
#include "ports/control_store.h"
#include "ports/entropy.h"
#include "ports/log.h"
#include "ports/task_scope.h"
#include "services/control_plane/worker_link.h"

namespace space::control_plane {

// Named places of a lifecycle operation where the process may die, for tests: "begin.committed",
// then for each step "<step>.call" (before the remote call), "<step>.answered", "<step>.committed".
class FaultPoints {
 public:
  virtual ~FaultPoints() = default;
  // False: the control plane does nothing more, as if it had been killed here.
  virtual bool survives(std::string_view) { return true; }
};
// Survives everywhere.
FaultPoints& no_faults();

using OperationResult = std::expected<void, fleet::Refusal>;

// Runs the lifecycle operations of all sandboxes, one step at a time for each sandbox, from the
// stored state (DESIGN 6). Owned by one loop.
class Driver {
 public:
  struct Limits {
    BootClock::duration node_call = std::chrono::seconds(60);
    BootClock::duration publish = std::chrono::seconds(600);
    BootClock::duration install = std::chrono::seconds(30);
    BootClock::duration retry = std::chrono::seconds(1);
    // How long a worker that is down is waited for before an operation that may still turn back
    // does so.
    BootClock::duration patience = std::chrono::seconds(5);
    BootClock::duration answer = std::chrono::seconds(600);  // longest a caller waits
  };
  using FindLink = std::function<WorkerLink*(const identity::WorkerId&)>;
  Driver(ControlStore& store, Timer& timer, const WallClock& clock, Entropy& entropy, Log& log,
         TaskScope& tasks, FindLink find_link, FaultPoints& faults, Limits limits);

  // Begins the operation and completes when it is done, has failed, or cannot go on for now because
  // a worker is unreachable (kUnavailable with the reason; it goes on when the worker is back).
  Task<OperationResult> run(identity::SandboxId sandbox, fleet::Operation operation);
  // Inserts the new sandbox with its begun create operation, and does the same.
  Task<OperationResult> create(fleet::Sandbox sandbox);
  // Begins, without waiting for the end, what the end of its time means for the sandbox
  // (fleet::begin_timeout).
  Task<OperationResult> begin_timeout(identity::SandboxId sandbox, fleet::Operation operation);
  // Waits for an operation that somebody else began.
  Task<OperationResult> join(identity::SandboxId sandbox, identity::OperationId operation);
  // Looks at the sandbox again: something it may wait for has changed.
  void kick(const identity::SandboxId& sandbox);
  // Kicks every sandbox with something unfinished.
  Task<void> kick_unfinished();
  // Nothing more is begun or continued. The tasks end when they are cancelled or what they wait for
  // ends.
  void stop();
  bool halted() const { return stopped_; }

  // Loads, lets `change` alter the snapshot and commits, again after a conflict. False when
  // `change` says that it does not apply any more (nothing was written) or the store failed.
  using Change = std::function<bool(fleet::Snapshot&)>;
  Task<bool> change(identity::SandboxId sandbox, Change change);

 private:
  using Begin = std::function<OperationResult(fleet::Snapshot&)>;
  struct Waiter {
    identity::OperationId operation;
    bool begun = true;  // false: not stored yet
    std::optional<OperationResult> result;
  };
  struct Entry {
    bool running = false;
    bool kicked = false;
    std::list<Waiter*> waiters;
    Notifier changed;
  };
  enum class Progress : std::uint8_t { kContinue, kSuperseded, kStalled, kPostponed, kHalted };
  struct StepResult {
    Progress progress = Progress::kContinue;
    std::string reason;
  };

  Task<OperationResult> begin(identity::SandboxId sandbox, Begin begin_it);
  std::shared_ptr<Entry> entry(const identity::SandboxId& sandbox);
  void settle(Entry& entry, const identity::OperationId& operation, const OperationResult& result);
  Task<OperationResult> wait(identity::SandboxId sandbox, std::shared_ptr<Entry> entry,
                             std::shared_ptr<Waiter> waiter);
  Task<void> drive(identity::SandboxId sandbox, std::shared_ptr<Entry> entry);
  Task<StepResult> perform(fleet::Snapshot snapshot, fleet::NextStep step,
                           std::shared_ptr<Entry> entry);

  Task<StepResult> allocate(fleet::Snapshot snapshot, std::shared_ptr<Entry> entry);
  Task<StepResult> make_runtime(fleet::Snapshot snapshot, fleet::NextStep step,
                                std::shared_ptr<Entry> entry);
  Task<StepResult> install(fleet::Snapshot snapshot, fleet::NextStep step,
                           std::shared_ptr<Entry> entry);
  Task<StepResult> freeze(fleet::Snapshot snapshot, fleet::NextStep step,
                          std::shared_ptr<Entry> entry);
  Task<StepResult> retire(fleet::Snapshot snapshot, fleet::NextStep step);
  Task<StepResult> publish(fleet::Snapshot snapshot, fleet::NextStep step,
                           std::shared_ptr<Entry> entry);
  Task<StepResult> discard(fleet::Snapshot snapshot, fleet::NextStep step,
                           std::shared_ptr<Entry> entry);
  Task<StepResult> finish(fleet::Snapshot snapshot, std::shared_ptr<Entry> entry);

  // Ends the operation of `snapshot` with a failure of `step`.
  Task<StepResult> fail(fleet::Snapshot snapshot, fleet::NextStep step, CallFailure failure,
                        std::shared_ptr<Entry> entry);
  // Writes a change that belongs to the operation of `snapshot`; kSuperseded, and nothing changed,
  // when another operation took its place.
  Task<StepResult> fenced_change(fleet::Snapshot snapshot, Change change);
  // The same for the result of a step.
  Task<StepResult> commit(fleet::Snapshot snapshot, fleet::Step step, Change change);
  Task<CallResult<void>> send_retire(const fleet::Snapshot& snapshot,
                                     const fleet::Execution& execution, WorkerLink& link);
  Task<CallResult<wire::NodeInstance>> start_runtime(const fleet::Snapshot& snapshot,
                                                     const fleet::Execution& execution,
                                                     WorkerLink& link);
  bool survives(fleet::Step step, std::string_view point);

  ControlStore& store_;
  Timer& timer_;
  const WallClock& clock_;
  Entropy& entropy_;
  Log& log_;
  TaskScope& tasks_;
  FindLink find_link_;
  FaultPoints& faults_;
  Limits limits_;
  bool stopped_ = false;
  std::map<identity::SandboxId, std::shared_ptr<Entry>> entries_;
};

}  // namespace space::control_plane
