#include "services/spaced_host/bridge.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "services/hop/guest_proof.h"
#include "sim/network.h"

namespace space::spaced_host {
namespace {

namespace frame = hop::frame;

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

GuestSecret secret(std::uint8_t fill) {
  std::array<std::byte, 32> bytes{};
  bytes.fill(std::byte{fill});
  return GuestSecret(std::span<const std::byte, 32>(bytes));
}

identity::RouteIdentity route() {
  identity::RouteIdentity route;
  route.sandbox = *identity::SandboxId::parse("abcdefghij0123456789");
  route.generation = {7};
  route.worker = *identity::WorkerId::parse("w1");
  return route;
}

// A guest that follows the protocol up to a point of the test's choice.
struct GuestScript {
  std::string connect_answer = "OK 1073741824\n";
  bool answer_connect = true;
  std::uint8_t secret_fill = 1;
  bool old_nonce = false;  // proves with the nonce of another connection
};

class Sink final : public hop::FrameSink {
 public:
  void on_frame(frame::Frame received) override { frames.push_back(std::move(received)); }
  void on_data(frame::StreamId stream, frame::DataView data) override {
    frames.push_back({stream, frame::Data{data.offset, {data.bytes.begin(), data.bytes.end()}}});
  }
  void on_close(hop::CloseCause cause) override { closed = cause; }
  std::vector<frame::Frame> frames;
  std::optional<hop::CloseCause> closed;
};

// The bridge between a manager's end and a guest's end, over simulated links.
class BridgeTest : public ::testing::Test {
 protected:
  BridgeTest() : network_(world_) {
    auto [bridge_up, manager] = network_.pair();
    auto [bridge_down, guest] = network_.pair();
    bridge_ = std::make_unique<Bridge>(std::move(bridge_up), std::move(bridge_down),
                                       Bridge::World{world_, entropy_, log_});
    manager_ = std::make_unique<hop::Connection>(
        std::move(manager), world_,
        hop::Connection::Options{
            frame::Role::kManager, frame::Role::kBridge, false, "w1", {}, true});
    guest_stream_ = std::move(guest);
  }
  ~BridgeTest() override {
    bridge_->close();
    manager_->close();
    if (guest_) guest_->close();
    if (guest_stream_) guest_stream_->close();
    world_.run_for(std::chrono::seconds(60));
    EXPECT_TRUE(world_.run(tasks_.stop()));
  }

  frame::Activate activate() const {
    frame::Activate activate;
    activate.route = route();
    activate.epoch = 3;
    activate.secret.assign(32, std::byte{1});
    return activate;
  }
  void start(GuestScript script, frame::Activate activation) {
    script_ = std::move(script);
    tasks_.spawn("bridge", run_bridge());
    tasks_.spawn("guest", run_guest());
    tasks_.spawn("manager", run_manager(std::move(activation)));
    world_.run_for(std::chrono::seconds(30));
  }
  void start(GuestScript script = {}) { start(std::move(script), activate()); }

  Task<void> run_bridge() {
    co_await bridge_->run();
    bridge_ended_ = true;
  }
  Task<void> run_manager(frame::Activate activation) {
    const auto deadline = world_.now() + std::chrono::seconds(20);
    if (!co_await manager_->handshake(deadline)) co_return;
    manager_->send(frame::Frame{0, std::move(activation)});
    auto received = co_await manager_->read_frame(deadline);
    if (!received) co_return;
    ack_ = std::get<frame::ActivateAck>(received->payload);
    if (ack_->outcome == frame::ActivateOutcome::kReady) {
      co_await manager_->run(to_manager_);
    } else {
      manager_->close();
    }
  }
  Task<void> run_guest() {
    std::array<std::byte, 64> buffer{};
    const auto count = co_await guest_stream_->read_some(buffer);
    if (!count) co_return;
    connect_ = to_text(ByteView(buffer).first(*count));
    if (!script_.answer_connect) co_return;
    // In two pieces: the bridge puts them together.
    const auto half = script_.connect_answer.size() / 2;
    const auto first = script_.connect_answer.substr(0, half);
    const auto second = script_.connect_answer.substr(half);
    if (!co_await guest_stream_->write_all(as_bytes(first))) co_return;
    co_await sleep_for(world_, std::chrono::milliseconds(50));
    if (!co_await guest_stream_->write_all(as_bytes(second))) co_return;
    guest_ = std::make_unique<hop::Connection>(
        std::move(guest_stream_), world_,
        hop::Connection::Options{
            frame::Role::kGuest, frame::Role::kBridge, false, "guest", {}, false});
    const auto deadline = world_.now() + std::chrono::seconds(20);
    const auto hello = co_await guest_->handshake(deadline);
    if (!hello) co_return;
    auto received = co_await guest_->read_frame(deadline);
    if (!received) co_return;
    hop::ProofInput input;
    input.bridge = *hello;
    input.guest = guest_->own_hello();
    input.challenge = std::get<frame::Challenge>(received->payload);
    if (script_.old_nonce) input.challenge.nonce = {};
    input.guest_nonce = random_id<frame::Nonce>(entropy_);
    input.boot_id = "boot";
    frame::Proof proof{input.guest_nonce, "boot",
                       hop::guest_proof(secret(script_.secret_fill), input)};
    guest_->send(frame::Frame{0, std::move(proof)});
    auto answer = co_await guest_->read_frame(deadline);
    if (!answer) co_return;
    const auto* bridge_proof = std::get_if<frame::ProofAck>(&answer->payload);
    bridge_proven_ = bridge_proof != nullptr &&
                     bridge_proof->mac == hop::bridge_proof(secret(script_.secret_fill), input);
    co_await guest_->run(to_guest_);
  }

  frame::Open open() const {
    frame::Open open;
    open.operation = policy::Operation::kFileRead;
    open.sandbox = route().sandbox;
    open.authority = frame::AdmittedOp{route(), 3, {9}};
    return open;
  }
  void settle() { world_.run_for(std::chrono::seconds(1)); }
  sim::World world_{1};
  sim::SimNetwork network_;
  sim::SimEntropy entropy_{2};
  NoLog log_;
  TaskScope tasks_{world_};
  GuestScript script_;
  std::unique_ptr<Bridge> bridge_;
  std::unique_ptr<hop::Connection> manager_;
  std::unique_ptr<Stream> guest_stream_;
  std::unique_ptr<hop::Connection> guest_;
  Sink to_manager_;
  Sink to_guest_;
  std::optional<frame::ActivateAck> ack_;
  std::string connect_;
  bool bridge_proven_ = false;
  bool bridge_ended_ = false;
};

TEST_F(BridgeTest, P23_ProvesBothEndsAndSaysConnectInOneSegment) {
  start();
  EXPECT_EQ(connect_, "CONNECT 1024\n");
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kReady);
  EXPECT_EQ(ack_->boot_id, "boot");
  EXPECT_TRUE(bridge_proven_);
  EXPECT_FALSE(bridge_ended_);
}

TEST_F(BridgeTest, P23_AGuestWithAnotherSecretIsNotServed) {
  start({.secret_fill = 2});
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kProofFailed);
  EXPECT_TRUE(bridge_ended_);
}

TEST_F(BridgeTest, P23_AProofMadeForAnotherConnectionIsNotTaken) {
  start({.old_nonce = true});
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kProofFailed);
}

TEST_F(BridgeTest, AGuestThatDoesNotAnswerConnectIsToldFromOneThatRefuses) {
  start({.answer_connect = false});
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kConnectTimedOut);
}

TEST_F(BridgeTest, AListenerThatHangsUpIsARefusal) {
  guest_stream_->close();
  start({.answer_connect = false});
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kConnectRefused);
}

TEST_F(BridgeTest, ConnectIsAnsweredByteForByteOrNotAtAll) {
  start({.connect_answer = "OK 12x\n"});
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kProtocol);
}

TEST_F(BridgeTest, CarriesAnOperationBothWaysOnPairedStreams) {
  start();
  ASSERT_TRUE(guest_);
  const auto stream = manager_->rules().next_stream();
  manager_->send(frame::Frame{stream, open()});
  settle();
  ASSERT_EQ(to_guest_.frames.size(), 1U);
  EXPECT_EQ(to_guest_.frames[0].stream, stream - 1);
  guest_->send(frame::Frame{stream - 1, frame::Opened{}});
  guest_->send_data(stream - 1, to_bytes("content"));
  guest_->send(frame::Frame{stream - 1, frame::End{}});
  settle();
  ASSERT_EQ(to_manager_.frames.size(), 3U);
  EXPECT_EQ(to_text(std::get<frame::Data>(to_manager_.frames[1].payload).bytes), "content");
  EXPECT_EQ(manager_->rules().open_streams(), 0U);
  EXPECT_FALSE(bridge_ended_);
}

TEST_F(BridgeTest, P19_WhatAGuestSaysWasForwardedIsNotBelieved) {
  start();
  const auto stream = manager_->rules().next_stream();
  manager_->send(frame::Frame{stream, open()});
  settle();
  guest_->send(
      frame::Frame{stream - 1, frame::Reset{frame::ResetCode::kInternal, frame::Forwarded::kNone}});
  settle();
  ASSERT_EQ(to_manager_.frames.size(), 1U);
  EXPECT_EQ(std::get<frame::Reset>(to_manager_.frames[0].payload).forwarded,
            frame::Forwarded::kSome);
}

TEST_F(BridgeTest, AnOperationOfAnotherEpochClosesEverything) {
  start();
  auto other = open();
  other.authority = frame::AdmittedOp{route(), 4, {9}};
  manager_->send(frame::Frame{manager_->rules().next_stream(), std::move(other)});
  settle();
  EXPECT_TRUE(to_guest_.frames.empty());
  EXPECT_TRUE(bridge_ended_);
}

TEST_F(BridgeTest, BR3_EndsWithTheGuestAndDoesNotReconnect) {
  start();
  guest_->close();
  settle();
  EXPECT_TRUE(bridge_ended_);
  EXPECT_TRUE(to_manager_.closed);
}

TEST_F(BridgeTest, P23_RekeysAndDoesNothingElse) {
  auto activation = activate();
  auto next = route();
  next.generation = {8};
  activation.rekey = frame::Rekey{next, Bytes(32, std::byte{5}), 16'384, {}};
  script_ = {};
  tasks_.spawn("bridge", run_bridge());
  tasks_.spawn("guest", run_guest());
  tasks_.spawn("manager", run_manager(std::move(activation)));
  world_.run_for(std::chrono::milliseconds(500));
  ASSERT_EQ(to_guest_.frames.size(), 1U);
  EXPECT_EQ(std::get<frame::Rekey>(to_guest_.frames[0].payload).route, next);
  EXPECT_FALSE(ack_);  // not before the guest has it
  guest_->send(frame::Frame{0, frame::Rekeyed{}});
  settle();
  ASSERT_TRUE(ack_);
  EXPECT_EQ(ack_->outcome, frame::ActivateOutcome::kReady);
  manager_->close();
  settle();
  EXPECT_TRUE(bridge_ended_);
}

// P-20, RC-1: a guest that sends what only trusted hops may send loses the connection, and nothing
// of it travels upstream. The guest's end speaks raw frames, since our own Connection would refuse
// to send them.
struct Illegal {
  const char* name;
  std::function<frame::Frame(frame::StreamId)> make;
};

class HostileGuestTest : public BridgeTest, public ::testing::WithParamInterface<int> {
 protected:
  static std::vector<Illegal> all() {
    return {
        {"refused",
         [](frame::StreamId s) {
           return frame::Frame{s, frame::Refused{frame::Refresh{identity::RefreshReason::kStale}}};
         }},
        {"revoked",
         [](frame::StreamId s) {
           return frame::Frame{s, frame::Revoked{{9}, identity::LeaseEnd::kReplaced}};
         }},
        {"goaway", [](frame::StreamId) { return frame::Frame{0, frame::Goaway{}}; }},
        {"open",
         [](frame::StreamId) {
           frame::Open open;
           open.sandbox = route().sandbox;
           open.authority = frame::AdmittedOp{route(), 3, {9}};
           return frame::Frame{2, std::move(open)};
         }},
        {"ping", [](frame::StreamId) { return frame::Frame{0, frame::Ping{1}}; }},
        {"admitted",
         [](frame::StreamId s) {
           frame::Admitted admitted;
           admitted.route = route();
           return frame::Frame{s, std::move(admitted)};
         }},
        {"hello again",
         [](frame::StreamId) {
           frame::Hello hello;
           hello.role = frame::Role::kGuest;
           return frame::Frame{0, std::move(hello)};
         }},
    };
  }
  // As run_guest(), by hand: the stream stays ours.
  Task<void> run_raw_guest(Illegal illegal) {
    std::array<std::byte, 4096> buffer{};
    if (!co_await guest_stream_->read_some(buffer)) co_return;
    if (!co_await guest_stream_->write_all(as_bytes("OK 1073741824\n"))) co_return;
    hop::ProofInput input;
    input.guest.role = frame::Role::kGuest;
    Bytes out;
    wire::hop::encode(frame::Frame{0, input.guest}, out);
    if (!co_await guest_stream_->write_all(out)) co_return;
    frame::Decoder decoder;
    std::optional<frame::StreamId> opened;
    bool sent = false;
    for (;;) {
      const auto count = co_await guest_stream_->read_some(buffer);
      if (!count || *count == 0) co_return;
      decoder.feed(ByteView(buffer).first(*count));
      for (auto next = decoder.next(); next && *next; next = decoder.next()) {
        out.clear();
        const auto& received = **next;
        if (const auto* hello = std::get_if<frame::Hello>(&received.payload)) input.bridge = *hello;
        if (const auto* challenge = std::get_if<frame::Challenge>(&received.payload)) {
          input.challenge = *challenge;
          input.boot_id = "boot";
          frame::Proof proof{input.guest_nonce, "boot", hop::guest_proof(secret(1), input)};
          wire::hop::encode(frame::Frame{0, std::move(proof)}, out);
        }
        if (std::holds_alternative<frame::Open>(received.payload)) opened = received.stream;
        if (opened && !sent) {
          sent = true;
          const auto bad = illegal.make(*opened);
          wire::hop::encode(bad, out);
        }
        if (!out.empty() && !co_await guest_stream_->write_all(out)) co_return;
      }
    }
  }
};

TEST_P(HostileGuestTest, P20_RC1_ClosesEverythingAndForwardsNothing) {
  const auto illegal = all()[static_cast<std::size_t>(GetParam())];
  SCOPED_TRACE(illegal.name);
  tasks_.spawn("bridge", run_bridge());
  tasks_.spawn("guest", run_raw_guest(illegal));
  tasks_.spawn("manager", run_manager(activate()));
  settle();
  ASSERT_TRUE(ack_);
  ASSERT_EQ(ack_->outcome, frame::ActivateOutcome::kReady);
  manager_->send(frame::Frame{manager_->rules().next_stream(), open()});
  settle();
  EXPECT_TRUE(to_manager_.frames.empty());
  EXPECT_TRUE(bridge_ended_);
  EXPECT_TRUE(to_manager_.closed);
}

INSTANTIATE_TEST_SUITE_P(Each, HostileGuestTest, ::testing::Range(0, 7));

}  // namespace
}  // namespace space::spaced_host
