#include "sim/sim_bridge.h"

#include "services/spaced_host/bridge.h"

namespace space::sim {
namespace {

using std::chrono::milliseconds;

Task<void> run_bridge(std::shared_ptr<spaced_host::Bridge> bridge) { co_await bridge->run(); }

Task<void> kill_later(std::weak_ptr<spaced_host::Bridge> bridge, World& world,
                      BootClock::duration after) {
  co_await sleep_for(world, after);
  if (const auto alive = bridge.lock()) alive->close();
}

// The manager's end; when it goes, so does the process at the other end.
class LinkStream final : public Stream {
 public:
  LinkStream(std::unique_ptr<Stream> inner, std::shared_ptr<spaced_host::Bridge> bridge)
      : inner_(std::move(inner)), bridge_(std::move(bridge)) {}
  ~LinkStream() override { bridge_->close(); }
  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    return inner_->read_some(buffer);
  }
  Task<IoResult<void>> write_all(ByteView data) override { return inner_->write_all(data); }
  void close() override { inner_->close(); }
  void reset() override { inner_->reset(); }

 private:
  std::unique_ptr<Stream> inner_;
  std::shared_ptr<spaced_host::Bridge> bridge_;
};

}  // namespace

Task<std::expected<BridgeLink, BridgeError>> SimBridgeLauncher::launch(BridgeTarget target,
                                                                       MonoTime deadline) {
  auto& world = machine_.world();
  const auto life = life_;
  if (!co_await sleep_until(world.world, std::min(world.world.now() + milliseconds(5), deadline)) ||
      life->ended) {
    co_return std::unexpected(BridgeError::kTimedOut);
  }
  const auto& instances = machine_.instances();
  const auto at = instances.find(target.transport.socket_path);
  if (at == instances.end()) co_return std::unexpected(BridgeError::kProcessGone);
  if (at->second.seen.guest_process != target.guest_process) {
    co_return std::unexpected(BridgeError::kWrongPeerProcess);
  }
  if (at->second.seen.transport != target.transport) {
    co_return std::unexpected(BridgeError::kPathChanged);
  }
  auto address = at->first;
  if (instances.size() > 1 && world.world.random().permille(machine_.faults().swap_permille)) {
    auto other = instances.begin();
    std::advance(other, static_cast<std::ptrdiff_t>(world.world.random().below(instances.size())));
    if (other->first != address) {
      world.oracle.probe("guest_swapped");
      address = other->first;
    }
  }
  const auto dialer = world.network.dialer(life->node + "/bridges", {}, true);
  auto guest = co_await dialer->dial(address, deadline);
  // Its listener is there as long as the instance is: the network only makes it slow.
  if (!guest || life->ended) co_return std::unexpected(BridgeError::kTimedOut);
  auto [ours, its] = world.network.pair();
  auto bridge = std::make_shared<spaced_host::Bridge>(
      std::move(its), *std::move(guest),
      spaced_host::Bridge::World{world.world, world.entropy, world.log});
  machine_.tasks().spawn("spaced_host", run_bridge(bridge));
  if (world.world.random().permille(machine_.faults().bridge_permille)) {
    machine_.tasks().spawn(
        "spaced_host.kill",
        kill_later(bridge, world.world, milliseconds(world.world.random().below(2000))));
  }
  BridgeLink link;
  link.process.pid = 1;
  link.evidence = "simulated";
  link.stream = tapped(std::make_unique<LinkStream>(std::move(ours), std::move(bridge)), life,
                       world.oracle.bridge_leg(machine_.worker(), clock_));
  co_return link;
}

}  // namespace space::sim
