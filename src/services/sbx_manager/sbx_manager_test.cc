#include "services/sbx_manager/sbx_manager.h"

#include <gtest/gtest.h>

#include "base/result.h"
#include "core/identity/testing/samples.h"
#include "services/sbx_manager/testing/fake_machine.h"

namespace space::sbx_manager {
namespace {

using identity::testing::filled;
using testing::FakeMachine;
using testing::MemoryRecordStore;

constexpr std::uint32_t kNodeApiUid = 64'001;
constexpr std::uint32_t kOtherNodeApiUid = 64'002;
const auto kHolder = filled<identity::HolderId>(0x41);
const auto kKey = filled<identity::PublicKey>(0xe1);
const auto kRetiredKey = filled<identity::PublicKey>(0xe2);

class EventLog final : public Log {
 public:
  void event(Level, std::string_view name, std::initializer_list<Field>) override {
    ++counts[std::string(name)];
  }
  std::map<std::string, int> counts;
};

struct Peer {
  std::unique_ptr<hop::Connection> connection;
  std::unique_ptr<hop::Mux> mux;
};

std::string text_of(const hop::ChannelEvent& event) {
  const auto refusal = Overload{
      [](const frame::Refresh& r) { return "refresh " + std::string(to_string(r.reason)); },
      [](const frame::Denied& d) { return "denied " + std::string(to_string(d.reason)); },
      [](const frame::Unavailable& u) { return "unavailable " + std::string(to_string(u.reason)); },
  };
  return std::visit(
      Overload{
          [](const frame::Admitted&) { return std::string("admitted"); },
          [&](const frame::Refused& r) { return std::visit(refusal, r.verdict); },
          [](const frame::Data& d) { return "data " + to_text(d.bytes); },
          [](const frame::End&) { return std::string("end"); },
          [](const frame::Reset& r) {
            return "reset " + std::string(to_string(r.code)) +
                   (r.forwarded == frame::Forwarded::kSome      ? " some"
                    : r.forwarded == frame::Forwarded::kUnknown ? " unknown"
                                                                : " none");
          },
          [](const frame::Revoked& r) { return "revoked " + std::string(to_string(r.reason)); },
          [](const frame::Renewed& r) {
            return r.refused ? "not renewed " + std::string(to_string(*r.refused))
                             : std::string("renewed");
          },
          [](const hop::Lost&) { return std::string("lost"); },
          [](const hop::TimedOut&) { return std::string("timed out"); },
          [](const auto&) { return std::string("other"); },
      },
      event);
}

class SbxManagerTest : public ::testing::Test {
 protected:
  SbxManagerTest() {
    records_.timer = &world_;
    start_manager();
    control_ = connect("control", frame::Role::kControlPlane, 0);
    install_bundle(1);
  }
  ~SbxManagerTest() override {
    for (auto& peer : peers_) peer->connection->close();
    stop_manager();
    EXPECT_TRUE(world_.run(machine_.stop()));
    EXPECT_TRUE(world_.run(tasks_.stop()));
  }

  void start_manager() {
    Options options;
    options.worker = *identity::WorkerId::parse("w1");
    options.holders[kNodeApiUid] = kHolder;
    options.holders[kOtherNodeApiUid] = filled<identity::HolderId>(0x42);
    options.max_streams = 8;
    manager_ = std::make_unique<SbxManager>(SbxManager::World{machine_, machine_, records_, world_,
                                                              clock_, entropy_, signatures_, log_},
                                            options);
    hop_ = network_.listen("w1", "sim:w1/hop");
    control_listener_ = network_.listen("w1", "sim:w1/control");
    ASSERT_TRUE(world_.run(recover()));
    tasks_.spawn("hop", manager_->serve_hop(*hop_));
    tasks_.spawn("control", manager_->serve_control(*control_listener_));
    settle();
  }
  Task<void> recover() {
    const auto done = co_await manager_->recover();
    EXPECT_TRUE(done);
  }
  void stop_manager() {
    hop_->close();
    control_listener_->close();
    EXPECT_TRUE(world_.run(manager_->stop()));
    settle();
    manager_.reset();
  }
  void restart_manager() {
    stop_manager();
    start_manager();
    control_ = connect("control", frame::Role::kControlPlane, 0);
    install_bundle(1);
  }
  void settle() { world_.run_for(std::chrono::milliseconds(200)); }

  Peer* connect(std::string listener, frame::Role role, std::uint32_t uid) {
    auto peer = std::make_unique<Peer>();
    auto* raw = peer.get();
    peers_.push_back(std::move(peer));
    tasks_.spawn("peer", run_peer(*raw, "sim:w1/" + listener, role, uid));
    settle();
    return raw;
  }
  Task<void> run_peer(Peer& peer, std::string address, frame::Role role, std::uint32_t uid) {
    PeerCredentials credentials;
    credentials.pid = 1;
    credentials.uid = uid;
    const auto dialer = network_.dialer("client", credentials);
    auto stream = co_await dialer->dial(address, world_.now() + std::chrono::seconds(1));
    if (!stream) co_return;
    peer.connection = std::make_unique<hop::Connection>(
        *std::move(stream), world_,
        hop::Connection::Options{role, frame::Role::kManager, true, "peer", {}, true});
    const auto hello = co_await peer.connection->handshake(world_.now() + std::chrono::seconds(1));
    if (!hello) co_return;
    peer.mux = std::make_unique<hop::Mux>(*peer.connection, world_);
    co_await peer.mux->run();
  }
  Peer& node_api(std::uint32_t uid = kNodeApiUid) {
    auto& peer = node_apis_[uid];
    if (peer == nullptr || peer->connection->closed()) {
      peer = connect("hop", frame::Role::kNodeApi, uid);
    }
    return *peer;
  }

  // ---- control plane ----
  Task<void> exchange_task(frame::Payload payload, std::optional<frame::Payload>& answer) {
    answer = co_await control_->mux->exchange(std::move(payload),
                                              world_.now() + std::chrono::seconds(60));
  }
  template <class Answer>
  std::optional<Answer> exchange(frame::Payload payload) {
    std::optional<frame::Payload> answer;
    EXPECT_TRUE(world_.run(exchange_task(std::move(payload), answer)));
    if (!answer) return std::nullopt;
    return std::get<Answer>(*answer);
  }
  Task<void> call_task(frame::Open open, frame::End& end) {
    end = co_await hop::call(*control_->mux, std::move(open),
                             world_.now() + std::chrono::seconds(60));
  }
  template <class Request>
  frame::End node(policy::Operation operation, const Request& request) {
    frame::Open open;
    open.operation = operation;
    open.metadata = wire::encode(request);
    frame::End end;
    EXPECT_TRUE(world_.run(call_task(std::move(open), end)));
    return end;
  }
  void install_bundle(std::uint64_t version,
                      identity::KeyState state = identity::KeyState::kActive) {
    identity::KeyBundle bundle;
    bundle.version = {version};
    bundle.issuer = *identity::Issuer::parse("control");
    bundle.valid_until = clock_.now() + identity::kBundleValidity;
    identity::BundleKey key{{1}, state, kKey, {}};
    identity::BundleKey retired{
        {2}, identity::KeyState::kRetired, kRetiredKey, identity::testing::kIssuedAt};
    identity::BundleKey spare{
        {3}, identity::KeyState::kActive, filled<identity::PublicKey>(0xe3), {}};
    bundle.keys = {key, retired, spare};
    const auto ack = exchange<frame::BundleAck>(frame::Bundle{identity::encode_bundle(bundle)});
    ASSERT_TRUE(ack);
    EXPECT_FALSE(ack->refused);
  }
  static identity::RouteIdentity route(const std::string& sandbox, std::uint64_t generation) {
    identity::RouteIdentity route;
    route.sandbox = *identity::SandboxId::parse(sandbox);
    route.generation = {generation};
    route.worker = *identity::WorkerId::parse("w1");
    route.activation = filled<identity::ActivationId>(static_cast<std::uint8_t>(generation));
    return route;
  }
  static Bytes secret(std::uint64_t generation) {
    return Bytes(32, static_cast<std::byte>(generation));
  }
  std::string start(const identity::RouteIdentity& route) {
    wire::NodeStartRequest request;
    request.first_public_pid = 1'000;
    request.route = route;
    request.template_name = "host";
    request.secret = secret(route.generation.value);
    const auto end = node(policy::Operation::kNodeStart, request);
    EXPECT_EQ(end.outcome, frame::Outcome::kOk) << end.message;
    return wire::decode<wire::NodeInstance>(end.result)->handle;
  }
  static identity::RuntimeRecord record(const identity::RouteIdentity& route, std::string handle) {
    identity::RuntimeRecord record;
    record.route = route;
    record.owner = *identity::OwnerId::parse("replica-1");
    record.operation = filled<identity::OperationId>(9);
    record.first_public_pid = 1'000;
    record.runtime_handle = std::move(handle);
    return record;
  }
  frame::Installed install(const identity::RuntimeRecord& record) {
    frame::Install request;
    request.record = identity::encode_record(record);
    request.secret = secret(record.route.generation.value);
    return exchange<frame::Installed>(std::move(request)).value_or(frame::Installed{});
  }
  // Starts and installs an execution.
  identity::RuntimeRecord serve(const std::string& sandbox, std::uint64_t generation) {
    const auto where = route(sandbox, generation);
    const auto made = record(where, start(where));
    EXPECT_EQ(install(made).outcome, frame::InstallOutcome::kInstalled);
    return made;
  }

  // ---- node-api ----
  identity::Claims claims(const identity::RouteIdentity& route) const {
    auto claims = identity::testing::sample_claims();
    claims.route = route;
    claims.issued_at = clock_.now();
    claims.expires_at = claims.issued_at + identity::kCapabilityLifetime;
    return claims;
  }
  static frame::Open open_with(const identity::Claims& claims, policy::Operation operation,
                               const identity::PublicKey& key = kKey) {
    frame::Open open;
    open.operation = operation;
    open.sandbox = claims.route.sandbox;
    open.authority = frame::Capability{identity::testing::hash_seal(claims, key).bytes};
    return open;
  }
  Task<void> next_task(std::shared_ptr<hop::Channel> channel, hop::ChannelEvent& event) {
    event = co_await channel->next(world_.now() + std::chrono::seconds(30));
  }
  std::string next(const std::shared_ptr<hop::Channel>& channel) {
    hop::ChannelEvent event = hop::TimedOut{};
    EXPECT_TRUE(world_.run(next_task(channel, event)));
    return text_of(event);
  }
  std::shared_ptr<hop::Channel> open(frame::Open request) {
    return node_api().mux->open(std::move(request));
  }
  std::string verdict(frame::Open request) { return next(open(std::move(request))); }
  // The row of the acid test: what a read is answered, with no byte forwarded when it is refused.
  std::string read(const identity::Claims& claims, const identity::PublicKey& key = kKey) {
    return verdict(open_with(claims, policy::Operation::kFileRead, key));
  }
  // A stream that is open and echoes.
  std::shared_ptr<hop::Channel> stream(const identity::RouteIdentity& route) {
    auto channel = open(open_with(claims(route), policy::Operation::kProcessStart));
    EXPECT_EQ(next(channel), "admitted");
    return channel;
  }
  Task<void> write_task(std::shared_ptr<hop::Channel> channel, Bytes bytes) {
    co_await channel->write(bytes);
  }
  void write(const std::shared_ptr<hop::Channel>& channel, std::string_view text) {
    EXPECT_TRUE(world_.run(write_task(channel, to_bytes(text))));
  }

  sim::World world_{1};
  sim::SimClock clock_{world_};
  sim::SimEntropy entropy_{2};
  EventLog log_;
  identity::testing::KeyedHashVerifier signatures_;
  MemoryRecordStore records_;
  FakeMachine machine_{world_, entropy_, log_};
  sim::SimNetwork network_{world_};
  TaskScope tasks_{world_};
  std::unique_ptr<SbxManager> manager_;
  std::unique_ptr<Listener> hop_;
  std::unique_ptr<Listener> control_listener_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<std::uint32_t, Peer*> node_apis_;
  Peer* control_ = nullptr;
};

// ---- the acid table (PR-4) ----

TEST_F(SbxManagerTest, AMatchingOperationIsAdmittedAndRelayed) {
  const auto served = serve("alpha", 7);
  const auto channel = open(open_with(claims(served.route), policy::Operation::kFileRead));
  EXPECT_EQ(next(channel), "admitted");
  EXPECT_EQ(next(channel), "data 0123456789");
  EXPECT_EQ(next(channel), "end");
  EXPECT_EQ(machine_.opens(), 1U);
  EXPECT_EQ(manager_->leases().size(), 0U);
}

TEST_F(SbxManagerTest, PR4_RCV1_EveryWrongSelectionIsRefusedBeforeAByteIsForwarded) {
  serve("alpha", 7);
  const auto served = serve("alpha", 8);
  const auto good = claims(served.route);
  EXPECT_EQ(read(claims(route("alpha", 7))), "refresh stale");    // ID-4
  EXPECT_EQ(read(claims(route("alpha", 9))), "refresh not_yet");  // 8 at the worker serving 7
  EXPECT_EQ(read(claims(route("beta", 1))), "refresh not_here");

  auto other = good;
  other.holder = filled<identity::HolderId>(0x77);
  EXPECT_EQ(read(other), "denied wrong_holder");
  auto addressed = open_with(good, policy::Operation::kFileRead);
  addressed.sandbox = identity::SandboxId::parse("beta");
  EXPECT_EQ(verdict(addressed), "denied wrong_sandbox");
  other = good;
  other.attempt = {2};
  EXPECT_EQ(read(other), "refresh stale");
  other = good;
  other.route.activation = filled<identity::ActivationId>(0x99);
  EXPECT_EQ(read(other), "refresh conflict");
  EXPECT_EQ(log_.counts["open.conflict"], 1);
  other = good;
  other.issued_at -= std::chrono::seconds(136);
  other.expires_at -= std::chrono::seconds(136);
  EXPECT_EQ(read(other), "denied expired");
  other = good;
  other.issued_at += std::chrono::seconds(30);
  other.expires_at += std::chrono::seconds(30);
  EXPECT_EQ(read(other), "denied not_yet_valid");
  other = identity::testing::sample_port_claims();
  other.route = served.route;
  other.issued_at = good.issued_at;
  other.expires_at = good.expires_at;
  EXPECT_EQ(read(other), "denied wrong_purpose");
  other = good;
  other.key = {9};
  EXPECT_EQ(read(other), "denied unknown_key");
  other = good;
  other.key = {2};
  EXPECT_EQ(read(other, kRetiredKey), "denied retired_key");
  EXPECT_EQ(read(good, kRetiredKey), "denied bad_signature");
  EXPECT_EQ(verdict(open_with(good, policy::Operation::kFileRemove)), "denied access_not_granted");

  EXPECT_EQ(machine_.opens(), 0U);
  EXPECT_EQ(read(good), "admitted");
  EXPECT_EQ(machine_.opens(), 1U);
}

TEST_F(SbxManagerTest, P4_ACachedSignatureStillMeetsTheHolderCheck) {
  const auto served = serve("alpha", 7);
  const auto sealed = claims(served.route);
  EXPECT_EQ(read(sealed), "admitted");
  auto channel =
      node_api(kOtherNodeApiUid).mux->open(open_with(sealed, policy::Operation::kFileRead));
  EXPECT_EQ(next(channel), "denied wrong_holder");
}

TEST_F(SbxManagerTest, TR2_WithoutAKeyBundleNothingVerifies) {
  const auto served = serve("alpha", 7);
  world_.run_for(identity::kBundleValidity);
  EXPECT_EQ(read(claims(served.route)), "denied no_bundle");
}

TEST_F(SbxManagerTest, P2_AReceiverWithAnUnhealthyClockRefusesEverything) {
  const auto served = serve("alpha", 7);
  frame::Lease lease{15'000, clock_.now() - std::chrono::milliseconds(2'600)};
  auto ack = exchange<frame::LeaseAck>(lease);
  ASSERT_TRUE(ack);
  EXPECT_FALSE(ack->clock_healthy);
  EXPECT_EQ(ack->clock_offset_ms, 2'600);
  EXPECT_EQ(read(claims(served.route)), "denied clock_unhealthy");
  lease.now = clock_.now();
  EXPECT_TRUE(exchange<frame::LeaseAck>(lease)->clock_healthy);
  EXPECT_EQ(read(claims(served.route)), "admitted");
}

TEST_F(SbxManagerTest, P1_APeerWithoutAConfiguredHolderIsClosed) {
  auto* stranger = connect("hop", frame::Role::kNodeApi, 12'345);
  EXPECT_EQ(stranger->mux, nullptr);
  auto* impostor = connect("control", frame::Role::kControlPlane, kNodeApiUid);
  EXPECT_EQ(impostor->mux, nullptr);
}

// ---- leases ----

TEST_F(SbxManagerTest, ST1_P14_AnInstallCutsTheStreamsOfTheOldExecution) {
  const auto old = serve("alpha", 7);
  const auto channel = stream(old.route);
  write(channel, "before");
  EXPECT_EQ(next(channel), "data before");
  serve("alpha", 8);
  EXPECT_EQ(next(channel), "revoked replaced");
  EXPECT_EQ(manager_->leases().size(), 0U);
}

TEST_F(SbxManagerTest, P11_ARetireCutsWithoutASuccessor) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  const auto retired = exchange<frame::Retired>(frame::Retire{served.route, {}});
  ASSERT_TRUE(retired);
  EXPECT_TRUE(retired->was_installed);
  EXPECT_EQ(retired->floor, 7U);
  EXPECT_EQ(next(channel), "revoked retired");
  EXPECT_EQ(read(claims(served.route)), "refresh not_here");
}

TEST_F(SbxManagerTest, P13_ARetireOfAnotherIdentityDoesNothing) {
  const auto served = serve("alpha", 7);
  auto other = served.route;
  other.activation = filled<identity::ActivationId>(0x99);
  EXPECT_FALSE(exchange<frame::Retired>(frame::Retire{other, {}})->was_installed);
  EXPECT_EQ(read(claims(served.route)), "admitted");
}

TEST_F(SbxManagerTest, P12_AnAttemptChangeKeepsStreamsAndEpochButNotOldOpenings) {
  auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  const auto epoch = manager_->status({}).sandboxes.at(0).epoch;
  served.attempt = {2};
  EXPECT_EQ(install(served).outcome, frame::InstallOutcome::kInstalled);
  write(channel, "still");
  EXPECT_EQ(next(channel), "data still");
  EXPECT_EQ(manager_->status({}).sandboxes.at(0).epoch, epoch);
  EXPECT_EQ(read(claims(served.route)), "refresh stale");
  auto fresh = claims(served.route);
  fresh.attempt = {2};
  EXPECT_EQ(read(fresh), "admitted");
}

TEST_F(SbxManagerTest, P11_C021_AStreamEndsWithItsCapabilityUnlessRenewed) {
  const auto served = serve("alpha", 7);
  const auto short_lived = stream(served.route);
  const auto renewed = stream(served.route);
  world_.run_for(std::chrono::seconds(100));
  const auto fresh = identity::testing::hash_seal(claims(served.route), kKey).bytes;
  renewed->send(frame::Renew{frame::Capability{fresh}});
  EXPECT_EQ(next(renewed), "renewed");
  world_.run_for(std::chrono::seconds(40));
  EXPECT_EQ(next(short_lived), "revoked expired");
  write(renewed, "still");
  EXPECT_EQ(next(renewed), "data still");
}

TEST_F(SbxManagerTest, P10_EveryForwardChecksTheLeaseItself) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  // The calendar clock moves, and no timer has run since.
  clock_.set_offset(std::chrono::seconds(136));
  write(channel, "late");
  EXPECT_EQ(next(channel), "revoked expired");
  EXPECT_EQ(machine_.instances.at("alpha.7").data_bytes, 0U);
}

TEST_F(SbxManagerTest, P11_ARenewalOfAnotherSessionIsRefused) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  auto other = claims(served.route);
  other.session = filled<identity::SessionId>(0x99);
  channel->send(frame::Renew{frame::Capability{identity::testing::hash_seal(other, kKey).bytes}});
  EXPECT_EQ(next(channel), "not renewed session_mismatch");
}

TEST_F(SbxManagerTest, P11_AnEndedSessionIsCutAndOpensNothingMore) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  control_->connection->send(frame::Frame{0, frame::SessionEnded{claims(served.route).session}});
  EXPECT_EQ(next(channel), "revoked session_revoked");
  EXPECT_EQ(read(claims(served.route)), "denied session_revoked");
}

TEST_F(SbxManagerTest, P6_ACompromisedKeyCutsWhatWasOpenedUnderIt) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  install_bundle(2, identity::KeyState::kCompromised);
  EXPECT_EQ(next(channel), "revoked key_compromised");
  EXPECT_EQ(read(claims(served.route)), "denied compromised_key");
  EXPECT_EQ(records_.bundle.value, 2U);
}

TEST_F(SbxManagerTest, ANodeApiThatLeavesEndsItsOperations) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  node_api().connection->close();
  settle();
  EXPECT_EQ(manager_->leases().size(), 0U);
  EXPECT_EQ(machine_.instances.at("alpha.7").resets, 1U);
}

TEST_F(SbxManagerTest, P26_MoreStreamsThanAllowedAreRefusedAsOverload) {
  const auto served = serve("alpha", 7);
  std::vector<std::shared_ptr<hop::Channel>> channels;
  for (int i = 0; i < 8; ++i) channels.push_back(stream(served.route));
  EXPECT_EQ(read(claims(served.route)), "unavailable overloaded");
  channels.pop_back();
  settle();
  EXPECT_EQ(read(claims(served.route)), "admitted");
}

// ---- installs ----

TEST_F(SbxManagerTest, RCV3_AnInstallNeverGoesBackwards) {
  const auto old = serve("alpha", 7);
  serve("alpha", 8);
  EXPECT_EQ(install(old).outcome, frame::InstallOutcome::kBehindFloor);
  EXPECT_EQ(read(claims(route("alpha", 8))), "admitted");
}

TEST_F(SbxManagerTest, P13_TheFloorOutlivesTheRecordAndARestart) {
  const auto served = serve("alpha", 7);
  EXPECT_TRUE(exchange<frame::Retired>(frame::Retire{served.route, {}})->was_installed);
  restart_manager();
  EXPECT_EQ(install(served).outcome, frame::InstallOutcome::kBehindFloor);
}

TEST_F(SbxManagerTest, P13_ARedeliveredInstallChangesNothing) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  const auto launches = machine_.launches;
  EXPECT_EQ(install(served).outcome, frame::InstallOutcome::kInstalled);
  EXPECT_EQ(machine_.launches, launches);
  write(channel, "still");
  EXPECT_EQ(next(channel), "data still");
}

TEST_F(SbxManagerTest, P13_EqualGenerationWithOtherPlacementIsRefused) {
  auto served = serve("alpha", 7);
  served.route.activation = filled<identity::ActivationId>(0x99);
  EXPECT_EQ(install(served).outcome, frame::InstallOutcome::kConflicting);
  served.route.worker = *identity::WorkerId::parse("w2");
  EXPECT_EQ(install(served).outcome, frame::InstallOutcome::kWrongWorker);
}

TEST_F(SbxManagerTest, P23_AGuestThatCannotProveItselfIsNotInstalled) {
  const auto where = route("alpha", 7);
  const auto made = record(where, start(where));
  std::array<std::byte, 32> other{};
  machine_.instances.at("alpha.7").secret = GuestSecret(std::span<const std::byte, 32>(other));
  EXPECT_EQ(install(made).outcome, frame::InstallOutcome::kBridgeFailed);
  EXPECT_TRUE(records_.records.empty());
  EXPECT_EQ(read(claims(where)), "refresh not_here");
}

TEST_F(SbxManagerTest, P13_WithoutADurableRecordTheOldExecutionServesOn) {
  const auto old = serve("alpha", 7);
  const auto channel = stream(old.route);
  const auto where = route("alpha", 8);
  const auto next_record = record(where, start(where));
  records_.fail = true;
  EXPECT_EQ(install(next_record).outcome, frame::InstallOutcome::kStoreFailed);
  write(channel, "still");
  EXPECT_EQ(next(channel), "data still");
  EXPECT_EQ(read(claims(where)), "refresh not_yet");
}

TEST_F(SbxManagerTest, NothingIsInstalledWithoutItsRuntime) {
  EXPECT_EQ(install(record(route("alpha", 7), "alpha.7")).outcome,
            frame::InstallOutcome::kNoRuntime);
}

// ---- bridge connections ----

TEST_F(SbxManagerTest, P19_ALostBridgeSaysWhatWasForwardedAndIsNotReplacedSilently) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  const auto launches = machine_.launches;
  machine_.kill_bridges();
  EXPECT_EQ(next(channel), "reset connection_lost some");
  EXPECT_EQ(machine_.launches, launches);
  EXPECT_EQ(read(claims(served.route)), "admitted");  // a new one, verified anew (BR-3)
  EXPECT_EQ(machine_.launches, launches + 1);
}

TEST_F(SbxManagerTest, OpeningsThatWaitShareOneNewBridge) {
  const auto served = serve("alpha", 7);
  machine_.kill_bridges();
  settle();
  machine_.launch_time = std::chrono::milliseconds(500);
  const auto launches = machine_.launches;
  std::vector<std::shared_ptr<hop::Channel>> channels;
  for (int i = 0; i < 5; ++i) {
    channels.push_back(open(open_with(claims(served.route), policy::Operation::kFileRead)));
  }
  for (const auto& channel : channels) EXPECT_EQ(next(channel), "admitted");
  EXPECT_EQ(machine_.launches, launches + 1);
}

TEST_F(SbxManagerTest, AnOpeningDoesNotWaitForABridgeForEver) {
  const auto served = serve("alpha", 7);
  machine_.kill_bridges();
  settle();
  machine_.launch_time = std::chrono::seconds(20);
  EXPECT_EQ(read(claims(served.route)), "unavailable no_bridge");
  world_.run_for(std::chrono::seconds(30));
}

TEST_F(SbxManagerTest, P10_AnInstallWhileAnOpeningWaitsRefusesIt) {
  const auto old = serve("alpha", 7);
  const auto where = route("alpha", 8);
  const auto successor = record(where, start(where));
  machine_.kill_bridges();
  settle();
  machine_.launch_time = std::chrono::seconds(2);
  const auto channel = open(open_with(claims(old.route), policy::Operation::kFileRead));
  settle();
  machine_.launch_time = std::chrono::seconds(0);
  EXPECT_EQ(install(successor).outcome, frame::InstallOutcome::kInstalled);
  EXPECT_EQ(next(channel), "refresh stale");
  EXPECT_EQ(machine_.opens(), 0U);
  world_.run_for(std::chrono::seconds(30));
  EXPECT_EQ(read(claims(where)), "admitted");
}

TEST_F(SbxManagerTest, ST2_AStreamIsOpenedAgainstTheDurableRecord) {
  const auto served = serve("alpha", 7);
  const auto reads = records_.reads;
  EXPECT_EQ(read(claims(served.route)), "admitted");
  EXPECT_EQ(records_.reads, reads);
  stream(served.route);
  EXPECT_EQ(records_.reads, reads + 1);
  records_.records.at(served.route.sandbox).record.attempt = {5};
  const auto channel = open(open_with(claims(served.route), policy::Operation::kProcessStart));
  EXPECT_EQ(next(channel), "unavailable installing");
}

TEST_F(SbxManagerTest, ST2_ARetireDuringTheReadRefusesTheStream) {
  const auto served = serve("alpha", 7);
  records_.slow_read = std::chrono::seconds(1);
  const auto channel = open(open_with(claims(served.route), policy::Operation::kProcessStart));
  settle();
  EXPECT_TRUE(exchange<frame::Retired>(frame::Retire{served.route, {}})->was_installed);
  EXPECT_EQ(next(channel), "unavailable installing");
  EXPECT_EQ(machine_.opens(), 0U);
}

// ---- restarts ----

TEST_F(SbxManagerTest, RCV6_ARestartedManagerProvesAgainWhatItServes) {
  const auto served = serve("alpha", 7);
  restart_manager();
  EXPECT_TRUE(manager_->status({}).sandboxes.at(0).serving);
  EXPECT_EQ(read(claims(served.route)), "admitted");
}

TEST_F(SbxManagerTest, RCV6_WhatCannotBeProvedIsKeptButNotServed) {
  const auto served = serve("alpha", 7);
  ++machine_.instances.at("alpha.7").facts.guest_process.start_time_ticks;
  restart_manager();
  const auto status = manager_->status({});
  EXPECT_FALSE(status.sandboxes.at(0).serving);
  EXPECT_EQ(status.sandboxes.at(0).installed, served.route);
  EXPECT_TRUE(status.sandboxes.at(0).reason.starts_with("lost: ")) << status.sandboxes.at(0).reason;
  EXPECT_EQ(read(claims(served.route)), "unavailable no_bridge");
  EXPECT_EQ(machine_.opens(), 0U);
}

TEST_F(SbxManagerTest, RCV6_AnotherGuestUnderTheSameHandleIsNotAdopted) {
  const auto served = serve("alpha", 7);
  std::array<std::byte, 32> other{};
  machine_.instances.at("alpha.7").secret = GuestSecret(std::span<const std::byte, 32>(other));
  restart_manager();
  EXPECT_EQ(read(claims(served.route)), "unavailable no_bridge");
}

TEST_F(SbxManagerTest, P23_AnotherBootWithinAnIncarnationIsLost) {
  const auto served = serve("alpha", 7);
  machine_.instances.at("alpha.7").boot_id = "another";
  machine_.kill_bridges();
  settle();
  EXPECT_EQ(read(claims(served.route)), "unavailable no_bridge");
  EXPECT_TRUE(manager_->status({}).sandboxes.at(0).reason.starts_with("lost: "));
}

// ---- node operations ----

TEST_F(SbxManagerTest, P35_AFreezeRefusesNewOperationsAndCutsTheOldOnesFirst) {
  const auto served = serve("alpha", 7);
  const auto channel = stream(served.route);
  EXPECT_EQ(node(policy::Operation::kNodeFreeze, wire::NodeFreezeRequest{served.route}).outcome,
            frame::Outcome::kOk);
  EXPECT_EQ(next(channel), "revoked draining");
  EXPECT_EQ(read(claims(served.route)), "unavailable draining");
  EXPECT_TRUE(machine_.instances.at("alpha.7").facts.frozen);
  restart_manager();  // still frozen, still not serving
  EXPECT_EQ(read(claims(served.route)), "unavailable draining");
}

TEST_F(SbxManagerTest, P23_P25_AThawRekeysTheGuestAndServesAsTheNewExecution) {
  const auto parked = serve("alpha", 7);
  EXPECT_EQ(node(policy::Operation::kNodeFreeze, wire::NodeFreezeRequest{parked.route}).outcome,
            frame::Outcome::kOk);
  EXPECT_TRUE(exchange<frame::Retired>(frame::Retire{parked.route, {}})->was_installed);
  wire::NodeThawRequest thaw;
  thaw.parked = parked.route;
  thaw.route = route("alpha", 8);
  thaw.handle = "alpha.7";
  thaw.old_secret = secret(7);
  thaw.secret = secret(8);
  thaw.first_public_pid = 20'000;
  EXPECT_EQ(node(policy::Operation::kNodeThaw, thaw).outcome, frame::Outcome::kOk);
  EXPECT_EQ(machine_.instances.at("alpha.7").route, thaw.route);
  // A repeated request, as after a lost answer: the guest knows the new secret only.
  EXPECT_EQ(node(policy::Operation::kNodeThaw, thaw).outcome, frame::Outcome::kOk);
  EXPECT_EQ(install(record(thaw.route, "alpha.7")).outcome, frame::InstallOutcome::kInstalled);
  EXPECT_EQ(read(claims(parked.route)), "refresh stale");
  EXPECT_EQ(read(claims(thaw.route)), "admitted");
}

TEST_F(SbxManagerTest, AThawThatCannotRekeyLeavesTheInstanceParked) {
  const auto parked = serve("alpha", 7);
  EXPECT_EQ(node(policy::Operation::kNodeFreeze, wire::NodeFreezeRequest{parked.route}).outcome,
            frame::Outcome::kOk);
  EXPECT_TRUE(exchange<frame::Retired>(frame::Retire{parked.route, {}})->was_installed);
  wire::NodeThawRequest thaw;
  thaw.parked = parked.route;
  thaw.route = route("alpha", 8);
  thaw.handle = "alpha.7";
  thaw.old_secret = secret(5);
  thaw.secret = secret(8);
  EXPECT_EQ(node(policy::Operation::kNodeThaw, thaw).outcome, frame::Outcome::kUnavailable);
  EXPECT_TRUE(machine_.instances.at("alpha.7").facts.frozen);
}

TEST_F(SbxManagerTest, AnInstalledRuntimeIsNotDestroyed) {
  const auto served = serve("alpha", 7);
  wire::NodeDestroyRequest destroy;
  destroy.handle = "alpha.7";
  EXPECT_EQ(node(policy::Operation::kNodeDestroy, destroy).outcome, frame::Outcome::kConflict);
  EXPECT_TRUE(exchange<frame::Retired>(frame::Retire{served.route, {}})->was_installed);
  EXPECT_EQ(node(policy::Operation::kNodeDestroy, destroy).outcome, frame::Outcome::kOk);
  EXPECT_TRUE(machine_.instances.empty());
}

TEST_F(SbxManagerTest, LC3_StatusTellsWhatIsInstalled) {
  const auto served = serve("alpha", 7);
  const auto end = node(policy::Operation::kNodeStatus, wire::NodeStatusRequest{});
  const auto status = wire::decode<wire::NodeStatusResult>(end.result);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->bundle_version, 1U);
  ASSERT_EQ(status->sandboxes.size(), 1U);
  EXPECT_EQ(status->sandboxes[0].installed, served.route);
  EXPECT_TRUE(status->sandboxes[0].serving);
}

}  // namespace
}  // namespace space::sbx_manager
