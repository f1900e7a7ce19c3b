#include "services/control_plane/control_plane.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/identity/sha256.h"
#include "core/identity/testing/keyed_hash_signatures.h"
#include "services/control_plane/testing/fake_manager.h"
#include "services/control_plane/testing/memory_store.h"
#include "sim/network.h"

namespace space::control_plane {
namespace {

using fleet::ExecutionState;
using frame::Outcome;
using identity::WorkerId;
using policy::Operation;
using std::chrono::seconds;
using wire::SandboxInfo;
using wire::SandboxState;

constexpr std::uint32_t kNodeApiUid = 64'001;
constexpr std::uint32_t kOtherNodeApiUid = 64'002;
constexpr const char* kAddress = "sim:control/hop";

template <class Id>
Id filled(std::uint8_t value) {
  return *Id::from(Bytes(Id::kBytes, std::byte{value}));
}

class TestSigner final : public Signer {
 public:
  explicit TestSigner(std::uint32_t id = 1)
      : id_{id}, key_(filled<identity::PublicKey>(static_cast<std::uint8_t>(id))) {}
  identity::KeyId key_id() const override { return id_; }
  identity::PublicKey public_key() const override { return key_; }
  std::array<std::byte, 64> sign(ByteView message) const override {
    return identity::testing::keyed_hash_sign(message, key_);
  }

 private:
  identity::KeyId id_;
  identity::PublicKey key_;
};

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

// Records the points passed, and dies, or calls, at the n-th pass of all when told.
class Dying final : public FaultPoints {
 public:
  bool survives(std::string_view point) override {
    passed.emplace_back(point);
    if (call_at && passed.size() == *call_at) call();
    return !(die_at && passed.size() == *die_at) && point != die_at_name;
  }
  std::string die_at_name;  // empty: none
  std::vector<std::string> passed;
  std::optional<std::size_t> die_at;
  std::optional<std::size_t> call_at;
  std::function<void()> call;
};

using CallOutcome = std::expected<Bytes, frame::End>;

Task<void> call_task(hop::Mux& mux, Operation operation, Bytes metadata, CallOutcome& outcome) {
  frame::Open open;
  open.operation = operation;
  open.metadata = std::move(metadata);
  auto end = co_await hop::call(mux, std::move(open), mux.timer().now() + std::chrono::minutes(20));
  if (end.outcome == Outcome::kOk) {
    outcome = std::move(end.result);
  } else {
    outcome = std::unexpected(std::move(end));
  }
}

// A node-api's connection.
class Client {
 public:
  Client(sim::World& world, std::unique_ptr<Dialer> dialer)
      : world_(world), dialer_(std::move(dialer)), scope_(world) {}
  bool connect() {
    disconnect();
    connected_ = false;
    EXPECT_TRUE(world_.run(connect_task()));
    if (connected_) {
      mux_ = std::make_unique<hop::Mux>(*connection_, world_);
      mux_->on_request([this](frame::StreamId, frame::Payload payload) {
        if (const auto* over = std::get_if<frame::SessionEnded>(&payload))
          ended.push_back(over->session);
      });
      scope_.spawn("client", mux_->run());
    }
    return connected_;
  }
  void disconnect() {
    if (connection_) connection_->close();
    EXPECT_TRUE(world_.run(scope_.join()));
    mux_.reset();
    connection_.reset();
  }
  hop::Mux& mux() { return *mux_; }
  bool connected() const { return connection_ && !connection_->closed(); }
  std::vector<identity::SessionId> ended;

 private:
  Task<void> connect_task() {
    auto stream = co_await dialer_->dial(kAddress, world_.now() + seconds(5));
    if (!stream) co_return;
    hop::Connection::Options options;
    options.self = frame::Role::kNodeApi;
    options.peer = frame::Role::kControlPlane;
    options.dialled = true;
    options.id = "node-api";
    connection_ = std::make_unique<hop::Connection>(*std::move(stream), world_, std::move(options));
    connected_ = (co_await connection_->handshake(world_.now() + seconds(5))).has_value();
  }
  sim::World& world_;
  std::unique_ptr<Dialer> dialer_;
  std::unique_ptr<hop::Connection> connection_;
  std::unique_ptr<hop::Mux> mux_;
  TaskScope scope_;
  bool connected_ = false;
};

const WorkerId kW1 = *WorkerId::parse("w1");
const WorkerId kW2 = *WorkerId::parse("w2");

// A control plane with two fake workers, in a world of its own.
class Site {
 public:
  Site() : world(7), network(world), clock(world), entropy(7) {
    managers.emplace(kW1, std::make_unique<FakeManager>(fleet, world, kW1, std::uint8_t{1}));
    managers.emplace(kW2, std::make_unique<FakeManager>(fleet, world, kW2, std::uint8_t{2}));
    for (const auto& [id, manager] : managers) connect_worker(id);
    client = std::make_unique<Client>(
        world, network.dialer("node-api", PeerCredentials{1, kNodeApiUid, kNodeApiUid}));
    key = make_key("team-a");
    start_plane();
  }
  ~Site() {
    client->disconnect();
    stop_plane();
    for (auto& [id, manager] : managers) EXPECT_TRUE(world.run(manager->stop()));
    EXPECT_TRUE(fleet.violations.empty()) << fleet.violations.front();
  }

  std::string make_key(const char* team) {
    std::string made;
    EXPECT_TRUE(world.run(make_key_task(*identity::TeamId::parse(team), made)));
    return made;
  }
  void connect_worker(const WorkerId& id) {
    managers.at(id)->start(network.listen(id.text(), "sim:" + id.text() + "/control"));
  }
  void start_plane() {
    Options options;
    options.issuer = *identity::Issuer::parse("space");
    options.owner = *identity::OwnerId::parse("control-1");
    options.access_key = access_key.duplicate();
    for (const auto& id : {kW1, kW2}) {
      options.workers.push_back(
          {id, "sim:" + id.text() + "/control", "sim:" + id.text() + "/hop", 256});
    }
    options.holders.emplace(kNodeApiUid, filled<identity::HolderId>(1));
    options.holders.emplace(kOtherNodeApiUid, filled<identity::HolderId>(2));
    dialer = network.dialer("control");
    plane = std::make_unique<ControlPlane>(store, *dialer, world, clock, entropy, *signer, log,
                                           std::move(options), faults);
    listener = network.listen("control", kAddress);
    serving = std::make_unique<TaskScope>(world);
    started.clear();
    EXPECT_TRUE(world.run(start_task()));
    if (!started.empty()) return;
    serving->spawn("serve", plane->serve(*listener));
    world.run_for(seconds(3));
    EXPECT_TRUE(client->connect());
    open_session();
  }
  void stop_plane() {
    if (!plane) return;
    listener->close();
    EXPECT_TRUE(world.run(plane->stop()));
    EXPECT_TRUE(world.run(serving->stop()));
    plane.reset();
  }
  void restart_plane() {
    stop_plane();
    faults.die_at.reset();
    faults.die_at_name.clear();
    start_plane();
  }
  std::expected<wire::SessionOpenResult, frame::End> open_with(const std::string& credential) {
    return call<wire::SessionOpenResult>(Operation::kSessionOpen,
                                         wire::SessionOpenRequest{credential});
  }
  void open_session() {
    const auto opened = open_with(key);
    ASSERT_TRUE(opened);
    session = opened->session;
  }

  CallOutcome raw_call(Operation operation, Bytes metadata) {
    CallOutcome outcome = std::unexpected(frame::End{});
    EXPECT_TRUE(world.run(call_task(client->mux(), operation, std::move(metadata), outcome)));
    return outcome;
  }
  template <class Result, class Request>
  std::expected<Result, frame::End> call(Operation operation, const Request& request) {
    auto outcome = raw_call(operation, wire::encode(request));
    if (!outcome) return std::unexpected(outcome.error());
    auto result = wire::decode<Result>(*outcome);
    EXPECT_TRUE(result);
    return *std::move(result);
  }

  std::expected<SandboxInfo, frame::End> create(std::optional<WorkerId> worker = std::nullopt,
                                                std::uint32_t timeout_s = 300) {
    wire::SandboxCreateRequest request;
    request.session = session;
    request.template_name = "host";
    request.timeout_s = timeout_s;
    request.worker = std::move(worker);
    return call<SandboxInfo>(Operation::kSandboxCreate, request);
  }
  // One that is paused at its timeout, on w1.
  std::expected<SandboxInfo, frame::End> create_pausing(std::uint32_t timeout_s) {
    wire::SandboxCreateRequest request;
    request.session = session;
    request.template_name = "host";
    request.timeout_s = timeout_s;
    request.worker = kW1;
    request.on_timeout = wire::TimeoutAction::kPause;
    return call<SandboxInfo>(Operation::kSandboxCreate, request);
  }
  std::expected<SandboxInfo, frame::End> on(Operation operation, const identity::SandboxId& id) {
    return call<SandboxInfo>(operation, wire::SandboxRequest{session, id});
  }
  std::expected<SandboxInfo, frame::End> get(const identity::SandboxId& id) {
    return on(Operation::kSandboxGet, id);
  }
  std::expected<SandboxInfo, frame::End> kill(const identity::SandboxId& id) {
    return on(Operation::kSandboxKill, id);
  }
  std::expected<SandboxInfo, frame::End> pause(const identity::SandboxId& id) {
    return call<SandboxInfo>(Operation::kSandboxPause, wire::SandboxPauseRequest{session, id});
  }
  wire::SandboxResumeRequest resume_request(const identity::SandboxId& id) {
    wire::SandboxResumeRequest request;
    request.session = session;
    request.sandbox = id;
    return request;
  }
  std::expected<wire::SandboxResumeResult, frame::End> connect(
      const identity::SandboxId& id, std::optional<WorkerId> worker = std::nullopt,
      std::optional<std::uint32_t> timeout_s = std::nullopt) {
    auto request = resume_request(id);
    request.worker = std::move(worker);
    request.timeout_s = timeout_s;
    return call<wire::SandboxResumeResult>(Operation::kSandboxResume, request);
  }
  std::expected<SandboxInfo, frame::End> resume(
      const identity::SandboxId& id, std::optional<WorkerId> worker = std::nullopt,
      std::optional<std::uint32_t> timeout_s = std::nullopt) {
    auto result = connect(id, std::move(worker), timeout_s);
    if (!result) return std::unexpected(std::move(result).error());
    return std::move(result->info);
  }
  std::expected<SandboxInfo, frame::End> move(const identity::SandboxId& id,
                                              std::optional<WorkerId> worker = std::nullopt) {
    return call<SandboxInfo>(Operation::kSandboxMove,
                             wire::SandboxMoveRequest{session, id, worker});
  }
  std::expected<wire::RouteResolveResult, frame::End> resolve(const identity::SandboxId& id) {
    return call<wire::RouteResolveResult>(Operation::kRouteResolve,
                                          wire::RouteResolveRequest{session, id});
  }
  wire::CapabilityMintRequest mint_request(const identity::RouteIdentity& route) {
    wire::CapabilityMintRequest request;
    request.session = session;
    request.route = route;
    request.access = identity::AccessSet{}.with(identity::Access::kFilesRead);
    return request;
  }
  std::expected<wire::CapabilityMintResult, frame::End> mint(
      const wire::CapabilityMintRequest& request) {
    return call<wire::CapabilityMintResult>(Operation::kCapabilityMint, request);
  }
  FakeManager& w1() { return *managers.at(kW1); }
  FakeManager& w2() { return *managers.at(kW2); }
  void cut(const WorkerId& id) {
    managers.at(id)->cut();
    world.run_for(seconds(1));
  }
  std::size_t runtimes() { return w1().runtimes.size() + w2().runtimes.size(); }

  sim::World world;
  sim::SimNetwork network;
  sim::SimClock clock;
  sim::SimEntropy entropy;
  MemoryStore store;
  AccessKey access_key{identity::sha256(as_bytes("access"))};
  std::unique_ptr<TestSigner> signer = std::make_unique<TestSigner>();
  NoLog log;
  Dying faults;
  FakeFleet fleet;
  std::map<WorkerId, std::unique_ptr<FakeManager>> managers;
  std::unique_ptr<Client> client;
  std::string key;
  std::string started;  // why start() failed
  identity::SessionId session;

 private:
  Task<void> make_key_task(identity::TeamId team, std::string& made) {
    auto key_made =
        co_await ControlPlane::create_api_key(store, entropy, std::move(team), clock.now());
    EXPECT_TRUE(key_made);
    made = *key_made;
  }
  Task<void> start_task() {
    const auto result = co_await plane->start();
    if (!result) started = result.error();
  }
  std::unique_ptr<Dialer> dialer;
  std::unique_ptr<ControlPlane> plane;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<TaskScope> serving;
};

TEST(ControlPlane, LC1_CreatePauseResumeMoveKillEachActAndAnswerTheTruth) {
  Site site;
  const auto created = site.create();
  ASSERT_TRUE(created) << created.error().message;
  EXPECT_EQ(created->state, SandboxState::kRunning);
  EXPECT_EQ(created->generation.value, 1U);
  EXPECT_EQ(created->worker, kW1);
  EXPECT_EQ(created->sandbox.text().size(), 20U);
  const auto id = created->sandbox;
  const auto first_pid = site.w1().installed.at(id).record.first_public_pid;

  const auto paused = site.pause(id);
  ASSERT_TRUE(paused) << paused.error().message;
  EXPECT_EQ(paused->state, SandboxState::kPaused);
  EXPECT_TRUE(site.w1().installed.empty());
  ASSERT_EQ(site.w1().runtimes.size(), 1U);
  EXPECT_TRUE(site.w1().runtimes.begin()->second.frozen);
  const auto again = site.pause(id);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().outcome, Outcome::kConflict);

  const auto resumed = site.resume(id);  // where it is parked: processes kept
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->generation.value, 2U);
  EXPECT_EQ(site.w1().thaws, 1U);
  EXPECT_EQ(site.runtimes(), 1U);
  EXPECT_EQ(site.w1().installed.at(id).record.first_public_pid,
            first_pid + identity::kPublicPidBlock);  // P-25

  const auto moved = site.move(id);
  ASSERT_TRUE(moved) << moved.error().message;
  EXPECT_EQ(moved->worker, kW2);
  EXPECT_EQ(moved->generation.value, 3U);
  EXPECT_EQ(moved->state, SandboxState::kRunning);
  site.world.run_for(seconds(5));
  EXPECT_EQ(site.w1().runtimes.size(), 0U);  // the old copy went once the new one served
  ASSERT_EQ(site.w2().runtimes.size(), 1U);
  EXPECT_FALSE(site.w2().runtimes.begin()->second.started_from.empty());

  const auto killed = site.kill(id);
  ASSERT_TRUE(killed) << killed.error().message;
  EXPECT_EQ(killed->state, SandboxState::kKilled);
  EXPECT_EQ(site.runtimes(), 0U);
  EXPECT_TRUE(site.fleet.artifacts.empty());
  EXPECT_TRUE(site.kill(id));  // idempotent
  EXPECT_EQ(site.get(id).error().outcome, Outcome::kNotFound);
}

TEST(ControlPlane, VariablesThatMightNotFitALaterRecordAreRefusedAtCreation) {
  Site site;
  wire::SandboxCreateRequest request;
  request.session = site.session;
  request.template_name = "host";
  request.metadata["a"] = std::string(6'000, 'x');
  request.envs["b"] = std::string(6'300, 'x');
  const auto refused = site.call<SandboxInfo>(Operation::kSandboxCreate, request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().outcome, Outcome::kTooLarge);
  request.envs["b"].resize(6'200);
  const auto created = site.call<SandboxInfo>(Operation::kSandboxCreate, request);
  ASSERT_TRUE(created) << created.error().message;
  ASSERT_TRUE(site.pause(created->sandbox));
  EXPECT_TRUE(site.move(created->sandbox));
}

TEST(ControlPlane, P36_ResumeElsewhereStartsFromThePublishedFiles) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  ASSERT_TRUE(site.pause(id));
  const auto resumed = site.resume(id, kW2);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->worker, kW2);
  EXPECT_EQ(site.w2().thaws, 0U);
  site.world.run_for(seconds(5));
  EXPECT_EQ(site.runtimes(), 1U);
  // And back: what was published before must not be started from again.
  ASSERT_TRUE(site.pause(id));
  const auto back = site.resume(id, kW1);
  ASSERT_TRUE(back) << back.error().message;
  site.world.run_for(seconds(5));
  EXPECT_TRUE(site.fleet.artifacts.empty());
}

// The whole life of a sandbox, each call repeated until it has taken effect.
void live(Site& site, std::optional<std::size_t> die_at) {
  site.faults.die_at = die_at;
  site.faults.passed.clear();
  bool died = false;
  std::optional<identity::SandboxId> id;
  const auto until = [&](auto act, auto reached) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      act();
      if (die_at && !died && site.faults.passed.size() >= *die_at) {
        died = true;
        site.restart_plane();
        site.world.run_for(seconds(3));
      }
      if (reached()) return true;
      site.world.run_for(seconds(1));
    }
    return false;
  };
  const auto state = [&]() -> std::optional<SandboxInfo> {
    if (!id) return std::nullopt;
    auto info = site.get(*id);
    return info ? std::optional(*info) : std::nullopt;
  };
  const auto runs_on = [&](const WorkerId& worker) {
    const auto info = state();
    return info && info->state == SandboxState::kRunning && info->worker == worker;
  };
  ASSERT_TRUE(until(
      [&] {
        wire::SandboxListRequest request;
        request.session = site.session;
        const auto all = site.call<wire::SandboxListResult>(Operation::kSandboxList, request);
        if (all && !all->sandboxes.empty()) {
          id = all->sandboxes.front().sandbox;
        } else if (const auto made = site.create(kW1)) {
          id = made->sandbox;
        }
      },
      [&] { return runs_on(kW1); }));
  ASSERT_TRUE(until([&] { (void)site.pause(*id); },
                    [&] { return state() && state()->state == SandboxState::kPaused; }));
  ASSERT_TRUE(until([&] { (void)site.resume(*id); }, [&] { return runs_on(kW1); }));
  ASSERT_TRUE(until([&] { (void)site.move(*id, kW2); }, [&] { return runs_on(kW2); }));
  const auto route = site.resolve(*id);
  ASSERT_TRUE(route);
  EXPECT_TRUE(site.mint(site.mint_request(route->route)));
  ASSERT_TRUE(until([&] { (void)site.kill(*id); },
                    [&] {
                      const auto info = site.get(*id);
                      return !info && info.error().outcome == Outcome::kNotFound;
                    }));
  site.world.run_for(seconds(10));
  EXPECT_EQ(site.runtimes(), 0U);
  EXPECT_TRUE(site.fleet.artifacts.empty());
  EXPECT_TRUE(site.w1().installed.empty());
  EXPECT_TRUE(site.w2().installed.empty());
  std::uint64_t last = 0;
  for (const auto& execution : site.store.history(*id)) {
    EXPECT_GT(execution.route.generation.value, last);  // ID-2
    last = execution.route.generation.value;
    EXPECT_EQ(execution.state, ExecutionState::kGone);
    EXPECT_TRUE(execution.secret.empty());
  }
}

TEST(ControlPlane, LC1_C006_KilledAtEveryNamedPointAndRestartedItContinues) {
  std::vector<std::string> points;
  {
    Site site;
    live(site, std::nullopt);
    points = site.faults.passed;
  }
  ASSERT_GT(points.size(), 30U);
  for (std::size_t at = 1; at <= points.size(); ++at) {
    SCOPED_TRACE("died at point " + std::to_string(at) + " " + points[at - 1]);
    Site site;
    live(site, at);
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
  }
}

// Twenty resumes at the same instant, half of them through another node-api.
std::vector<CallOutcome> resume_twenty_times(Site& site, const identity::SandboxId& id) {
  Client other(site.world, site.network.dialer(
                               "other", PeerCredentials{2, kOtherNodeApiUid, kOtherNodeApiUid}));
  EXPECT_TRUE(other.connect());
  CallOutcome opened = std::unexpected(frame::End{});
  EXPECT_TRUE(site.world.run(call_task(other.mux(), Operation::kSessionOpen,
                                       wire::encode(wire::SessionOpenRequest{site.key}), opened)));
  auto request = site.resume_request(id);
  const auto ours = wire::encode(request);
  request.session = wire::decode<wire::SessionOpenResult>(*opened)->session;
  const auto theirs = wire::encode(request);
  TaskScope callers(site.world);
  std::vector<CallOutcome> outcomes(20, std::unexpected(frame::End{}));
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    callers.spawn("resume",
                  call_task(i % 2 == 0 ? site.client->mux() : other.mux(),
                            Operation::kSandboxResume, i % 2 == 0 ? ours : theirs, outcomes[i]));
  }
  EXPECT_TRUE(site.world.run(callers.join()));
  other.disconnect();
  return outcomes;
}

TEST(ControlPlane, C009_TwentyResumesAtOnceThatCannotGoOnAreToldToAskAgain) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  ASSERT_TRUE(site.pause(id));
  site.w1().lose_answers = true;
  for (const auto& outcome : resume_twenty_times(site, id)) {
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().outcome, Outcome::kUnavailable) << outcome.error().message;
  }
  site.w1().lose_answers = false;
  site.world.run_for(seconds(10));
  const auto running = site.get(id);
  EXPECT_EQ(running->state, SandboxState::kRunning);
  EXPECT_EQ(running->generation.value, 2U);
  EXPECT_FALSE(site.connect(id)->resumed);
}

TEST(ControlPlane, C009_TwentyResumesAtOnceMakeOneGeneration) {
  Site site;
  const auto id = site.create()->sandbox;
  ASSERT_TRUE(site.pause(id));
  for (const auto& outcome : resume_twenty_times(site, id)) {
    ASSERT_TRUE(outcome) << outcome.error().message;
    const auto result = wire::decode<wire::SandboxResumeResult>(*outcome);
    ASSERT_TRUE(result);
    EXPECT_TRUE(result->resumed);
    EXPECT_EQ(result->info.state, SandboxState::kRunning);
    EXPECT_EQ(result->info.generation.value, 2U);
  }
  EXPECT_EQ(site.w1().installs, 2U);
}

struct Race {
  CallOutcome first = std::unexpected(frame::End{});
  CallOutcome second = std::unexpected(frame::End{});
  bool met = false;  // the second call was made while the first was under way
};
// Makes the second call when the control plane passes its `at`-th point after the first one.
Race race(Site& site, std::size_t at, Operation first, Bytes first_request, Operation second,
          Bytes second_request) {
  Race result;
  TaskScope callers(site.world);
  site.faults.passed.clear();
  site.faults.call_at = at;
  site.faults.call = [&] {
    result.met = true;
    callers.spawn("second", call_task(site.client->mux(), second, second_request, result.second));
  };
  callers.spawn("first",
                call_task(site.client->mux(), first, std::move(first_request), result.first));
  EXPECT_TRUE(site.world.run(callers.join()));
  site.faults.call_at.reset();
  return result;
}

void expect_deleted(Site& site, const identity::SandboxId& id) {
  EXPECT_EQ(site.get(id).error().outcome, Outcome::kNotFound);
  site.world.run_for(seconds(5));
  EXPECT_EQ(site.runtimes(), 0U);
  EXPECT_TRUE(site.fleet.artifacts.empty());
  EXPECT_TRUE(site.fleet.installed_at.empty());
}

TEST(ControlPlane, LC1_ADeleteAtAnyPointOfAResumeEndsDeleted) {
  for (const auto& worker : {kW1, kW2}) {
    std::size_t at = 1;
    for (bool met = true; met; ++at) {
      SCOPED_TRACE("resume on " + worker.text() + ", delete at point " + std::to_string(at));
      Site site;
      const auto id = site.create(kW1)->sandbox;
      ASSERT_TRUE(site.pause(id));
      auto resume = site.resume_request(id);
      resume.worker = worker;
      const auto result =
          race(site, at, Operation::kSandboxResume, wire::encode(resume), Operation::kSandboxKill,
               wire::encode(wire::SandboxRequest{site.session, id}));
      met = result.met;
      if (!met) {
        EXPECT_TRUE(result.first);
        break;
      }
      EXPECT_TRUE(result.second) << result.second.error().message;
      if (!result.first) {
        const auto outcome = result.first.error().outcome;
        EXPECT_TRUE(outcome == Outcome::kUnavailable || outcome == Outcome::kNotFound)
            << to_string(outcome);
      }
      expect_deleted(site, id);
    }
    EXPECT_GT(at, 8U);
  }
}

TEST(ControlPlane, LC1_AResumeAtAnyPointOfADeleteFindsNothingAndEndsDeleted) {
  for (const bool paused : {false, true}) {
    std::size_t at = 1;
    for (bool met = true; met; ++at) {
      SCOPED_TRACE(std::string(paused ? "paused" : "running") + ", resume at point " +
                   std::to_string(at));
      Site site;
      const auto id = site.create(kW1)->sandbox;
      if (paused) ASSERT_TRUE(site.pause(id));
      const auto result = race(site, at, Operation::kSandboxKill,
                               wire::encode(wire::SandboxRequest{site.session, id}),
                               Operation::kSandboxResume, wire::encode(site.resume_request(id)));
      met = result.met;
      EXPECT_TRUE(result.first);
      if (met) EXPECT_EQ(result.second.error().outcome, Outcome::kNotFound);
      expect_deleted(site, id);
    }
    EXPECT_GT(at, 3U);
  }
}

TEST(ControlPlane, LC1_AResumeAtAnyPointOfAPauseWaitsForItAndResumes) {
  std::size_t at = 1;
  for (bool met = true; met; ++at) {
    SCOPED_TRACE("resume at point " + std::to_string(at));
    Site site;
    const auto id = site.create(kW1)->sandbox;
    const auto result = race(site, at, Operation::kSandboxPause,
                             wire::encode(wire::SandboxPauseRequest{site.session, id}),
                             Operation::kSandboxResume, wire::encode(site.resume_request(id)));
    met = result.met;
    if (!met) break;
    ASSERT_TRUE(result.second) << result.second.error().message;
    const auto resumed = wire::decode<wire::SandboxResumeResult>(*result.second);
    EXPECT_TRUE(resumed->resumed);
    EXPECT_EQ(resumed->info.state, SandboxState::kRunning);
    EXPECT_EQ(resumed->info.generation.value, 2U);
    EXPECT_EQ(site.runtimes(), 1U);
  }
  EXPECT_GT(at, 6U);
}

TEST(ControlPlane, LC1_APauseAtAnyPointOfAResumeIsToldToAskAgainOrPauses) {
  std::size_t at = 1;
  for (bool met = true; met; ++at) {
    SCOPED_TRACE("pause at point " + std::to_string(at));
    Site site;
    const auto id = site.create(kW1)->sandbox;
    ASSERT_TRUE(site.pause(id));
    const auto result =
        race(site, at, Operation::kSandboxResume, wire::encode(site.resume_request(id)),
             Operation::kSandboxPause, wire::encode(wire::SandboxPauseRequest{site.session, id}));
    met = result.met;
    if (!met) break;
    if (result.second) {
      EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
    } else {
      EXPECT_EQ(result.second.error().outcome, Outcome::kUnavailable);
      EXPECT_TRUE(result.first);
      EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
    }
    EXPECT_EQ(site.runtimes(), 1U);
  }
  EXPECT_GT(at, 8U);
}

TEST(ControlPlane, C091_ConnectNeverShortensTheLifeOfARunningSandbox) {
  Site site;
  const auto created = site.create(std::nullopt, 1800);
  const auto id = created->sandbox;
  EXPECT_EQ(site.resume(id, std::nullopt, 60)->ends_at, created->ends_at);
  EXPECT_EQ(site.resume(id)->ends_at, created->ends_at);
  EXPECT_EQ(site.resume(id, std::nullopt, 0).error().outcome, Outcome::kInvalidArgument);
  const auto longer = site.resume(id, std::nullopt, 7200);
  EXPECT_GT(longer->ends_at, created->ends_at);
  const wire::SandboxTimeoutRequest refresh{site.session, id, 60, true};
  const auto refreshed = site.call<SandboxInfo>(Operation::kSandboxSetTimeout, refresh);
  ASSERT_TRUE(refreshed) << refreshed.error().message;
  EXPECT_EQ(refreshed->ends_at, longer->ends_at);
  // Only set-timeout may shorten.
  const auto shorter = site.call<SandboxInfo>(
      Operation::kSandboxSetTimeout, wire::SandboxTimeoutRequest{site.session, id, 60, false});
  ASSERT_TRUE(shorter);
  EXPECT_LT(shorter->ends_at, created->ends_at);
  // A paused one gets the value asked for.
  ASSERT_TRUE(site.pause(id));
  const auto resumed = site.resume(id, std::nullopt, 100);
  ASSERT_TRUE(resumed);
  EXPECT_LE(resumed->ends_at, site.clock.now() + seconds(100));
}

TEST(ControlPlane, C091_LookingAtASandboxLeavesItsDeadline) {
  Site site;
  const auto created = site.create(std::nullopt, 60);
  const auto& id = created->sandbox;
  site.world.run_for(seconds(5));
  ASSERT_TRUE(site.mint(site.mint_request(site.resolve(id)->route)));
  ASSERT_TRUE(site.open_with(created->access_token));
  wire::SandboxListRequest list;
  list.session = site.session;
  EXPECT_EQ(site.call<wire::SandboxListResult>(Operation::kSandboxList, list)->sandboxes[0].ends_at,
            created->ends_at);
  EXPECT_EQ(site.get(id)->ends_at, created->ends_at);
  const auto kept = site.connect(id);
  EXPECT_EQ(kept->info.ends_at, created->ends_at);
  EXPECT_FALSE(kept->resumed);
}

TEST(ControlPlane, C091_AMoveKeepsWhatIsLeftOfTheLife) {
  Site site;
  const auto created = site.create(kW1, 1000);
  const auto& id = created->sandbox;
  EXPECT_EQ(site.move(id)->ends_at, created->ends_at);
  site.world.run_for(seconds(100));
  ASSERT_TRUE(site.pause(id));
  site.world.run_for(seconds(5000));
  site.open_session();
  const auto moved = site.move(id);
  ASSERT_TRUE(moved) << moved.error().message;
  const auto left = moved->ends_at - site.clock.now();
  EXPECT_GT(left, seconds(890));
  EXPECT_LE(left, seconds(900));
}

TEST(ControlPlane, LC1_AtItsTimeoutASandboxIsPausedWhenThatIsWished) {
  Site site;
  const auto created = site.create_pausing(5);
  ASSERT_TRUE(created) << created.error().message;
  EXPECT_EQ(created->on_timeout, wire::TimeoutAction::kPause);
  const auto& id = created->sandbox;
  for (std::uint32_t round = 1; round <= 2; ++round) {
    site.world.run_for(seconds(8));
    EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
    EXPECT_EQ(site.runtimes(), 1U);
    ASSERT_TRUE(site.resume(id, std::nullopt, 5));
    EXPECT_EQ(site.w1().thaws, round);
  }
  const auto longer = site.call<SandboxInfo>(
      Operation::kSandboxSetTimeout, wire::SandboxTimeoutRequest{site.session, id, 60, false});
  ASSERT_TRUE(longer);
  site.world.run_for(seconds(20));
  EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
  ASSERT_TRUE(site.kill(id));
  EXPECT_EQ(site.runtimes(), 0U);
}

TEST(ControlPlane, LC1_C006_APauseAtTheTimeoutGoesOnAfterADeath) {
  for (const auto* point : {"begin.committed", "freeze.call", "freeze.answered", "freeze.committed",
                            "retire.call", "retire.answered", "finish.answered"}) {
    SCOPED_TRACE(point);
    Site site;
    const auto id = site.create_pausing(5)->sandbox;
    site.faults.die_at_name = point;
    site.world.run_for(seconds(8));
    site.restart_plane();
    site.world.run_for(seconds(3));
    EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
    EXPECT_EQ(site.runtimes(), 1U);
    EXPECT_EQ(site.resume(id)->generation.value, 2U);
  }
}

TEST(ControlPlane, C089_APauseAtTheTimeoutThatFailsIsTriedAgainAndKillsNothing) {
  Site site;
  const auto id = site.create_pausing(5)->sandbox;
  site.w1().failures[Operation::kNodeFreeze] = {Outcome::kNoSpace, 2};
  site.world.run_for(seconds(20));
  EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
  EXPECT_EQ(site.get(id)->state_reason, "injected");
  EXPECT_EQ(site.w1().failures[Operation::kNodeFreeze].second, 1) << "tried more than once in 30 s";
  site.world.run_for(seconds(30));
  EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
  site.world.run_for(seconds(30));
  EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
  EXPECT_TRUE(site.resume(id));
}

TEST(ControlPlane, P15_APauseAtTheTimeoutWaitsForItsWorker) {
  Site site;
  const auto id = site.create_pausing(5)->sandbox;
  site.cut(kW1);
  site.world.run_for(seconds(60));
  EXPECT_EQ(site.get(id)->state, SandboxState::kPausing);
  EXPECT_EQ(site.resume(id).error().outcome, Outcome::kUnavailable);
  site.connect_worker(kW1);
  site.world.run_for(seconds(5));
  EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
}

TEST(ControlPlane, C008_ALostSandboxThatIsToBePausedIsNotKilledForItsTime) {
  Site site;
  const auto id = site.create_pausing(20)->sandbox;
  site.w1().serving = false;
  site.world.run_for(seconds(60));
  EXPECT_EQ(site.get(id)->state, SandboxState::kLost);
  site.w1().serving = true;
  site.world.run_for(seconds(15));
  EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
}

TEST(ControlPlane, LC1_AnExpiredSandboxIsKilledAndAPausedOneIsNot) {
  Site site;
  const auto expiring = site.create(std::nullopt, 5)->sandbox;
  const auto resting = site.create(std::nullopt, 5)->sandbox;
  ASSERT_TRUE(site.pause(resting));
  site.world.run_for(seconds(10));
  EXPECT_EQ(site.get(expiring).error().outcome, Outcome::kNotFound);
  EXPECT_EQ(site.get(resting)->state, SandboxState::kPaused);
  EXPECT_EQ(site.runtimes(), 1U);
}

TEST(ControlPlane, C110_PagesShowWhatLivesThroughExactlyOnceWhileOthersComeAndGo) {
  Site site;
  constexpr std::size_t kCount = 250;
  std::vector<identity::SandboxId> made;
  for (std::size_t i = 0; i < kCount; ++i) {
    wire::SandboxCreateRequest request;
    request.session = site.session;
    request.template_name = i % 5 == 0 ? "other" : "host";
    request.metadata = {{"stage", i % 2 == 0 ? "live" : "test"}, {"n", std::to_string(i)}};
    request.timeout_s = 80'000;
    const auto created = site.call<SandboxInfo>(Operation::kSandboxCreate, request);
    ASSERT_TRUE(created) << created.error().message;
    made.push_back(created->sandbox);
    if (i % 3 == 0) ASSERT_TRUE(site.pause(created->sandbox));
  }
  site.open_session();
  for (const bool newest_first : {false, true}) {
    wire::SandboxListRequest request;
    request.session = site.session;
    request.states = {SandboxState::kRunning, SandboxState::kPaused};
    request.metadata = {{"stage", "live"}};
    request.newest_first = newest_first;
    request.limit = 50;
    std::vector<identity::SandboxId> seen;
    std::size_t pages = 0;
    do {
      const auto page = site.call<wire::SandboxListResult>(Operation::kSandboxList, request);
      ASSERT_TRUE(page) << page.error().message;
      EXPECT_LE(page->sandboxes.size(), 50U);
      EXPECT_GT(page->total_running, 100U);
      for (const auto& info : page->sandboxes) {
        EXPECT_EQ(info.metadata.at("stage"), "live");
        seen.push_back(info.sandbox);
      }
      request.cursor = page->next_cursor;
      ++pages;
      // Shown already, and not shown yet; new ones meanwhile.
      for (const auto& victim : {made[pages * 2], made[kCount - 2 - pages * 4]}) {
        ASSERT_TRUE(site.kill(victim));
      }
      wire::SandboxCreateRequest fresh;
      fresh.session = site.session;
      fresh.template_name = "host";
      fresh.metadata = {{"stage", "live"}};
      ASSERT_TRUE(site.call<SandboxInfo>(Operation::kSandboxCreate, fresh));
    } while (!request.cursor.empty() && pages < 20);
    EXPECT_GE(pages, 3U);
    EXPECT_LT(pages, 20U);
    auto unique = seen;
    std::ranges::sort(unique);
    EXPECT_EQ(std::ranges::unique(unique).size(), 0U) << "shown twice";
    for (std::size_t i = 0; i < kCount; i += 2) {
      const bool there = std::ranges::find(seen, made[i]) != seen.end();
      EXPECT_TRUE(there || !site.get(made[i])) << i;
    }
  }
}

TEST(ControlPlane, C110_ACursorIsGoodForItsListAloneAndAFilterWithoutMatchIsEmpty) {
  Site site;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(site.create());
  wire::SandboxListRequest request;
  request.session = site.session;
  request.limit = 1;
  const auto list = [&](const wire::SandboxListRequest& asked) {
    return site.call<wire::SandboxListResult>(Operation::kSandboxList, asked);
  };
  const auto first = list(request);
  ASSERT_TRUE(first);
  ASSERT_EQ(first->sandboxes.size(), 1U);
  EXPECT_EQ(first->total_running, 3U);
  auto next = request;
  next.cursor = first->next_cursor;
  next.limit = 100;  // not of the list, of the page
  const auto second = list(next);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->sandboxes.size(), 2U);
  EXPECT_TRUE(second->next_cursor.empty());

  const auto refused = [&](auto change) {
    auto asked = next;
    change(asked);
    const auto result = list(asked);
    EXPECT_FALSE(result);
    if (!result) EXPECT_EQ(result.error().outcome, Outcome::kInvalidArgument);
  };
  refused([](auto& r) { r.cursor = "junk"; });
  refused([](auto& r) { r.cursor = "00"; });
  refused([](auto& r) { r.cursor.back() = r.cursor.back() == '0' ? '1' : '0'; });
  refused([](auto& r) { r.cursor[3] = r.cursor[3] == '0' ? '1' : '0'; });
  refused([](auto& r) { r.cursor.resize(r.cursor.size() / 2); });
  refused([](auto& r) { r.metadata = {{"a", "b"}}; });
  refused([](auto& r) { r.states = {SandboxState::kRunning}; });
  refused([](auto& r) { r.template_name = "host"; });
  refused([](auto& r) { r.started_after = WallTime{}; });
  refused([](auto& r) { r.newest_first = true; });
  refused([](auto& r) { r.limit = 101; });
  site.key = site.make_key("team-b");
  site.open_session();
  refused([&](auto& r) { r.session = site.session; });
  EXPECT_FALSE(list(next)->sandboxes.empty());  // the first team's session still

  auto none = request;
  none.metadata = {{"no", "such"}};
  EXPECT_TRUE(list(none)->sandboxes.empty());
  EXPECT_TRUE(list(none)->next_cursor.empty());
  EXPECT_EQ(list(none)->total_running, 3U);
}

TEST(ControlPlane, C110_AnAnswerThatWouldBeTooLargeIsMorePages) {
  Site site;
  constexpr std::size_t kCount = 150;
  for (std::size_t i = 0; i < kCount; ++i) {
    wire::SandboxCreateRequest request;
    request.session = site.session;
    request.template_name = "host";
    request.metadata = {{"large", std::string(10'000, 'x')}};
    ASSERT_TRUE(site.call<SandboxInfo>(Operation::kSandboxCreate, request));
  }
  for (const std::uint32_t limit : {0U, 100U}) {
    wire::SandboxListRequest request;
    request.session = site.session;
    request.limit = limit;
    std::set<identity::SandboxId> seen;
    std::size_t pages = 0;
    do {
      const auto page = site.call<wire::SandboxListResult>(Operation::kSandboxList, request);
      ASSERT_TRUE(page) << page.error().message;
      for (const auto& info : page->sandboxes) EXPECT_TRUE(seen.insert(info.sandbox).second);
      request.cursor = page->next_cursor;
      ++pages;
    } while (!request.cursor.empty());
    EXPECT_EQ(seen.size(), kCount);
    EXPECT_EQ(pages, 2U);
  }
}

TEST(ControlPlane, C023_AForeignSandboxAnswersLikeAnUnknownOne) {
  Site site;
  const auto id = site.create()->sandbox;
  const auto route = site.resolve(id)->route;
  site.key = site.make_key("team-b");
  site.open_session();
  const auto unknown = *identity::SandboxId::parse("aaaaaaaaaaaaaaaaaaaa");
  auto unknown_route = route;
  unknown_route.sandbox = unknown;
  const auto all = [&](const identity::SandboxId& which, const identity::RouteIdentity& at) {
    std::vector<frame::End> ends;
    const auto& session = site.session;
    const auto call = [&](Operation operation, Bytes metadata) {
      auto outcome = site.raw_call(operation, std::move(metadata));
      ends.push_back(outcome ? frame::End{} : outcome.error());
    };
    call(Operation::kSandboxGet, wire::encode(wire::SandboxRequest{session, which}));
    call(Operation::kSandboxKill, wire::encode(wire::SandboxRequest{session, which}));
    call(Operation::kSandboxRoute, wire::encode(wire::SandboxRequest{session, which}));
    call(Operation::kSandboxPause, wire::encode(wire::SandboxPauseRequest{session, which}));
    call(Operation::kSandboxResume, wire::encode(site.resume_request(which)));
    call(Operation::kSandboxMove, wire::encode(wire::SandboxMoveRequest{session, which, kW2}));
    call(Operation::kSandboxSetTimeout,
         wire::encode(wire::SandboxTimeoutRequest{session, which, 9, false}));
    call(Operation::kRouteResolve, wire::encode(wire::RouteResolveRequest{session, which}));
    call(Operation::kCapabilityMint, wire::encode(site.mint_request(at)));
    return ends;
  };
  const auto foreign = all(id, route);
  const auto none = all(unknown, unknown_route);
  ASSERT_EQ(foreign.size(), none.size());
  for (std::size_t i = 0; i < none.size(); ++i) {
    EXPECT_EQ(foreign[i].outcome, Outcome::kNotFound) << i;
    EXPECT_EQ(foreign[i].outcome, none[i].outcome) << i;
    EXPECT_EQ(foreign[i].message, none[i].message) << i;
  }
  EXPECT_TRUE(site.w1().installed.contains(id));
}

bool is_token(const std::string& text) {
  return text.size() == 68 && text.starts_with("sat_") && from_hex(text.substr(4)).has_value();
}

TEST(ControlPlane, P18_AnAccessTokenOpensASessionOfItsSandboxAlone) {
  Site site;
  const auto mine = site.create();
  const auto other = site.create();
  EXPECT_TRUE(is_token(mine->access_token));
  EXPECT_NE(mine->access_token, other->access_token);
  EXPECT_EQ(site.get(mine->sandbox)->access_token, mine->access_token);
  EXPECT_EQ(site.connect(mine->sandbox)->info.access_token, mine->access_token);
  wire::SandboxListRequest list;
  list.session = site.session;
  for (const auto& info :
       site.call<wire::SandboxListResult>(Operation::kSandboxList, list)->sandboxes) {
    EXPECT_EQ(info.access_token, "");
  }
  const auto other_route = site.resolve(other->sandbox)->route;

  const auto opened = site.open_with(mine->access_token);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->sandbox, mine->sandbox);
  EXPECT_EQ(opened->team.text(), "team-a");
  EXPECT_EQ(site.open_with(mine->access_token)->session, opened->session);
  EXPECT_EQ(site.open_with(site.key)->sandbox, std::nullopt);
  site.session = opened->session;
  const auto route = site.resolve(mine->sandbox);
  ASSERT_TRUE(route) << route.error().message;
  EXPECT_TRUE(site.mint(site.mint_request(route->route)));

  // C023: the team's other sandbox is as unknown as any.
  const auto unknown = *identity::SandboxId::parse("aaaaaaaaaaaaaaaaaaaa");
  auto unknown_route = other_route;
  unknown_route.sandbox = unknown;
  for (const auto& error : {site.resolve(other->sandbox).error(), site.resolve(unknown).error(),
                            site.mint(site.mint_request(other_route)).error(),
                            site.mint(site.mint_request(unknown_route)).error()}) {
    EXPECT_EQ(error.outcome, Outcome::kNotFound);
    EXPECT_EQ(error.message, "no such sandbox");
  }
}

TEST(ControlPlane, P18_AnAccessTokenDoesNothingButResolveAndMint) {
  Site site;
  const auto made = site.create();
  const auto& id = made->sandbox;
  const auto session = site.open_with(made->access_token)->session;
  const auto denied = [&](Operation operation, const auto& request) {
    const auto outcome = site.raw_call(operation, wire::encode(request));
    ASSERT_FALSE(outcome) << policy::info(operation).name;
    EXPECT_EQ(outcome.error().outcome, Outcome::kPermissionDenied) << policy::info(operation).name;
  };
  wire::SandboxCreateRequest create;
  create.session = session;
  create.template_name = "host";
  denied(Operation::kSandboxCreate, create);
  wire::SandboxListRequest list;
  list.session = session;
  denied(Operation::kSandboxList, list);
  denied(Operation::kSandboxGet, wire::SandboxRequest{session, id});
  denied(Operation::kSandboxKill, wire::SandboxRequest{session, id});
  denied(Operation::kSandboxRoute, wire::SandboxRequest{session, id});
  denied(Operation::kSandboxSetTimeout, wire::SandboxTimeoutRequest{session, id, 60});
  denied(Operation::kSandboxPause, wire::SandboxPauseRequest{session, id});
  wire::SandboxResumeRequest resume;
  resume.session = session;
  resume.sandbox = id;
  denied(Operation::kSandboxResume, resume);
  denied(Operation::kSandboxMove, wire::SandboxMoveRequest{session, id, kW2});
  denied(Operation::kPlatformStatus, wire::PlatformStatusRequest{session});
  EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
}

TEST(ControlPlane, P11_AKillEndsTheSessionsOfTheAccessToken) {
  Site site;
  const auto made = site.create(kW1);
  const auto kept = site.create(kW1);
  const auto session = site.open_with(made->access_token)->session;
  const auto kept_session = site.open_with(kept->access_token)->session;
  const auto route = site.resolve(made->sandbox)->route;
  ASSERT_TRUE(site.pause(made->sandbox));
  EXPECT_EQ(site.open_with(made->access_token)->session, session);  // a paused one keeps it
  ASSERT_TRUE(site.kill(made->sandbox));
  const auto team_session = std::exchange(site.session, session);
  EXPECT_EQ(site.resolve(made->sandbox).error().outcome, Outcome::kUnauthenticated);
  EXPECT_EQ(site.mint(site.mint_request(route)).error().outcome, Outcome::kUnauthenticated);
  site.session = team_session;
  site.world.run_for(seconds(2));
  EXPECT_EQ(site.w1().ended, std::vector{session});
  EXPECT_EQ(site.client->ended, std::vector{session});
  EXPECT_TRUE(site.open_with(kept->access_token));
  EXPECT_EQ(site.open_with(kept->access_token)->session, kept_session);

  // The token of a killed one, one that never was, and any other text.
  auto forged = kept->access_token;
  forged.back() = forged.back() == '0' ? '1' : '0';
  for (const auto& token : {made->access_token, forged}) {
    EXPECT_EQ(site.open_with(token).error().outcome, Outcome::kNotFound);
    EXPECT_EQ(site.open_with(token).error().message, "no such sandbox");
  }
  for (const std::string& text :
       {std::string("sat_"), kept->access_token + "0", std::string("x")}) {
    EXPECT_EQ(site.open_with(text).error().outcome, Outcome::kUnauthenticated);
  }
}

TEST(ControlPlane, P18_AnAccessTokenEndsWhenTheKillBegins) {
  Site site;
  const auto made = site.create(kW1);
  ASSERT_TRUE(site.open_with(made->access_token));
  site.cut(kW1);
  EXPECT_FALSE(site.kill(made->sandbox));  // it goes on when the worker is back
  EXPECT_EQ(site.open_with(made->access_token).error().outcome, Outcome::kNotFound);
}

TEST(ControlPlane, P18_AnotherAccessKeyMakesOtherTokens) {
  Site site;
  const auto made = site.create();
  ASSERT_TRUE(site.open_with(made->access_token));
  site.restart_plane();
  EXPECT_TRUE(site.open_with(made->access_token));
  site.access_key = AccessKey{identity::sha256(as_bytes("another"))};
  site.restart_plane();
  EXPECT_EQ(site.open_with(made->access_token).error().outcome, Outcome::kNotFound);
  const auto token = site.get(made->sandbox)->access_token;
  EXPECT_NE(token, made->access_token);
  EXPECT_TRUE(site.open_with(token));
}

TEST(ControlPlane, P3_MintsOnlyForALiveSessionAndTheCurrentInstalledExecution) {
  Site site;
  const auto id = site.create()->sandbox;
  const auto route = site.resolve(id)->route;
  const auto minted = site.mint(site.mint_request(route));
  ASSERT_TRUE(minted) << minted.error().message;

  identity::KeyRing ring;
  ASSERT_FALSE(ring.install(*site.w1().bundle, site.clock.now()));
  identity::testing::KeyedHashVerifier verifier;
  identity::VerifyContext context;
  context.now = site.clock.now();
  context.demand.peer = filled<identity::HolderId>(1);
  context.demand.access = identity::AccessSet{}.with(identity::Access::kFilesRead);
  const auto verified = identity::verify(identity::SealedCapability{minted->sealed}, ring, verifier,
                                         nullptr, context);
  ASSERT_TRUE(verified) << to_string(verified.error());
  const auto& claims = verified->claims();
  EXPECT_EQ(claims.route, route);
  EXPECT_EQ(claims.session, site.session);
  EXPECT_EQ(claims.holder, filled<identity::HolderId>(1));  // of the authenticated peer
  EXPECT_EQ(claims.expires_at - claims.issued_at, identity::kCapabilityLifetime);

  auto stale = site.mint_request(route);
  stale.route.generation.value += 1;
  EXPECT_EQ(site.mint(stale).error().outcome, Outcome::kConflict);
  auto other_attempt = site.mint_request(route);
  other_attempt.attempt = 2;
  EXPECT_EQ(site.mint(other_attempt).error().outcome, Outcome::kConflict);
  auto no_session = site.mint_request(route);
  no_session.session = filled<identity::SessionId>(9);
  EXPECT_EQ(site.mint(no_session).error().outcome, Outcome::kUnauthenticated);
  auto misfit = site.mint_request(route);
  misfit.purpose = identity::Purpose::kServicePort;
  EXPECT_EQ(site.mint(misfit).error().outcome, Outcome::kInvalidArgument);

  // Another node-api, authenticated, with this session: it obtains nothing.
  Client other(site.world, site.network.dialer(
                               "other", PeerCredentials{2, kOtherNodeApiUid, kOtherNodeApiUid}));
  ASSERT_TRUE(other.connect());
  CallOutcome outcome = std::unexpected(frame::End{});
  ASSERT_TRUE(site.world.run(call_task(other.mux(), Operation::kCapabilityMint,
                                       wire::encode(site.mint_request(route)), outcome)));
  EXPECT_EQ(outcome.error().outcome, Outcome::kUnauthenticated);
  other.disconnect();

  ASSERT_TRUE(site.pause(id));
  EXPECT_EQ(site.mint(site.mint_request(route)).error().outcome, Outcome::kConflict);
  ASSERT_TRUE(site.resume(id));
  EXPECT_EQ(site.mint(site.mint_request(route)).error().outcome, Outcome::kConflict);
  EXPECT_TRUE(site.mint(site.mint_request(site.resolve(id)->route)));
}

TEST(ControlPlane, TR3_AnUnknownPeerIsNotServed) {
  Site site;
  Client stranger(site.world, site.network.dialer("other", PeerCredentials{2, 1000, 1000}));
  EXPECT_FALSE(stranger.connect());
  stranger.disconnect();
}

TEST(ControlPlane, P18_TheSameKeyAndHolderExtendOneSession) {
  Site site;
  const auto first = site.session;
  site.world.run_for(seconds(500));
  site.open_session();
  EXPECT_EQ(site.session, first);
  site.world.run_for(seconds(500));
  EXPECT_TRUE(site.create());
  site.world.run_for(seconds(700));
  EXPECT_EQ(site.create().error().outcome, Outcome::kUnauthenticated);  // it ran out
  site.open_session();
  EXPECT_NE(site.session, first);
}

Task<void> revoke(MemoryStore& store, CredentialHash hash, WallTime now) {
  EXPECT_TRUE(co_await store.revoke_api_key(hash, now));
}

TEST(ControlPlane, P11_ARevokedKeyEndsItsSessionsEverywhere) {
  Site site;
  const auto id = site.create()->sandbox;
  const auto route = site.resolve(id)->route;
  const auto hash = *CredentialHash::from(identity::sha256(as_bytes(site.key)));
  ASSERT_TRUE(site.world.run(revoke(site.store, hash, site.clock.now())));
  EXPECT_EQ(site.mint(site.mint_request(route)).error().outcome, Outcome::kUnauthenticated);
  site.world.run_for(seconds(2));
  EXPECT_EQ(site.w1().ended, std::vector{site.session});
  EXPECT_EQ(site.w2().ended, std::vector{site.session});
  EXPECT_EQ(site.client->ended, std::vector{site.session});
  wire::SessionOpenRequest again;
  again.api_key = site.key;
  EXPECT_EQ(site.call<wire::SessionOpenResult>(Operation::kSessionOpen, again).error().outcome,
            Outcome::kUnauthenticated);
}

TEST(ControlPlane, P15_ResumeElsewhereOfASandboxOnAnUnreachableWorkerNamesIt) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  ASSERT_TRUE(site.pause(id));
  site.cut(kW1);
  const auto resumed = site.resume(id, kW2);
  ASSERT_FALSE(resumed);
  EXPECT_EQ(resumed.error().outcome, Outcome::kUnavailable);
  EXPECT_NE(resumed.error().message.find("worker w1 is unreachable"), std::string::npos)
      << resumed.error().message;
  EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
  const auto running = site.create(kW2)->sandbox;
  site.cut(kW2);
  const auto paused = site.pause(running);
  ASSERT_FALSE(paused);
  EXPECT_NE(paused.error().message.find("worker w2 is unreachable"), std::string::npos);
  EXPECT_EQ(site.get(running)->state, SandboxState::kRunning);
  site.connect_worker(kW1);
  site.connect_worker(kW2);
  site.world.run_for(seconds(5));
  EXPECT_TRUE(site.resume(id, kW2));
}

TEST(ControlPlane, P15_AKillThatCannotReachTheWorkerSaysSoAndIsDoneLater) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  site.cut(kW1);
  const auto killed = site.kill(id);
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().outcome, Outcome::kUnavailable);
  EXPECT_NE(killed.error().message.find("worker w1"), std::string::npos);
  EXPECT_EQ(site.get(id)->state, SandboxState::kKilling);
  site.connect_worker(kW1);
  site.world.run_for(seconds(5));
  EXPECT_EQ(site.get(id).error().outcome, Outcome::kNotFound);
  EXPECT_EQ(site.runtimes(), 0U);
}

TEST(ControlPlane, C094_APausedSandboxOnALostWorkerIsKilledWithoutResuming) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  ASSERT_TRUE(site.pause(id));
  site.cut(kW1);
  const auto killed = site.kill(id);
  ASSERT_TRUE(killed) << killed.error().message;
  EXPECT_EQ(killed->state, SandboxState::kKilled);
  EXPECT_EQ(site.w1().thaws, 0U);
  EXPECT_TRUE(site.kill(id));
  EXPECT_EQ(site.runtimes(), 1U);
  site.connect_worker(kW1);
  site.world.run_for(seconds(5));
  EXPECT_EQ(site.runtimes(), 0U);  // freed when the worker came back
}

TEST(ControlPlane, ID2_AFailedActivationUsesUpItsGeneration) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  ASSERT_TRUE(site.pause(id));
  site.w1().fail_install = frame::InstallOutcome::kBridgeFailed;
  const auto failed = site.resume(id);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().outcome, Outcome::kUnavailable);
  const auto rest = site.get(id);
  EXPECT_EQ(rest->state, SandboxState::kPaused);
  EXPECT_NE(rest->state_reason.find("bridge"), std::string::npos) << rest->state_reason;
  EXPECT_EQ(site.runtimes(), 1U);  // C088: the only copy is kept
  site.w1().failures[Operation::kNodeThaw] = {Outcome::kInternal, 1};
  EXPECT_FALSE(site.resume(id));
  const auto resumed = site.resume(id);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->generation.value, 4U);
}

TEST(ControlPlane, P15_ARefusedRedeliveryRetiresWhatTheFirstDeliveryInstalled) {
  for (const auto& worker : {kW1, kW2}) {
    Site site;
    const auto id = site.create(kW1)->sandbox;
    ASSERT_TRUE(site.pause(id));
    site.faults.die_at_name = "install.answered";  // installed, and nobody knows
    EXPECT_FALSE(site.resume(id, worker));
    ASSERT_TRUE(site.managers.at(worker)->installed.contains(id));
    site.managers.at(worker)->fail_install = frame::InstallOutcome::kBridgeFailed;
    site.restart_plane();
    EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
    EXPECT_FALSE(site.managers.at(worker)->installed.contains(id));
    const auto resumed = site.resume(id, kW1);
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_EQ(resumed->generation.value, 3U);
    site.world.run_for(seconds(5));
    EXPECT_EQ(site.runtimes(), 1U);
  }
}

TEST(ControlPlane, ID2_TheGenerationPassesWhatTheReceiverReports) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  ASSERT_TRUE(site.pause(id));
  site.w1().floors[id] = 41;  // a store restored from a backup knows less than its workers
  const auto resumed = site.resume(id);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->generation.value, 42U);
}

TEST(ControlPlane, C088_EachStepOfAResumeElsewhereMayFailAndNothingIsLost) {
  for (const auto& [worker, operation] :
       {std::pair{kW1, Operation::kNodePublish}, std::pair{kW2, Operation::kNodeStart},
        std::pair{kW2, Operation::kNodeStatus}}) {
    Site site;
    const auto id = site.create(kW1)->sandbox;
    ASSERT_TRUE(site.pause(id));
    site.managers.at(worker)->failures[operation] = {Outcome::kNoSpace, 1};
    ASSERT_FALSE(site.resume(id, kW2));
    EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
    site.world.run_for(seconds(5));
    EXPECT_EQ(site.runtimes(), 1U);
    const auto resumed = site.resume(id, kW2);
    ASSERT_TRUE(resumed) << resumed.error().message;
    site.world.run_for(seconds(5));
    EXPECT_EQ(site.runtimes(), 1U);
    ASSERT_TRUE(site.kill(id));
    EXPECT_TRUE(site.fleet.artifacts.empty());
  }
}

TEST(ControlPlane, LC1_AFailedStartIsAFailedSandboxWithItsReason) {
  Site site;
  site.w1().failures[Operation::kNodeStart] = {Outcome::kNotFound, 1};
  const auto created = site.create(kW1);
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().outcome, Outcome::kNotFound);  // of its template
  wire::SandboxListRequest request;
  request.session = site.session;
  const auto all = site.call<wire::SandboxListResult>(Operation::kSandboxList, request);
  ASSERT_EQ(all->sandboxes.size(), 1U);
  EXPECT_EQ(all->sandboxes[0].state, SandboxState::kFailed);  // C007: from stored state
  EXPECT_EQ(all->sandboxes[0].state_reason, "injected");
  EXPECT_TRUE(site.kill(all->sandboxes[0].sandbox));
}

TEST(ControlPlane, C089_AFailedFreezeLeavesTheSandboxRunning) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  site.w1().failures[Operation::kNodeFreeze] = {Outcome::kNoSpace, 1};
  EXPECT_EQ(site.pause(id).error().outcome, Outcome::kNoSpace);
  EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
  EXPECT_TRUE(site.resolve(id));
  EXPECT_TRUE(site.pause(id));
}

TEST(ControlPlane, LC1_LostAnswersAreAskedForAgainNotGuessed) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  site.w1().lose_answers = true;
  const auto paused = site.pause(id);
  ASSERT_FALSE(paused);
  EXPECT_EQ(paused.error().outcome, Outcome::kUnavailable);
  EXPECT_EQ(site.get(id)->state, SandboxState::kPausing);
  EXPECT_EQ(site.resolve(id).error().outcome, Outcome::kUnavailable);
  site.w1().lose_answers = false;
  site.world.run_for(seconds(10));
  EXPECT_EQ(site.get(id)->state, SandboxState::kPaused);
  EXPECT_TRUE(site.resume(id));
}

TEST(ControlPlane, C008_WhatAWorkerCannotProveIsLostWithAReasonAndFoundAgain) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  site.w1().serving = false;
  site.world.run_for(seconds(12));
  const auto lost = site.get(id);
  EXPECT_EQ(lost->state, SandboxState::kLost);
  EXPECT_FALSE(lost->state_reason.empty());
  EXPECT_EQ(site.resolve(id).error().outcome, Outcome::kUnavailable);
  site.w1().serving = true;
  site.world.run_for(seconds(12));
  EXPECT_EQ(site.get(id)->state, SandboxState::kRunning);
}

TEST(ControlPlane, LC3_RouteShowsWhatEachReceiverHasInstalled) {
  Site site;
  const auto id = site.create(kW1)->sandbox;
  site.cut(kW2);
  const auto route = site.call<wire::SandboxRouteResult>(Operation::kSandboxRoute,
                                                         wire::SandboxRequest{site.session, id});
  ASSERT_TRUE(route);
  ASSERT_TRUE(route->selected);
  EXPECT_EQ(route->selected->generation.value, 1U);
  ASSERT_EQ(route->receivers.size(), 2U);
  EXPECT_TRUE(route->receivers[0].reachable);
  EXPECT_EQ(route->receivers[0].route, route->selected);
  EXPECT_FALSE(route->receivers[1].reachable);
}

TEST(ControlPlane, P6_BundlesReachWorkersKeepTheirVersionAndGoPastAReceiversFloor) {
  Site site;
  ASSERT_TRUE(site.w1().bundle);
  EXPECT_EQ(site.w1().bundle->version.value, 1U);
  const auto until = site.w1().bundle->valid_until;
  site.world.run_for(seconds(130));
  EXPECT_EQ(site.w1().bundle->version.value, 1U);
  EXPECT_GT(site.w1().bundle->valid_until, until);
  site.restart_plane();
  EXPECT_EQ(site.w1().bundle->version.value, 1U);
  site.w1().refuse_bundle = identity::BundleRefusal::kOlderThanFloor;
  site.restart_plane();
  EXPECT_EQ(site.w1().bundle->version.value, 2U);
  // A new signing key: the old one verifies until its last capability has run out.
  site.signer = std::make_unique<TestSigner>(2);
  site.restart_plane();
  const auto& keys = site.w1().bundle->keys;
  EXPECT_EQ(site.w1().bundle->version.value, 3U);
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[0].state, identity::KeyState::kRetired);
  EXPECT_EQ(keys[1].state, identity::KeyState::kActive);
}

TEST(ControlPlane, PlacementTakesTheEmptierReachableWorkerAndHonoursTheWish) {
  Site site;
  EXPECT_EQ(site.create()->worker, kW1);
  EXPECT_EQ(site.create()->worker, kW2);
  EXPECT_EQ(site.create(kW2)->worker, kW2);
  EXPECT_EQ(site.create()->worker, kW1);
  EXPECT_EQ(site.create(*WorkerId::parse("w9")).error().outcome, Outcome::kInvalidArgument);
  site.cut(kW1);
  EXPECT_EQ(site.create()->worker, kW2);
  const auto wished = site.create(kW1);
  EXPECT_EQ(wished.error().outcome, Outcome::kUnavailable);
  EXPECT_NE(wished.error().message.find("worker w1 is unreachable"), std::string::npos);
}

TEST(ControlPlane, BadRequestsAreRefusedClearly) {
  Site site;
  EXPECT_EQ(site.raw_call(Operation::kSandboxCreate, to_bytes("junk")).error().outcome,
            Outcome::kInvalidArgument);
  EXPECT_EQ(site.create(std::nullopt, 0).error().outcome, Outcome::kInvalidArgument);
  EXPECT_EQ(site.create(std::nullopt, 86'401).error().outcome, Outcome::kInvalidArgument);
  EXPECT_TRUE(site.create());
}

}  // namespace
}  // namespace space::control_plane
