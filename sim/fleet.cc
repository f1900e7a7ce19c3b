#include "sim/fleet.h"

namespace space::sim {
namespace {

constexpr std::string_view kControlAddress = "control/node-api";
std::string control_address(const identity::WorkerId& worker) { return worker.text() + "/control"; }
std::string gateway_name(std::size_t index) { return "node-api-" + std::to_string(index); }

MakeObserver nothing() {
  return [](const std::string&) { return nullptr; };
}

}  // namespace

identity::PublicKey SimSigner::public_key() const {
  return *identity::PublicKey::from(identity::sha256(as_bytes("the key of the simulation")));
}

std::array<std::byte, 64> SimSigner::sign(ByteView message) const {
  return identity::testing::keyed_hash_sign(message, public_key());
}

// ---- one run of each process ----

struct Fleet::ControlRun {
  LifePtr life;
  std::unique_ptr<SimStore> store;
  std::unique_ptr<Dialer> dialer;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<control_plane::ControlPlane> plane;
  std::unique_ptr<TaskScope> tasks;
};

struct Fleet::ManagerRun {
  LifePtr life;
  std::unique_ptr<SimRuntime> runtime;
  std::unique_ptr<SimRecords> records;
  std::unique_ptr<SimBridgeLauncher> launcher;
  std::unique_ptr<Listener> hop;
  std::unique_ptr<Listener> control;
  std::unique_ptr<sbx_manager::SbxManager> manager;
  std::unique_ptr<TaskScope> tasks;
};

Fleet::Fleet(World& world, Oracle& oracle, Options options)
    : world_(world),
      oracle_(oracle),
      options_(options),
      network_(world),
      entropy_(world.random().next()),
      log_(world, "fleet", options.trace),
      control_clock_(world),
      ending_(world) {
  workers_.resize(options.workers);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    auto& worker = workers_[i];
    worker.id = *identity::WorkerId::parse("w" + std::to_string(i + 1));
    worker.endpoint = "address-" + std::to_string(i + 1) + "/hop";
    worker.clock = std::make_unique<SimClock>(world_);
    worker.machine = std::make_unique<Machine>(
        SimGuest::World{world_, network_, oracle_, entropy_, log_}, worker.id, artifacts_);
  }
  gateways_.resize(options.gateways);
  for (auto& node : gateways_) node.clock = std::make_unique<SimClock>(world_);
}

Fleet::~Fleet() = default;

void Fleet::start_all() {
  for (std::size_t i = 0; i < workers_.size(); ++i) start_worker(i);
  start_control();
  for (std::size_t i = 0; i < gateways_.size(); ++i) start_gateway(i);
}

Task<void> Fleet::stop() {
  for (std::size_t i = 0; i < gateways_.size(); ++i) kill_gateway(i);
  kill_control();
  for (std::size_t i = 0; i < workers_.size(); ++i) kill_worker(i);
  co_await ending_.join();
  for (auto& worker : workers_) co_await worker.machine->stop();
}

std::map<std::uint32_t, identity::HolderId> Fleet::holders() const {
  std::map<std::uint32_t, identity::HolderId> holders;
  for (std::size_t i = 0; i < gateways_.size(); ++i) {
    holders.emplace(kFirstGatewayUid + i,
                    *identity::HolderId::from(identity::sha256(as_bytes(gateway_name(i)))));
  }
  return holders;
}

// ---- control plane ----

void Fleet::start_control() {
  if (control_) return;
  control_ = std::make_unique<ControlRun>();
  auto& run = *control_;
  run.life = std::make_shared<Life>(Life{"control"});
  run.store = std::make_unique<SimStore>(world_, store_, run.life);
  run.store->set_fail_permille(store_fail_permille_);
  run.dialer = tapped(network_.dialer("control", {1, kControlUid, 0}), run.life, nothing());
  run.listener =
      tapped(network_.listen("control", std::string(kControlAddress)), run.life, nothing());
  control_plane::Options options;
  options.issuer = *identity::Issuer::parse("control");
  options.owner = *identity::OwnerId::parse("control-1");
  options.access_key = control_plane::AccessKey(identity::sha256(as_bytes("access key")));
  for (const auto& worker : workers_) {
    options.workers.push_back({worker.id, control_address(worker.id), worker.endpoint, 64});
  }
  options.holders = holders();
  run.plane = std::make_unique<control_plane::ControlPlane>(
      *run.store, *run.dialer, world_, control_clock_, entropy_, signer_, log_, std::move(options));
  run.tasks = std::make_unique<TaskScope>(world_);
  run.tasks->spawn("control", run_control(run));
}

Task<void> Fleet::run_control(ControlRun& run) {
  while (!run.life->ended) {
    const auto started = co_await run.plane->start();
    if (started) {
      co_await run.plane->serve(*run.listener);
      co_return;
    }
    // As its supervisor would: started again, once more from the beginning.
    if (!co_await sleep_for(world_, std::chrono::milliseconds(200))) co_return;
  }
}

void Fleet::kill_control() {
  if (!control_) return;
  control_->life->ended = true;
  network_.kill("control");
  control_->listener->close();
  ending_.spawn("control.end", end_control(std::move(control_)));
}

Task<void> Fleet::end_control(std::unique_ptr<ControlRun> run) {
  co_await run->plane->stop();
  co_await run->tasks->stop();
}

// ---- workers ----

void Fleet::start_worker(std::size_t index) {
  auto& worker = workers_[index];
  if (worker.run) return;
  worker.run = std::make_unique<ManagerRun>();
  auto& run = *worker.run;
  run.life = std::make_shared<Life>(Life{worker.id.text()});
  run.runtime = std::make_unique<SimRuntime>(*worker.machine, run.life);
  run.records = std::make_unique<SimRecords>(world_, oracle_, worker.disk, worker.id, run.life);
  run.records->set_fail_permille(record_fail_permille_);
  run.launcher = std::make_unique<SimBridgeLauncher>(*worker.machine, *worker.clock, run.life);
  sbx_manager::Options options;
  options.worker = worker.id;
  options.holders = holders();
  options.control_uid = kControlUid;
  options.runtime = "simulated";
  options.evidence = "simulated";
  run.manager = std::make_unique<sbx_manager::SbxManager>(
      sbx_manager::SbxManager::World{*run.runtime, *run.launcher, *run.records, world_,
                                     *worker.clock, entropy_, verifier_, log_},
      std::move(options));
  run.tasks = std::make_unique<TaskScope>(world_);
  const auto manager_leg = [this, &worker](const std::string&) {
    return oracle_.manager_leg(worker.id, *worker.clock);
  };
  const auto control_leg = [this, &worker](const std::string&) {
    return oracle_.control_leg(worker.id);
  };
  run.hop = tapped(network_.listen(worker.id.text(), worker.endpoint), run.life, manager_leg);
  run.control =
      tapped(network_.listen(worker.id.text(), control_address(worker.id)), run.life, control_leg);
  run.tasks->spawn("manager", run_manager(run));
}

Task<void> Fleet::run_manager(ManagerRun& run) {
  const auto recovered = co_await run.manager->recover();
  if (!recovered || run.life->ended) co_return;
  run.tasks->spawn("manager.hop", run.manager->serve_hop(*run.hop));
  co_await run.manager->serve_control(*run.control);
}

void Fleet::kill_worker(std::size_t index) {
  auto& worker = workers_[index];
  if (!worker.run) return;
  worker.run->life->ended = true;
  network_.kill(worker.id.text());
  worker.run->hop->close();
  worker.run->control->close();
  ending_.spawn("manager.end", end_manager(std::move(worker.run)));
}

Task<void> Fleet::end_manager(std::unique_ptr<ManagerRun> run) {
  co_await run->manager->stop();
  co_await run->tasks->stop();
}

void Fleet::swap_endpoints(std::size_t a, std::size_t b) {
  kill_worker(a);
  kill_worker(b);
  kill_control();
  std::swap(workers_[a].endpoint, workers_[b].endpoint);
  start_worker(a);
  start_worker(b);
  start_control();
}

const sbx_manager::SbxManager* Fleet::manager(std::size_t index) const {
  return workers_[index].run ? workers_[index].run->manager.get() : nullptr;
}

// ---- gateways ----

void Fleet::start_gateway(std::size_t index) {
  auto& node = gateways_[index];
  if (node.run) return;
  node.cached.clear();
  node.run = std::make_shared<GatewayRun>();
  auto& run = *node.run;
  const auto name = gateway_name(index);
  run.life = std::make_shared<Life>(Life{name});
  run.log = std::make_unique<SimLog>(world_, name, options_.trace);
  const auto leg = [this](const std::string& address) -> std::shared_ptr<FrameObserver> {
    return address == kControlAddress ? nullptr : oracle_.gateway_leg();
  };
  run.dialer =
      tapped(network_.dialer(name, {2, static_cast<std::uint32_t>(kFirstGatewayUid + index), 0}),
             run.life, leg);
  node_api::Gateway::Options options;
  options.control_address = std::string(kControlAddress);
  options.id = name;
  run.gateway = std::make_unique<node_api::Gateway>(*run.dialer, world_, *node.clock, entropy_,
                                                    *run.log, std::move(options));
  run.gateway->start();
}

void Fleet::kill_gateway(std::size_t index) {
  auto& node = gateways_[index];
  if (!node.run) return;
  node.run->life->ended = true;
  network_.kill(node.run->life->node);
  ending_.spawn("gateway.end", end_gateway(std::exchange(node.run, nullptr)));
}

Task<void> Fleet::end_gateway(std::shared_ptr<GatewayRun> run) {
  if (run->gateway->counters().misroutes > 0) {
    // A manager said that another execution had admitted.
    run->log->event(Level::kAlarm, "gateway.misroutes", {});
  }
  co_await run->gateway->stop();
}

void Fleet::check() {
  for (auto& node : gateways_) {
    if (!node.run) continue;
    for (const auto& sandbox : oracle_.sandboxes()) {
      const auto* route = node.run->gateway->cached_route(sandbox);
      if (route == nullptr) continue;
      auto& highest = node.cached[sandbox];
      if (route->identity.generation < highest) {
        oracle_.violated("RC-3: " + node.run->life->node + " cached " + describe(route->identity) +
                         " after generation " + std::to_string(highest.value));
      }
      highest = route->identity.generation;
    }
  }
}

// ---- the rest ----

void Fleet::set_store_fail_permille(unsigned permille) {
  store_fail_permille_ = permille;
  if (control_) control_->store->set_fail_permille(permille);
}

void Fleet::set_record_fail_permille(unsigned permille) {
  record_fail_permille_ = permille;
  for (auto& worker : workers_) {
    if (worker.run) worker.run->records->set_fail_permille(permille);
  }
}

namespace {
Task<void> serve_mux(hop::Mux& mux) { co_await mux.run(); }
}  // namespace

Task<void> Fleet::redeliver(std::size_t index, wire::hop::Payload request) {
  const auto dialer = network_.dialer("control", {1, kControlUid, 0});
  const auto deadline = world_.now() + std::chrono::seconds(5);
  auto stream = co_await dialer->dial(control_address(workers_[index].id), deadline);
  if (!stream) co_return;
  hop::Connection connection(*std::move(stream), world_,
                             {wire::hop::Role::kControlPlane, wire::hop::Role::kManager, true,
                              "redelivery", random_id<identity::BootNonce>(entropy_), true});
  if (!co_await connection.handshake(deadline)) co_return;
  hop::Mux mux(connection, world_);
  TaskScope tasks(world_);
  tasks.spawn("redeliver", serve_mux(mux));
  static_cast<void>(co_await mux.exchange(std::move(request), deadline));
  connection.close();
  co_await tasks.join();
}

Task<std::string> Fleet::make_api_key(identity::TeamId team) {
  auto key = co_await control_plane::ControlPlane::create_api_key(store_, entropy_, std::move(team),
                                                                  control_clock_.now());
  co_return key ? *key : std::string();
}

}  // namespace space::sim
