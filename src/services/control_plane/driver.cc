#include "services/control_plane/driver.h"

#include <algorithm>

#include "base/check.h"
#include "base/result.h"

namespace space::control_plane {

using fleet::Execution;
using fleet::ExecutionState;
using fleet::NextStep;
using fleet::OperationKind;
using fleet::Refusal;
using fleet::Snapshot;
using fleet::Step;
using frame::Outcome;
using policy::Operation;

FaultPoints& no_faults() {
  static FaultPoints none;
  return none;
}

namespace {

constexpr int kCommitAttempts = 8;
constexpr std::uint32_t kMaxControlAgeMs = 10'000;  // of an INSTALL on the way (P-13)

Refusal refusal(Outcome outcome, std::string message) { return {outcome, std::move(message)}; }

// What a caller is told for a worker's answer: its words about paths, handles and rights are not
// about the sandbox the caller named.
Refusal caller_refusal(const CallFailure& failure, OperationKind kind, Step step) {
  if (failure.unknown) return refusal(Outcome::kUnavailable, failure.message);
  switch (failure.outcome) {
    case Outcome::kNoSpace:
    case Outcome::kInvalidArgument:
    case Outcome::kUnavailable:
    case Outcome::kUnsupported:
    case Outcome::kTooLarge:
    case Outcome::kLimitReached:
      return refusal(failure.outcome, failure.message);
    case Outcome::kNotFound:
      if (step != Step::kStart) return refusal(Outcome::kInternal, failure.message);
      // A sandbox under creation is found: it is the template that is not. Later it is the
      // artifact.
      return refusal(
          kind == OperationKind::kCreate ? Outcome::kNotFound : Outcome::kInvalidArgument,
          failure.message);
    case Outcome::kDeadlineExceeded:
    case Outcome::kInterrupted:
      return refusal(Outcome::kUnavailable, failure.message);
    case Outcome::kOk:
    case Outcome::kAlreadyExists:
    case Outcome::kPermissionDenied:
    case Outcome::kIsDirectory:
    case Outcome::kNotDirectory:
    case Outcome::kConflict:
    case Outcome::kUnauthenticated:
    case Outcome::kInternal:
      return refusal(Outcome::kInternal, failure.message);
  }
  std::unreachable();
}

bool same_operation(const Snapshot& a, const Snapshot& b) {
  if (!a.sandbox.operation || !b.sandbox.operation) {
    return !a.sandbox.operation && !b.sandbox.operation;
  }
  return a.sandbox.operation->id == b.sandbox.operation->id;
}

Bytes secret_of(const Execution& execution) { return execution.secret; }

// Unique per operation, so that it is written once, publishing it again changes nothing, and a
// later operation never takes an older state for its own (P-35).
std::string artifact_name(const fleet::RouteIdentity& parked, const fleet::OperationId& operation) {
  return parked.sandbox.text() + "-" + std::to_string(parked.generation.value) + "-" +
         operation.text();
}

}  // namespace

Driver::Driver(ControlStore& store, Timer& timer, const WallClock& clock, Entropy& entropy,
               Log& log, TaskScope& tasks, FindLink find_link, FaultPoints& faults, Limits limits)
    : store_(store),
      timer_(timer),
      clock_(clock),
      entropy_(entropy),
      log_(log),
      tasks_(tasks),
      find_link_(std::move(find_link)),
      faults_(faults),
      limits_(limits) {}

std::shared_ptr<Driver::Entry> Driver::entry(const identity::SandboxId& sandbox) {
  auto& slot = entries_[sandbox];
  if (!slot) slot = std::make_shared<Entry>();
  return slot;
}

void Driver::kick(const identity::SandboxId& sandbox) {
  if (stopped_) return;
  const auto found = entry(sandbox);
  found->kicked = true;
  found->changed.notify();
  if (found->running) return;
  found->running = true;
  tasks_.spawn("control.drive", drive(sandbox, found));
}

Task<void> Driver::kick_unfinished() {
  const auto unfinished = co_await store_.unfinished();
  if (!unfinished) {
    log_.event(Level::kError, "store.failed", {{"detail", unfinished.error().detail}});
    co_return;
  }
  for (const auto& sandbox : *unfinished) kick(sandbox);
}

void Driver::stop() {
  stopped_ = true;
  for (auto& [id, found] : entries_) found->changed.notify();
}

bool Driver::survives(Step step, std::string_view point) {
  if (stopped_) return false;
  std::string name(to_string(step));
  name.append(".").append(point);
  if (faults_.survives(name)) return true;
  stop();
  return false;
}

Task<bool> Driver::change(identity::SandboxId sandbox, Change change) {
  for (int attempt = 0; attempt < kCommitAttempts && !stopped_; ++attempt) {
    auto snapshot = co_await store_.load(sandbox);
    if (!snapshot) {
      if (snapshot.error().error == StoreError::kFailed) {
        log_.event(Level::kError, "store.failed", {{"detail", snapshot.error().detail}});
      }
      co_return false;
    }
    if (!change(*snapshot)) co_return false;
    const auto written = co_await store_.commit(*std::move(snapshot));
    if (written) co_return true;
    if (written.error().error != StoreError::kConflict) {
      log_.event(Level::kError, "store.failed", {{"detail", written.error().detail}});
      co_return false;
    }
  }
  co_return false;
}

void Driver::settle(Entry& found, const identity::OperationId& operation,
                    const OperationResult& result) {
  for (auto* waiter : found.waiters) {
    if (waiter->operation == operation && !waiter->result) waiter->result = result;
  }
  found.changed.notify();
}

Task<OperationResult> Driver::wait(identity::SandboxId sandbox, std::shared_ptr<Entry> found,
                                   std::shared_ptr<Waiter> waiter) {
  kick(sandbox);
  const auto deadline = timer_.now() + limits_.answer;
  while (!waiter->result && !stopped_) {
    if (co_await found->changed.wait(timer_, deadline) != Notifier::Wake::kNotified) break;
  }
  std::erase(found->waiters, waiter.get());
  if (!found->running && found->waiters.empty()) entries_.erase(sandbox);
  if (waiter->result) co_return *std::move(waiter->result);
  co_return std::unexpected(refusal(Outcome::kUnavailable, "the operation goes on; ask again"));
}

Task<OperationResult> Driver::begin(identity::SandboxId sandbox, Begin begin_it) {
  OperationResult begun;
  auto kind = OperationKind::kCreate;
  Change change_it = [&](Snapshot& snapshot) {
    begun = begin_it(snapshot);
    if (begun) kind = snapshot.sandbox.operation->kind;
    return begun.has_value();
  };
  const bool written = co_await change(sandbox, std::move(change_it));
  if (!begun) co_return begun;
  if (!written) {
    co_return std::unexpected(refusal(Outcome::kUnavailable, "the control store does not answer"));
  }
  log_.event(Level::kInfo, "operation.begun",
             {{"sandbox", sandbox.text()}, {"operation", to_string(kind)}});
  if (!faults_.survives("begin.committed")) stop();
  kick(sandbox);
  co_return begun;
}

Task<OperationResult> Driver::begin_timeout(identity::SandboxId sandbox,
                                            fleet::Operation operation) {
  Begin begin_it = [&operation](Snapshot& snapshot) {
    return fleet::begin_timeout(snapshot, operation);
  };
  co_return co_await begin(std::move(sandbox), std::move(begin_it));
}

Task<OperationResult> Driver::run(identity::SandboxId sandbox, fleet::Operation operation) {
  const auto found = entry(sandbox);
  const auto waiter = std::make_shared<Waiter>();
  waiter->operation = operation.id;
  waiter->begun = false;
  found->waiters.push_back(waiter.get());
  Begin begin_it = [&operation](Snapshot& snapshot) { return fleet::begin(snapshot, operation); };
  auto begun = co_await begin(sandbox, std::move(begin_it));
  waiter->begun = true;
  if (!begun) {
    std::erase(found->waiters, waiter.get());
    co_return begun;
  }
  co_return co_await wait(sandbox, found, waiter);
}

Task<OperationResult> Driver::create(fleet::Sandbox sandbox) {
  const auto id = sandbox.id;
  const auto found = entry(id);
  const auto waiter = std::make_shared<Waiter>();
  waiter->operation = sandbox.operation->id;
  const auto inserted = co_await store_.insert_sandbox(std::move(sandbox));
  if (!inserted) {
    log_.event(Level::kError, "store.failed", {{"detail", inserted.error().detail}});
    co_return std::unexpected(refusal(Outcome::kUnavailable, "the control store does not answer"));
  }
  log_.event(Level::kInfo, "operation.begun", {{"sandbox", id.text()}, {"operation", "create"}});
  found->waiters.push_back(waiter.get());
  if (!faults_.survives("begin.committed")) stop();
  co_return co_await wait(id, found, waiter);
}

Task<OperationResult> Driver::join(identity::SandboxId sandbox, identity::OperationId operation) {
  const auto found = entry(sandbox);
  const auto waiter = std::make_shared<Waiter>();
  waiter->operation = operation;
  found->waiters.push_back(waiter.get());
  co_return co_await wait(sandbox, found, waiter);
}

Task<void> Driver::drive(identity::SandboxId sandbox, std::shared_ptr<Entry> found) {
  std::set<fleet::Generation> postponed;
  std::optional<identity::OperationId> current;
  std::string stalled;  // the reason logged last
  while (!stopped_) {
    found->kicked = false;
    auto snapshot = co_await store_.load(sandbox);
    if (stopped_) break;
    if (!snapshot) {
      if (snapshot.error().error == StoreError::kNotFound) break;
      log_.event(Level::kError, "store.failed", {{"detail", snapshot.error().detail}});
      if (!co_await sleep_for(timer_, limits_.retry)) break;
      continue;
    }
    const auto& operation = snapshot->sandbox.operation;
    if (current && (!operation || operation->id != *current)) {
      settle(*found, *current,
             std::unexpected(refusal(Outcome::kUnavailable, "another operation took its place")));
    }
    current.reset();
    if (operation) current = operation->id;
    // Who waits for an operation that has ended looks at the sandbox again.
    for (auto* waiter : found->waiters) {
      if (waiter->begun && !waiter->result && waiter->operation != current) {
        waiter->result = OperationResult{};
      }
    }
    const auto step = fleet::next_step(*snapshot, postponed);
    if (step.step == Step::kNone) {
      found->changed.notify();
      if (found->kicked) continue;
      break;
    }
    const auto result = co_await perform(*std::move(snapshot), step, found);
    switch (result.progress) {
      case Progress::kContinue:
      case Progress::kSuperseded:
        break;
      case Progress::kPostponed:
        postponed.insert(step.generation);
        break;
      case Progress::kStalled: {
        if (stalled != result.reason) {
          log_.event(Level::kWarning, "operation.stalled",
                     {{"sandbox", sandbox.text()},
                      {"step", to_string(step.step)},
                      {"generation", step.generation.value},
                      {"reason", result.reason}});
          stalled = result.reason;
        }
        if (current) {
          settle(*found, *current, std::unexpected(refusal(Outcome::kUnavailable, result.reason)));
        }
        const auto wake = co_await found->changed.wait(timer_, timer_.now() + limits_.retry);
        if (wake == Notifier::Wake::kCancelled) stopped_ = true;
        break;
      }
      case Progress::kHalted:
        stopped_ = true;
        break;
    }
  }
  found->running = false;
  if (!stopped_ && found->waiters.empty()) entries_.erase(sandbox);
  found->changed.notify();
}

Task<Driver::StepResult> Driver::perform(Snapshot snapshot, NextStep step,
                                         std::shared_ptr<Entry> found) {
  switch (step.step) {
    case Step::kNone:
      break;
    case Step::kAllocate:
      co_return co_await allocate(std::move(snapshot), std::move(found));
    case Step::kStart:
    case Step::kThaw:
      co_return co_await make_runtime(std::move(snapshot), step, std::move(found));
    case Step::kInstall:
      co_return co_await install(std::move(snapshot), step, std::move(found));
    case Step::kFreeze:
      co_return co_await freeze(std::move(snapshot), step, std::move(found));
    case Step::kRetire:
      co_return co_await retire(std::move(snapshot), step);
    case Step::kPublish:
      co_return co_await publish(std::move(snapshot), step, std::move(found));
    case Step::kDiscard:
      co_return co_await discard(std::move(snapshot), step, std::move(found));
    case Step::kFinish:
      co_return co_await finish(std::move(snapshot), std::move(found));
  }
  co_return StepResult{};
}

Task<Driver::StepResult> Driver::fenced_change(Snapshot snapshot, Change change_it) {
  bool superseded = false;
  Change fenced = [&](Snapshot& now) {
    superseded = !same_operation(snapshot, now);
    return !superseded && change_it(now);
  };
  const bool written = co_await change(snapshot.sandbox.id, std::move(fenced));
  if (stopped_) co_return StepResult{Progress::kHalted, {}};
  if (superseded) co_return StepResult{Progress::kSuperseded, {}};
  if (!written) co_return StepResult{Progress::kStalled, "the control store does not answer"};
  co_return StepResult{};
}

Task<Driver::StepResult> Driver::commit(Snapshot snapshot, Step step, Change change_it) {
  if (!survives(step, "answered")) co_return StepResult{Progress::kHalted, {}};
  auto result = co_await fenced_change(std::move(snapshot), std::move(change_it));
  if (result.progress == Progress::kContinue && !survives(step, "committed")) {
    result.progress = Progress::kHalted;
  }
  co_return result;
}

Task<Driver::StepResult> Driver::fail(Snapshot snapshot, NextStep step, CallFailure failure,
                                      std::shared_ptr<Entry> found) {
  const auto operation = *snapshot.sandbox.operation;
  log_.event(Level::kError, "operation.failed",
             {{"sandbox", snapshot.sandbox.id.text()},
              {"operation", to_string(operation.kind)},
              {"step", to_string(step.step)},
              {"generation", step.generation.value},
              {"reason", failure.message}});
  Change change_it = [&](Snapshot& now) {
    fleet::fail(now, step, failure.message);
    return true;
  };
  auto result = co_await commit(std::move(snapshot), step.step, std::move(change_it));
  if (result.progress == Progress::kContinue) {
    settle(*found, operation.id,
           std::unexpected(caller_refusal(failure, operation.kind, step.step)));
  }
  co_return result;
}

Task<Driver::StepResult> Driver::allocate(Snapshot snapshot, std::shared_ptr<Entry> found) {
  const NextStep step{Step::kAllocate, {}};
  auto* link = find_link_(*snapshot.sandbox.operation->target);
  if (link == nullptr) {
    CallFailure failure{false, Outcome::kUnavailable,
                        "the chosen worker is not configured any more"};
    co_return co_await fail(std::move(snapshot), step, std::move(failure), std::move(found));
  }
  co_await link->wait_up(timer_.now() + limits_.patience);
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  wire::NodeStatusRequest request;
  request.sandbox = snapshot.sandbox.id;
  auto status = co_await link->call_as<wire::NodeStatusResult>(Operation::kNodeStatus,
                                                               std::move(request), limits_.install);
  if (!status) {
    co_return co_await fail(std::move(snapshot), step, std::move(status).error(), std::move(found));
  }
  fleet::Allocation allocation;
  for (const auto& at : status->sandboxes) {
    if (at.sandbox == snapshot.sandbox.id) allocation.floor.value = at.floor;
  }
  allocation.activation = random_id<identity::ActivationId>(entropy_);
  allocation.secret.resize(GuestSecret().reveal().size());
  entropy_.fill(allocation.secret);
  bool exhausted = false;
  Change change_it = [&](Snapshot& now) {
    exhausted = !fleet::allocate(now, allocation);
    return !exhausted;
  };
  auto result = co_await commit(snapshot, step.step, std::move(change_it));
  if (exhausted) {
    CallFailure failure{false, Outcome::kLimitReached, "the sandbox has used up its process ids"};
    co_return co_await fail(std::move(snapshot), step, std::move(failure), std::move(found));
  }
  co_return result;
}

Task<CallResult<wire::NodeInstance>> Driver::start_runtime(const Snapshot& snapshot,
                                                           const Execution& execution,
                                                           WorkerLink& link) {
  const auto& sandbox = snapshot.sandbox;
  wire::NodeStartRequest request;
  request.route = execution.route;
  request.template_name = sandbox.template_name;
  request.memory_bytes = sandbox.memory_bytes;
  request.cpu_millis = sandbox.cpu_millis;
  request.max_processes = sandbox.max_processes;
  request.disk_bytes = sandbox.disk_bytes;
  request.envs = sandbox.envs;
  request.artifact = execution.artifact;
  request.secret = secret_of(execution);
  request.first_public_pid = execution.first_public_pid;
  co_return co_await link.call_as<wire::NodeInstance>(Operation::kNodeStart, std::move(request),
                                                      limits_.node_call);
}

Task<Driver::StepResult> Driver::make_runtime(Snapshot snapshot, NextStep step,
                                              std::shared_ptr<Entry> found) {
  const auto execution = *fleet::find(snapshot, step.generation);
  auto* link = find_link_(execution.route.worker);
  if (link == nullptr || !link->up()) {
    co_return StepResult{Progress::kStalled,
                         link ? link->reason() : "its worker is not configured"};
  }
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  CallResult<wire::NodeInstance> instance;
  if (step.step == Step::kThaw) {
    const auto source = *fleet::parked(snapshot);
    wire::NodeThawRequest request;
    request.parked = source.route;
    request.route = execution.route;
    request.handle = source.handle;
    request.old_secret = secret_of(source);
    request.secret = secret_of(execution);
    request.first_public_pid = execution.first_public_pid;
    instance = co_await link->call_as<wire::NodeInstance>(Operation::kNodeThaw, std::move(request),
                                                          limits_.node_call);
  } else {
    instance = co_await start_runtime(snapshot, execution, *link);
  }
  if (!instance) {
    if (instance.error().unknown)
      co_return StepResult{Progress::kStalled, instance.error().message};
    co_return co_await fail(std::move(snapshot), step, std::move(instance).error(),
                            std::move(found));
  }
  Change change_it = [&](Snapshot& now) {
    if (step.step == Step::kThaw) {
      fleet::thawed(now, step.generation, instance->handle);
    } else {
      fleet::started(now, step.generation, instance->handle);
    }
    return true;
  };
  co_return co_await commit(std::move(snapshot), step.step, std::move(change_it));
}

Task<Driver::StepResult> Driver::install(Snapshot snapshot, NextStep step,
                                         std::shared_ptr<Entry> found) {
  const auto execution = *fleet::find(snapshot, step.generation);
  auto* link = find_link_(execution.route.worker);
  if (link == nullptr || !link->up()) {
    co_return StepResult{Progress::kStalled,
                         link ? link->reason() : "its worker is not configured"};
  }
  if (!execution.maybe_installed) {
    Change mark = [&](Snapshot& now) {
      fleet::installing(now, step.generation);
      return true;
    };
    auto marked = co_await fenced_change(snapshot, std::move(mark));
    if (marked.progress != Progress::kContinue) co_return marked;
  }
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  identity::RuntimeRecord record;
  record.route = execution.route;
  record.attempt = execution.attempt;
  record.owner = snapshot.sandbox.operation->owner;
  record.operation = snapshot.sandbox.operation->id;
  record.first_public_pid = execution.first_public_pid;
  record.runtime_handle = execution.handle;
  frame::Install request;
  request.record = identity::encode_record(record);
  request.secret = secret_of(execution);
  request.max_age_ms = kMaxControlAgeMs;
  const auto answer = co_await link->exchange(std::move(request), limits_.install);
  if (!answer) co_return StepResult{Progress::kStalled, answer.error().message};
  const auto* installed = std::get_if<frame::Installed>(&*answer);
  if (installed == nullptr)
    co_return StepResult{Progress::kStalled, "the worker's answer is malformed"};
  if (installed->outcome == frame::InstallOutcome::kInstalled) {
    log_.event(Level::kInfo, "install.acknowledged",
               {{"sandbox", snapshot.sandbox.id.text()},
                {"generation", step.generation.value},
                {"worker", execution.route.worker.text()},
                {"epoch", installed->epoch}});
    Change change_it = [&](Snapshot& now) {
      fleet::installed(now, step.generation);
      return true;
    };
    co_return co_await commit(std::move(snapshot), step.step, std::move(change_it));
  }
  std::string message = "worker " + execution.route.worker.text() + " did not install generation " +
                        std::to_string(step.generation.value) + ": " +
                        std::string(to_string(installed->outcome));
  if (!installed->detail.empty()) message += ": " + installed->detail;
  if (execution.thaw) {
    // It holds the only copy and is parked again; a freeze that fails leaves it running,
    // unreachable.
    wire::NodeFreezeRequest again;
    again.route = execution.route;
    const auto frozen = co_await link->call_as<wire::NodeInstance>(
        Operation::kNodeFreeze, std::move(again), limits_.node_call);
    if (!frozen) {
      log_.event(Level::kError, "freeze.failed",
                 {{"sandbox", snapshot.sandbox.id.text()}, {"reason", frozen.error().message}});
    }
  }
  // A redelivered install that is refused may have left the record of the first one there (P-15).
  if (const auto done = co_await send_retire(snapshot, execution, *link); !done) {
    co_return StepResult{Progress::kStalled, done.error().message};
  }
  CallFailure failure{false, Outcome::kUnavailable, std::move(message)};
  if (installed->floor > snapshot.sandbox.generation.value) {
    // The next generation has to pass what the receiver knows.
    const auto floor = installed->floor;
    Change raise = [floor](Snapshot& now) {
      auto& generation = now.sandbox.generation;
      generation.value = std::max(generation.value, floor);
      return true;
    };
    co_await change(snapshot.sandbox.id, std::move(raise));
  }
  co_return co_await fail(std::move(snapshot), step, std::move(failure), std::move(found));
}

Task<Driver::StepResult> Driver::freeze(Snapshot snapshot, NextStep step,
                                        std::shared_ptr<Entry> found) {
  const auto execution = *fleet::find(snapshot, step.generation);
  auto* link = find_link_(execution.route.worker);
  if (link == nullptr || !link->up()) {
    co_return StepResult{Progress::kStalled,
                         link ? link->reason() : "its worker is not configured"};
  }
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  wire::NodeFreezeRequest request;
  request.route = execution.route;
  auto instance = co_await link->call_as<wire::NodeInstance>(Operation::kNodeFreeze,
                                                             std::move(request), limits_.node_call);
  if (!instance) {
    if (instance.error().unknown)
      co_return StepResult{Progress::kStalled, instance.error().message};
    co_return co_await fail(std::move(snapshot), step, std::move(instance).error(),
                            std::move(found));
  }
  Change change_it = [&](Snapshot& now) {
    fleet::frozen(now, step.generation, instance->handle);
    return true;
  };
  co_return co_await commit(std::move(snapshot), step.step, std::move(change_it));
}

Task<CallResult<void>> Driver::send_retire(const Snapshot& snapshot, const Execution& execution,
                                           WorkerLink& link) {
  frame::Retire request;
  request.route = execution.route;
  if (snapshot.sandbox.operation) request.operation = snapshot.sandbox.operation->id;
  const auto answer = co_await link.exchange(std::move(request), limits_.install);
  if (!answer) co_return std::unexpected(answer.error());
  if (std::holds_alternative<frame::Retired>(*answer)) co_return CallResult<void>{};
  CallFailure malformed{true, Outcome::kInternal, "the worker's answer is malformed"};
  co_return std::unexpected(std::move(malformed));
}

Task<Driver::StepResult> Driver::retire(Snapshot snapshot, NextStep step) {
  const auto execution = *fleet::find(snapshot, step.generation);
  auto* link = find_link_(execution.route.worker);
  if (link == nullptr || !link->up()) {
    co_return StepResult{Progress::kStalled,
                         link ? link->reason() : "its worker is not configured"};
  }
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  const auto done = co_await send_retire(snapshot, execution, *link);
  if (!done) co_return StepResult{Progress::kStalled, done.error().message};
  Change change_it = [&](Snapshot& now) {
    fleet::retired(now, step.generation);
    return true;
  };
  co_return co_await commit(std::move(snapshot), step.step, std::move(change_it));
}

Task<Driver::StepResult> Driver::publish(Snapshot snapshot, NextStep step,
                                         std::shared_ptr<Entry> found) {
  const auto execution = *fleet::find(snapshot, step.generation);
  auto* link = find_link_(execution.route.worker);
  if (link != nullptr) co_await link->wait_up(timer_.now() + limits_.patience);
  if (link == nullptr || !link->up()) {
    CallFailure failure{true, Outcome::kUnavailable,
                        link ? link->reason() : "its worker is not configured"};
    failure.message += "; it holds the sandbox's files";
    co_return co_await fail(std::move(snapshot), step, std::move(failure), std::move(found));
  }
  wire::NodePublishRequest request;
  request.handle = execution.handle;
  request.artifact = artifact_name(execution.route, snapshot.sandbox.operation->id);
  const auto artifact = request.artifact;
  Change mark = [&](Snapshot& now) {
    fleet::publishing(now, step.generation, artifact);
    return true;
  };
  auto marked = co_await fenced_change(snapshot, std::move(mark));
  if (marked.progress != Progress::kContinue) co_return marked;
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  auto answer = co_await link->call_as<wire::Nothing>(Operation::kNodePublish, std::move(request),
                                                      limits_.publish);
  if (!answer) {
    co_return co_await fail(std::move(snapshot), step, std::move(answer).error(), std::move(found));
  }
  Change change_it = [&](Snapshot& now) {
    fleet::published(now, artifact);
    return true;
  };
  co_return co_await commit(std::move(snapshot), step.step, std::move(change_it));
}

Task<Driver::StepResult> Driver::discard(Snapshot snapshot, NextStep step,
                                         std::shared_ptr<Entry> found) {
  auto execution = *fleet::find(snapshot, step.generation);
  const auto& operation = snapshot.sandbox.operation;
  const bool for_activation = operation && operation->kind != OperationKind::kKill;
  auto* link = find_link_(execution.route.worker);
  // An execution that may still serve is waited for; any other is destroyed when its worker is
  // back.
  const auto give_up = [&](std::string reason) {
    return StepResult{
        execution.maybe_installed && operation ? Progress::kStalled : Progress::kPostponed,
        std::move(reason)};
  };
  if (link != nullptr && for_activation) {
    co_await link->wait_up(timer_.now() + limits_.patience);
  }
  if (link == nullptr || !link->up()) {
    auto reason = link ? link->reason() : "its worker is not configured";
    if (execution.maybe_installed) {
      reason += "; it may still serve generation " + std::to_string(step.generation.value);
    }
    if (!for_activation) co_return give_up(std::move(reason));
    CallFailure failure{true, Outcome::kUnavailable, std::move(reason)};
    co_return co_await fail(std::move(snapshot), step, std::move(failure), std::move(found));
  }
  if (!survives(step.step, "call")) co_return StepResult{Progress::kHalted, {}};
  if (execution.maybe_installed) {
    const auto done = co_await send_retire(snapshot, execution, *link);
    if (!done) co_return give_up(done.error().message);
    Change change_it = [&](Snapshot& now) {
      const auto* there = fleet::find(now, step.generation);
      if (there == nullptr) return false;
      fleet::retired(now, step.generation);
      return true;
    };
    co_await change(snapshot.sandbox.id, std::move(change_it));
    execution.maybe_installed = false;
  }
  if (execution.handle.empty()) {
    // Its start had no known outcome: starting the same activation again removes what was half-made
    // and names the runtime.
    auto instance = co_await start_runtime(snapshot, execution, *link);
    if (!instance && instance.error().unknown) co_return give_up(instance.error().message);
    if (instance) execution.handle = instance->handle;
    Change learned = [&](Snapshot& now) {
      if (fleet::find(now, step.generation) == nullptr) return false;
      fleet::handle_learned(now, step.generation, execution.handle);
      return true;
    };
    co_await change(snapshot.sandbox.id, std::move(learned));
  }
  auto artifacts = execution.remove_artifacts;
  if (artifacts.empty()) artifacts.emplace_back();
  for (auto& artifact : artifacts) {
    if (execution.handle.empty() && artifact.empty()) continue;
    wire::NodeDestroyRequest request;
    request.handle = execution.handle;
    request.artifact = std::move(artifact);
    const auto answer = co_await link->call_as<wire::Nothing>(
        Operation::kNodeDestroy, std::move(request), limits_.node_call);
    if (!answer) {
      log_.event(Level::kWarning, "destroy.failed",
                 {{"sandbox", snapshot.sandbox.id.text()},
                  {"generation", step.generation.value},
                  {"reason", answer.error().message}});
      co_return StepResult{Progress::kPostponed, answer.error().message};
    }
  }
  if (!survives(step.step, "answered")) co_return StepResult{Progress::kHalted, {}};
  Change gone = [&](Snapshot& now) {
    const auto* there = fleet::find(now, step.generation);
    if (there == nullptr || there->state != ExecutionState::kDiscarding) return false;
    fleet::discarded(now, step.generation);
    return true;
  };
  co_await change(snapshot.sandbox.id, std::move(gone));
  if (!survives(step.step, "committed")) co_return StepResult{Progress::kHalted, {}};
  co_return StepResult{};
}

Task<Driver::StepResult> Driver::finish(Snapshot snapshot, std::shared_ptr<Entry> found) {
  const auto operation = *snapshot.sandbox.operation;
  const auto sandbox = snapshot.sandbox.id;
  Change change_it = [&](Snapshot& now) {
    fleet::finish(now, clock_.now());
    return true;
  };
  auto result = co_await commit(std::move(snapshot), Step::kFinish, std::move(change_it));
  if (result.progress == Progress::kContinue) {
    log_.event(Level::kInfo, "operation.done",
               {{"sandbox", sandbox.text()}, {"operation", to_string(operation.kind)}});
    settle(*found, operation.id, OperationResult{});
  }
  co_return result;
}

}  // namespace space::control_plane
