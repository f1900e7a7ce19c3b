#include "sim/sim_runtime.h"

namespace space::sim {
namespace {

using std::chrono::milliseconds;

std::unexpected<RuntimeFailure> failure(RuntimeError error, std::string detail) {
  return std::unexpected(RuntimeFailure{error, std::move(detail)});
}
std::unexpected<RuntimeFailure> injected() {
  return failure(RuntimeError::kFailed, "injected failure");
}

}  // namespace

Task<void> Machine::stop() {
  while (!instances_.empty()) destroy(std::string(instances_.begin()->first));
  co_await tasks_.join();
}

void Machine::start(StartRequest request, const std::string& handle) {
  Disk disk;
  if (!request.artifact.empty()) disk = artifacts_.at(request.artifact);
  auto& instance = instances_[handle];
  instance.activation = request.route.activation;
  instance.seen.handle = handle;
  instance.seen.guest_process.pid = next_pid_++;
  instance.seen.guest_process.start_time_ticks = world_.world.random().next();
  instance.seen.transport.socket_path = handle;
  instance.seen.transport.path_inode = world_.world.random().next();
  world_.oracle.instance_started(handle, request.route);
  instance.guest = std::make_unique<SimGuest>(
      world_, "guest/" + handle, handle, request.route.sandbox, std::move(disk),
      std::move(request.secret), std::move(request.spec.envs));
}

void Machine::freeze(const std::string& handle) {
  auto& instance = instances_.at(handle);
  instance.seen.frozen = true;
  instance.guest->freeze();
}

void Machine::thaw(const std::string& handle) {
  auto& instance = instances_.at(handle);
  world_.oracle.instance_thawed(handle);
  if (!instance.seen.frozen) return;
  instance.seen.frozen = false;
  instance.guest->thaw();
}

void Machine::destroy(const std::string& handle) {
  const auto at = instances_.find(handle);
  if (at == instances_.end()) return;
  world_.oracle.instance_gone(handle);
  world_.network.kill("guest/" + handle);
  tasks_.spawn("guest.end", end(std::move(at->second.guest)));
  instances_.erase(at);
}

Task<void> Machine::end(std::unique_ptr<SimGuest> guest) { co_await guest->stop(); }

// ---- the port ----

Task<bool> SimRuntime::before(BootClock::duration usual) {
  auto& world = machine_.world().world;
  const auto life = life_;
  auto& random = world.random();
  auto time = usual / 2 + BootClock::duration(static_cast<std::int64_t>(
                              random.below(static_cast<std::uint64_t>(usual.count()))));
  if (random.permille(machine_.faults().slow_permille)) time += milliseconds(random.below(5000));
  const bool fails = random.permille(machine_.faults().fail_permille);
  co_return co_await sleep_for(world, time) && !life->ended && !fails;
}

Task<bool> SimRuntime::after() {
  auto& world = machine_.world().world;
  const auto life = life_;
  const bool lost = world.random().permille(machine_.faults().lost_permille);
  co_return co_await sleep_for(world, milliseconds(1)) && !life->ended && !lost;
}

const Machine::Instance* SimRuntime::find(const std::string& handle) const {
  const auto at = machine_.instances().find(handle);
  return at == machine_.instances().end() ? nullptr : &at->second;
}

Task<RuntimeResult<RuntimeInstance>> SimRuntime::start(StartRequest request) {
  if (!co_await before(milliseconds(50))) co_return injected();
  if (!request.artifact.empty() && !machine_.artifacts().contains(request.artifact)) {
    co_return failure(RuntimeError::kFailed, "no such artifact");
  }
  const auto handle = request.route.worker.text() + "/" + request.route.sandbox.text() + "-" +
                      std::to_string(request.route.generation.value) + "-" +
                      request.route.activation.text().substr(0, 8);
  machine_.destroy(handle);  // a half-made one of the same activation
  machine_.start(std::move(request), handle);
  if (!co_await after()) co_return injected();
  const auto* instance = find(handle);
  if (instance == nullptr) co_return failure(RuntimeError::kNoSuchInstance, "gone");
  co_return instance->seen;
}

Task<RuntimeResult<void>> SimRuntime::freeze(std::string handle) {
  if (!co_await before(milliseconds(5))) co_return injected();
  if (find(handle) == nullptr) co_return failure(RuntimeError::kNoSuchInstance, "gone");
  machine_.freeze(handle);
  if (!co_await after()) co_return injected();
  co_return RuntimeResult<void>{};
}

Task<RuntimeResult<RuntimeInstance>> SimRuntime::thaw(std::string handle) {
  if (!co_await before(milliseconds(5))) co_return injected();
  if (find(handle) == nullptr) co_return failure(RuntimeError::kNoSuchInstance, "gone");
  machine_.thaw(handle);
  if (!co_await after()) co_return injected();
  const auto* instance = find(handle);
  if (instance == nullptr) co_return failure(RuntimeError::kNoSuchInstance, "gone");
  co_return instance->seen;
}

Task<RuntimeResult<void>> SimRuntime::publish(std::string handle, std::string name) {
  if (!co_await before(milliseconds(100))) co_return injected();
  if (!machine_.artifacts().contains(name)) {
    const auto* instance = find(handle);
    if (instance == nullptr) co_return failure(RuntimeError::kNoSuchInstance, "gone");
    if (!instance->seen.frozen) {
      machine_.world().oracle.violated("P-35: a running instance is published, " + handle);
    }
    machine_.artifacts().emplace(name, instance->guest->disk());
  }
  if (!co_await after()) co_return injected();
  co_return RuntimeResult<void>{};
}

Task<RuntimeResult<void>> SimRuntime::destroy(std::string handle) {
  if (!co_await before(milliseconds(10))) co_return injected();
  machine_.destroy(handle);
  if (!co_await after()) co_return injected();
  co_return RuntimeResult<void>{};
}

Task<RuntimeResult<RuntimeInstance>> SimRuntime::inspect(std::string handle) {
  if (!co_await before(milliseconds(1))) co_return injected();
  const auto* instance = find(handle);
  if (instance == nullptr) co_return failure(RuntimeError::kNoSuchInstance, "gone");
  co_return instance->seen;
}

Task<RuntimeResult<std::vector<std::string>>> SimRuntime::list() {
  if (!co_await before(milliseconds(1))) co_return injected();
  std::vector<std::string> handles;
  for (const auto& [handle, instance] : machine_.instances()) handles.push_back(handle);
  co_return handles;
}

Task<RuntimeResult<void>> SimRuntime::remove_artifact(std::string name) {
  if (!co_await before(milliseconds(5))) co_return injected();
  machine_.artifacts().erase(name);
  if (!co_await after()) co_return injected();
  co_return RuntimeResult<void>{};
}

}  // namespace space::sim
