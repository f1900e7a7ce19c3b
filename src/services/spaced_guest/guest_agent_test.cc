#include "services/spaced_guest/guest_agent.h"

#include <gtest/gtest.h>

#include "services/spaced_guest/testing/bridge.h"
#include "services/spaced_guest/testing/fake_guest.h"
#include "sim/network.h"

namespace space::guest {
namespace {

using namespace testing;
using policy::Operation;

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

Task<void> watch_consumed(std::shared_ptr<hop::Channel> channel, std::uint64_t& consumed,
                          bool& ended) {
  for (;;) {
    const auto event = co_await channel->next();
    if (const auto* report = std::get_if<frame::Consumed>(&event)) consumed = report->offset;
    ended = std::holds_alternative<frame::End>(event);
    if (ended || std::holds_alternative<hop::Lost>(event)) co_return;
  }
}

wire::ProcessStartRequest command(std::string name, std::uint32_t timeout_ms = 0) {
  wire::ProcessStartRequest request;
  request.spec.command = std::move(name);
  request.timeout_ms = timeout_ms;
  return request;
}

class GuestAgentTest : public ::testing::Test {
 protected:
  GuestAgentTest() {
    GuestAgent::Options options;
    options.sandbox = *identity::SandboxId::parse("abc");
    options.first_public_pid = 5000;
    options.envs = {{"A", "sandbox"}, {"B", "sandbox"}};
    options.boot_id = "boot-1";
    agent_ = std::make_unique<GuestAgent>(
        options, secret_of('s'),
        GuestAgent::World{world_, entropy_, log_, files_, processes_, clock_});
    listener_ = network_.listen("guest", "v");
    dialer_ = network_.dialer("host");
    scope_.spawn("serve", agent_->serve(*listener_));
  }
  ~GuestAgentTest() override {
    listener_->close();
    EXPECT_TRUE(world_.run(agent_->stop()));
    for (auto& bridge : bridges_) EXPECT_TRUE(world_.run(bridge->stop()));
    EXPECT_TRUE(world_.run(scope_.stop()));
  }
  std::unique_ptr<Stream> dial() {
    std::unique_ptr<Stream> stream;
    EXPECT_TRUE(world_.run(dial_into(*dialer_, stream, world_.now() + std::chrono::seconds(5))));
    return stream;
  }
  static Task<void> dial_into(Dialer& dialer, std::unique_ptr<Stream>& stream, MonoTime deadline) {
    auto dialled = co_await dialer.dial("v", deadline);
    if (dialled) stream = *std::move(dialled);
  }
  Bridge& bridge(identity::RouteIdentity route = route_of(7), char secret = 's') {
    bridges_.push_back(std::make_unique<Bridge>(world_, std::move(route), secret));
    return *bridges_.back();
  }
  template <class T>
  T run(Task<T> task) {
    T result{};
    EXPECT_TRUE(world_.run(store(std::move(task), result)));
    return result;
  }
  template <class T>
  static Task<void> store(Task<T> task, T& result) {
    result = co_await std::move(task);
  }
  bool connect(Bridge& to) { return run(to.connect(dial())); }
  frame::End stat(Bridge& through, std::string path) {
    return run(through.call(Operation::kFileStat, wire::FileStatRequest{std::move(path), ""}));
  }
  // What the agent says to raw bytes before it closes or falls silent for a second.
  std::string raw(std::string bytes) {
    auto stream = dial();
    std::string answer;
    EXPECT_TRUE(world_.run(exchange(*stream, std::move(bytes), answer)));
    return answer;
  }
  static Task<void> exchange(Stream& stream, std::string bytes, std::string& answer) {
    co_await stream.write_all(as_bytes(bytes));
    std::array<std::byte, 256> buffer;
    const auto count = co_await stream.read_some(buffer);
    if (count) answer = to_text(ByteView(buffer).first(*count));
  }
  static frame::Rekey rekey_to(std::uint64_t generation, char secret) {
    return {route_of(generation), Bytes(32, static_cast<std::byte>(secret)), 9000, WallTime{}};
  }

  sim::World world_{1};
  sim::SimNetwork network_{world_};
  sim::SimEntropy entropy_{1};
  NoLog log_;
  FakeFiles files_;
  FakeProcesses processes_{world_};
  FakeClock clock_;
  TaskScope scope_{world_};
  std::unique_ptr<GuestAgent> agent_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Dialer> dialer_;
  std::vector<std::unique_ptr<Bridge>> bridges_;
};

TEST_F(GuestAgentTest, P23_ConnectIsAnsweredForOurPortAloneWithANumberOfItsOwn) {
  EXPECT_EQ(raw("CONNECT 1024\n"), "OK 1073741824\n");
  EXPECT_EQ(raw("connect 1024\n"), "OK 1073741825\n");
  for (const auto* line :
       {"CONNECT 1025\n", "CONNECT 01024\n", "CONNECT\n", "\n", "CONNECT 1024 \n",
        "CONNECT 1024\r\n", "CONNECT 1024\nX", "CONNECT 1024\nCONNECT 1024\n", "GET / HTTP/1.1\r\n",
        "CONNECT 0000000000000000000000001024\n"}) {
    EXPECT_EQ(raw(line), "") << line;
  }
}

TEST_F(GuestAgentTest, C035_SilentConnectionsEndAndDoNotKeepTheBridgeOut) {
  std::vector<std::unique_ptr<Stream>> silent;
  for (std::size_t i = 0; i < 3 * kMaxUnproven; ++i) silent.push_back(dial());
  world_.run_for(std::chrono::milliseconds(10));
  EXPECT_LE(agent_->connections(), kMaxUnproven);
  EXPECT_TRUE(connect(bridge()));
  world_.run_for(kProofDeadline + std::chrono::seconds(1));
  EXPECT_EQ(agent_->connections(), 1U);
}

TEST_F(GuestAgentTest, P23_BothEndsProveTheSecretBeforeAnythingElse) {
  files_.files["f"] = to_bytes("x");
  auto& wrong = bridge(route_of(7), 'w');
  EXPECT_FALSE(connect(wrong));  // the guest's own proof already shows it
  auto& silent = bridge();
  ASSERT_TRUE(run(silent.greet(dial())));
  ASSERT_TRUE(run(silent.challenge()));
  silent.acknowledge(frame::Mac{});
  silent.start();
  world_.run_for(std::chrono::seconds(1));
  EXPECT_TRUE(silent.closed());
  EXPECT_FALSE(agent_->route());
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  EXPECT_EQ(stat(good, "f").outcome, Outcome::kOk);
  EXPECT_EQ(agent_->route(), route_of(7));
}

TEST_F(GuestAgentTest, P23_AReplayedProofIsRefused) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  auto& thief = bridge();
  ASSERT_TRUE(run(thief.greet(dial())));
  ASSERT_TRUE(run(thief.challenge()));
  thief.acknowledge(good.last_ack);
  thief.start();
  world_.run_for(std::chrono::seconds(1));
  EXPECT_TRUE(thief.closed());
  EXPECT_FALSE(good.closed());
}

TEST_F(GuestAgentTest, P23_AnotherSandboxOrAnOlderOrConflictingIdentityIsRefused) {
  ASSERT_TRUE(connect(bridge(route_of(7))));
  EXPECT_FALSE(connect(bridge(route_of(7, "other"))));
  EXPECT_FALSE(connect(bridge(route_of(6))));
  auto elsewhere = route_of(7);
  elsewhere.worker = *identity::WorkerId::parse("w2");
  EXPECT_FALSE(connect(bridge(elsewhere)));
  EXPECT_TRUE(connect(bridge(route_of(8))));
  EXPECT_FALSE(connect(bridge(route_of(7))));
}

TEST_F(GuestAgentTest, BR3_ANewerProvenConnectionReplacesTheOlder) {
  auto& older = bridge();
  ASSERT_TRUE(connect(older));
  auto& newer = bridge();
  ASSERT_TRUE(connect(newer));
  files_.files["f"] = to_bytes("x");
  EXPECT_EQ(stat(newer, "f").outcome, Outcome::kOk);
  world_.run_for(std::chrono::seconds(1));
  EXPECT_TRUE(older.closed());
  EXPECT_EQ(agent_->connections(), 1U);
}

TEST_F(GuestAgentTest, P23_RekeyTakesTheNewIdentityAndSecretAndEndsEveryConnection) {
  auto& serving = bridge();
  ASSERT_TRUE(connect(serving));
  auto& thawing = bridge();
  ASSERT_TRUE(connect(thawing));
  thawing.send(frame::Frame{0, rekey_to(8, 'n')});
  world_.run_for(std::chrono::seconds(3));
  EXPECT_TRUE(thawing.rekeyed);
  EXPECT_TRUE(thawing.closed());
  EXPECT_TRUE(serving.closed());
  EXPECT_EQ(agent_->route(), route_of(8));
  EXPECT_TRUE(clock_.set_to);
  EXPECT_FALSE(connect(bridge(route_of(8), 's')));
  EXPECT_FALSE(connect(bridge(route_of(7), 'n')));
  auto& fresh = bridge(route_of(8), 'n');
  ASSERT_TRUE(connect(fresh));
  auto exec = run(collect(fresh.open(Operation::kProcessStart, command("echo"))));
  EXPECT_EQ(exec.pid, 9000U);  // of the new block
}

TEST_F(GuestAgentTest, P23_UntilTheNewIdentityIsProvenTheOldOneMayRekeyAgainAndNothingElse) {
  auto& first = bridge();
  ASSERT_TRUE(connect(first));
  first.send(frame::Frame{0, rekey_to(8, 'n')});
  world_.run_for(std::chrono::seconds(3));
  ASSERT_TRUE(first.rekeyed);
  // The answer was lost and that thaw given up: nobody ever proves 8.
  auto& curious = bridge(route_of(7), 's');
  ASSERT_TRUE(connect(curious));
  EXPECT_EQ(stat(curious, "f").outcome, Outcome::kConflict);
  auto& again = bridge(route_of(7), 's');
  ASSERT_TRUE(connect(again));
  again.send(frame::Frame{0, rekey_to(9, 'm')});
  world_.run_for(std::chrono::seconds(3));
  EXPECT_TRUE(again.rekeyed);
  ASSERT_TRUE(connect(bridge(route_of(9), 'm')));
  EXPECT_FALSE(connect(bridge(route_of(7), 's')));
  EXPECT_FALSE(connect(bridge(route_of(8), 'n')));
}

TEST_F(GuestAgentTest, P24_RekeyIsRefusedBackwardsAndNothingFollowsIt) {
  auto& backwards = bridge();
  ASSERT_TRUE(connect(backwards));
  backwards.send(frame::Frame{0, rekey_to(6, 'n')});
  world_.run_for(std::chrono::seconds(1));
  EXPECT_TRUE(backwards.closed());
  EXPECT_FALSE(backwards.rekeyed);
  EXPECT_EQ(agent_->route(), route_of(7));
  auto& no_pids = bridge();
  ASSERT_TRUE(connect(no_pids));
  auto bad = rekey_to(8, 'n');
  bad.first_public_pid = UINT32_MAX - 5;
  no_pids.send(frame::Frame{0, std::move(bad)});
  world_.run_for(std::chrono::seconds(1));
  EXPECT_FALSE(no_pids.rekeyed);
  EXPECT_EQ(agent_->route(), route_of(7));
}

TEST_F(GuestAgentTest, P25_AProcessKeepsItsPidOverARekeyAndNewOnesComeFromTheNewBlock) {
  auto& before = bridge();
  ASSERT_TRUE(connect(before));
  auto channel = before.open(Operation::kProcessStart, command("wait"));
  world_.run_for(std::chrono::seconds(1));
  auto& thawing = bridge();
  ASSERT_TRUE(connect(thawing));
  thawing.send(frame::Frame{0, rekey_to(8, 'n')});
  world_.run_for(std::chrono::seconds(2));
  auto& after = bridge(route_of(8), 'n');
  ASSERT_TRUE(connect(after));
  const auto end = run(after.call(Operation::kProcessList, wire::ProcessListRequest{}));
  const auto list = wire::decode<wire::ProcessListResult>(end.result);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->processes.size(), 1U);
  EXPECT_EQ(list->processes[0].pid, 5000U);
  const auto gone = run(after.call(Operation::kProcessSignal, wire::ProcessSignalRequest{5001, 9}));
  EXPECT_EQ(gone.outcome, Outcome::kNotFound);
  const auto killed =
      run(after.call(Operation::kProcessSignal, wire::ProcessSignalRequest{5000, 9}));
  EXPECT_EQ(killed.outcome, Outcome::kOk);
}

TEST_F(GuestAgentTest, P22_AnOperationOfAnotherExecutionDoesNothing) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  auto open = good.request(Operation::kFileStat, wire::encode(wire::FileStatRequest{"f", ""}));
  std::get<frame::AdmittedOp>(open.authority).route.generation = {6};
  const auto end = run([](Bridge& to, frame::Open o) -> Task<frame::End> {
    co_return co_await hop::call(to.mux(), std::move(o), to.deadline());
  }(good, std::move(open)));
  EXPECT_EQ(end.outcome, Outcome::kConflict);
  EXPECT_EQ(files_.calls, 0U);
}

TEST_F(GuestAgentTest, P22_MetadataOfAnotherTypeIsRefused) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  const auto wrong = run(good.call(Operation::kFileRemove, wire::ProcessSignalRequest{1, 1}));
  EXPECT_EQ(wrong.outcome, Outcome::kInvalidArgument);
  for (const auto& path : {std::string(), std::string(5000, 'a'), std::string("a\0b", 3)}) {
    EXPECT_EQ(stat(good, path).outcome, Outcome::kInvalidArgument);
  }
  const auto signal = run(good.call(Operation::kProcessSignal, wire::ProcessSignalRequest{1, 64}));
  EXPECT_EQ(signal.outcome, Outcome::kInvalidArgument);
  EXPECT_EQ(files_.calls, 0U);
}

TEST_F(GuestAgentTest, C058_OnlyAWholeUploadIsCommitted) {
  files_.files["f"] = to_bytes("old");
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  const auto upload = [&](std::optional<std::uint64_t> announced, std::string bytes, bool end) {
    auto channel = good.open(Operation::kFileWrite, wire::FileWriteRequest{"f", "", {}, announced});
    world_.run_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(world_.run(send_upload(channel, std::move(bytes), end)));
    if (!end) channel->reset(frame::ResetCode::kCancelled);
    world_.run_for(std::chrono::milliseconds(10));
  };
  upload(5, "cut", false);
  EXPECT_EQ(files_.files["f"], to_bytes("old"));
  upload(std::nullopt, "cut", false);
  EXPECT_EQ(files_.files["f"], to_bytes("old"));
  upload(5, "four", true);
  EXPECT_EQ(files_.files["f"], to_bytes("old"));
  upload(5, "sixsix", true);
  EXPECT_EQ(files_.files["f"], to_bytes("old"));
  upload(5, "fives", true);
  EXPECT_EQ(files_.files["f"], to_bytes("fives"));
  upload(std::nullopt, "", true);
  EXPECT_EQ(files_.files["f"], Bytes());
}

TEST_F(GuestAgentTest, C061_ADownloadHonoursOffsetAndLength) {
  files_.files["f"] = Bytes(300'000, std::byte{'x'});
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  const auto size_of = [&](std::uint64_t offset, std::optional<std::uint64_t> length) {
    const auto end =
        run(good.call(Operation::kFileRead, wire::FileReadRequest{"f", "", offset, length}));
    EXPECT_EQ(end.outcome, Outcome::kOk);
    return end.result.size();
  };
  EXPECT_EQ(size_of(0, {}), 300'000U);
  EXPECT_EQ(size_of(299'999, {}), 1U);
  EXPECT_EQ(size_of(10, 100'000), 100'000U);
  EXPECT_EQ(size_of(200'000, 200'000), 100'000U);
  // Nothing to send: the result is the record alone.
  EXPECT_EQ(size_of(400'000, {}), wire::encode(wire::FileReadResult{}).size());
}

TEST_F(GuestAgentTest, ProcessesGetTheSandboxsEnvironmentUnderTheRequests) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  wire::ProcessStartRequest request;
  request.spec.command = "echo";
  request.spec.arguments = {"hi"};
  request.spec.envs = {{"A", "request"}, {"E2B_SANDBOX_ID", "forged"}};
  const auto exec = run(collect(good.open(Operation::kProcessStart, request)));
  EXPECT_EQ(exec.out, "hi");
  ASSERT_TRUE(exec.exited);
  ASSERT_TRUE(exec.end);
  EXPECT_EQ(exec.end->outcome, Outcome::kOk);
  const std::map<std::string, std::string> expected = {
      {"A", "request"}, {"B", "sandbox"}, {"E2B_SANDBOX", "true"}, {"E2B_SANDBOX_ID", "abc"}};
  EXPECT_EQ(processes_.last.envs, expected);
  request.spec.envs = {{"X=Y", ""}};
  const auto bad = run(collect(good.open(Operation::kProcessStart, request)));
  EXPECT_EQ(bad.end->outcome, Outcome::kInvalidArgument);
}

TEST_F(GuestAgentTest, P28_InputIsAcknowledgedByConsumedOffsetAndEndsWithTheOpenersEnd) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  auto request = command("cat");
  request.spec.stdin_open = true;
  auto channel = good.open(Operation::kProcessStart, request);
  world_.run_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(world_.run(send_upload(channel, "hello", false)));
  channel->end({});
  std::uint64_t consumed = 0;
  bool ended = false;
  EXPECT_TRUE(world_.run(watch_consumed(channel, consumed, ended)));
  EXPECT_EQ(consumed, 5U);
  EXPECT_TRUE(ended);
}

TEST_F(GuestAgentTest, AProcessOutlivesItsStreamAndItsConnection) {
  auto& first = bridge();
  ASSERT_TRUE(connect(first));
  first.open(Operation::kProcessStart, command("wait"));
  world_.run_for(std::chrono::milliseconds(10));
  auto channel = first.open(Operation::kProcessStart, command("wait"));
  world_.run_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(world_.run(first.stop()));
  auto& second = bridge();
  ASSERT_TRUE(connect(second));
  const auto end = run(second.call(Operation::kProcessList, wire::ProcessListRequest{}));
  EXPECT_EQ(wire::decode<wire::ProcessListResult>(end.result)->processes.size(), 2U);
  for (const std::uint32_t pid : {5000U, 5001U}) {
    run(second.call(Operation::kProcessSignal, wire::ProcessSignalRequest{pid, 9}));
  }
  const auto after = run(second.call(Operation::kProcessList, wire::ProcessListRequest{}));
  EXPECT_TRUE(wire::decode<wire::ProcessListResult>(after.result)->processes.empty());
}

TEST_F(GuestAgentTest, C066_InputToAProcessWithoutStdinIsAClearError) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  auto channel = good.open(Operation::kProcessStart, command("wait"));
  world_.run_for(std::chrono::milliseconds(10));
  auto input = good.open(Operation::kProcessInput, wire::ProcessInputRequest{5000, false});
  world_.run_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(world_.run(send_upload(input, "x", true)));
  const auto exec = run(collect(input));
  ASSERT_TRUE(exec.end);
  EXPECT_EQ(exec.end->outcome, Outcome::kConflict);
  run(good.call(Operation::kProcessSignal, wire::ProcessSignalRequest{5000, 9}));
  EXPECT_TRUE(run(collect(channel)).exited);
}

TEST_F(GuestAgentTest, C064_ATimeoutSaysSo) {
  auto& good = bridge();
  ASSERT_TRUE(connect(good));
  const auto exec = run(collect(good.open(Operation::kProcessStart, command("wait", 1500))));
  ASSERT_TRUE(exec.exited);
  EXPECT_TRUE(exec.exited->timed_out);
  EXPECT_EQ(exec.exited->signal, 15);
  const auto in_time = run(collect(good.open(Operation::kProcessStart, command("echo", 1500))));
  ASSERT_TRUE(in_time.exited);
  EXPECT_FALSE(in_time.exited->timed_out);
}

}  // namespace
}  // namespace space::guest
