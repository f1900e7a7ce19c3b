#include "services/hop/mux.h"

#include <gtest/gtest.h>

#include "sim/network.h"

namespace space::hop {
namespace {

using frame::Role;

// A node-api end and a manager end over one simulated link.
class MuxTest : public ::testing::Test {
 protected:
  MuxTest() : world_(1), network_(world_) {
    auto [a, b] = network_.pair();
    client_connection_ = std::make_unique<Connection>(
        std::move(a), world_,
        Connection::Options{Role::kNodeApi, Role::kManager, true, "n1", {}, true});
    server_connection_ = std::make_unique<Connection>(
        std::move(b), world_,
        Connection::Options{Role::kManager, Role::kNodeApi, false, "w1", {}, true});
  }
  ~MuxTest() override {
    client_connection_->close();
    server_connection_->close();
    world_.run_for(std::chrono::seconds(1));
    EXPECT_TRUE(world_.run(scope_.stop()));
  }
  void start() {
    scope_.spawn("client.handshake", shake(*client_connection_, shaken_));
    scope_.spawn("server.handshake", shake(*server_connection_, shaken_));
    world_.run_for(std::chrono::seconds(1));
    ASSERT_EQ(shaken_, 2);
    client_ = std::make_unique<Mux>(*client_connection_, world_);
    server_ = std::make_unique<Mux>(*server_connection_, world_);
  }
  void run() {
    scope_.spawn("client", client_->run());
    scope_.spawn("server", server_->run());
  }
  static Task<void> shake(Connection& connection, int& shaken) {
    const auto hello = co_await connection.handshake(connection_deadline());
    if (hello) ++shaken;
  }
  static MonoTime connection_deadline() { return MonoTime{std::chrono::hours(2)}; }
  static frame::Open open_read() {
    frame::Open open;
    open.operation = policy::Operation::kFileRead;
    open.sandbox = identity::SandboxId::parse("abc");
    open.authority = frame::Capability{to_bytes("sealed")};
    return open;
  }
  static frame::Admitted admitted() {
    frame::Admitted admitted;
    admitted.route.sandbox = *identity::SandboxId::parse("abc");
    admitted.route.generation = {7};
    admitted.route.worker = *identity::WorkerId::parse("w1");
    return admitted;
  }

  sim::World world_;
  sim::SimNetwork network_;
  TaskScope scope_{world_};
  std::unique_ptr<Connection> client_connection_;
  std::unique_ptr<Connection> server_connection_;
  std::unique_ptr<Mux> client_;
  std::unique_ptr<Mux> server_;
  int shaken_ = 0;
};

Task<void> serve_bytes(std::shared_ptr<Channel> channel, frame::Admitted admitted,
                       std::size_t bytes) {
  channel->send(admitted);
  Bytes data(bytes, std::byte{'x'});
  co_await channel->write(data);
  channel->end({});
}

Task<void> read_all(std::shared_ptr<Channel> channel, std::size_t& bytes, bool& ended) {
  for (;;) {
    auto event = co_await channel->next();
    if (const auto* data = std::get_if<frame::Data>(&event)) {
      bytes += data->bytes.size();
    } else if (std::holds_alternative<frame::End>(event)) {
      ended = true;
      co_return;
    } else if (!std::holds_alternative<frame::Admitted>(event)) {
      co_return;
    }
  }
}

TEST_F(MuxTest, P26_MovesMoreThanAWindowByCredit) {
  start();
  server_->on_open([this](std::shared_ptr<Channel> channel, const frame::Open&) {
    scope_.spawn("serve", serve_bytes(std::move(channel), admitted(), 5U << 20));
  });
  run();
  std::size_t bytes = 0;
  bool ended = false;
  scope_.spawn("read", read_all(client_->open(open_read()), bytes, ended));
  world_.run_for(std::chrono::seconds(5));
  EXPECT_EQ(bytes, 5U << 20);
  EXPECT_TRUE(ended);
  EXPECT_EQ(client_connection_->rules().open_streams(), 0U);
  EXPECT_EQ(server_connection_->rules().open_streams(), 0U);
}

TEST_F(MuxTest, P26_AStalledReaderStopsItsOwnStreamAlone) {
  start();
  server_->on_open([this](std::shared_ptr<Channel> channel, const frame::Open&) {
    scope_.spawn("serve", serve_bytes(std::move(channel), admitted(), 3U << 20));
  });
  run();
  auto stalled = client_->open(open_read());
  std::size_t bytes = 0;
  bool ended = false;
  scope_.spawn("read", read_all(client_->open(open_read()), bytes, ended));
  world_.run_for(std::chrono::seconds(5));
  EXPECT_TRUE(ended);
  EXPECT_TRUE(client_connection_->rules().is_open(stalled->id()));
}

TEST_F(MuxTest, AnUnservedOpenIsRefusedNotIgnored) {
  start();
  run();
  auto channel = client_->open(open_read());
  world_.run_for(std::chrono::seconds(1));
  ASSERT_TRUE(channel->ready() || channel->over());
}

TEST_F(MuxTest, ADeadPeerIsFoundWithinFifteenSeconds) {
  start();
  run();
  world_.run_for(std::chrono::minutes(1));
  EXPECT_FALSE(client_connection_->closed());  // pings keep a quiet link alive
  auto channel = client_->open(open_read());
  server_connection_->close();
  world_.run_for(std::chrono::seconds(20));
  EXPECT_TRUE(client_connection_->closed());
  EXPECT_TRUE(channel->over());
}

TEST_F(MuxTest, P14_ARevocationDropsWhatTheReaderHasNotTaken) {
  start();
  std::shared_ptr<Channel> serving;
  server_->on_open([&serving](std::shared_ptr<Channel> channel, const frame::Open&) {
    serving = std::move(channel);
    serving->send(admitted());
  });
  run();
  auto channel = client_->open(open_read());
  world_.run_for(std::chrono::seconds(1));
  ASSERT_TRUE(serving);
  const Bytes old(1000, std::byte{'o'});
  server_connection_->send_data(serving->id(), old);
  world_.run_for(std::chrono::seconds(1));  // it has arrived and waits for its reader
  serving->send(frame::Revoked{{1}, identity::LeaseEnd::kReplaced});
  world_.run_for(std::chrono::seconds(1));
  std::size_t bytes = 0;
  bool ended = false;
  scope_.spawn("read", read_all(channel, bytes, ended));
  world_.run_for(std::chrono::seconds(1));
  EXPECT_EQ(bytes, 0U);
  EXPECT_FALSE(ended);
}

TEST_F(MuxTest, P14_DiscardDropsWhatWasNotYetHandedOver) {
  start();
  std::shared_ptr<Channel> serving;
  server_->on_open([&serving](std::shared_ptr<Channel> channel, const frame::Open&) {
    serving = std::move(channel);
    serving->send(admitted());
  });
  run();
  auto channel = client_->open(open_read());
  world_.run_for(std::chrono::seconds(1));
  ASSERT_TRUE(serving);
  const Bytes old(1000, std::byte{'o'});
  server_connection_->send_data(serving->id(), old);
  serving->discard();
  serving->send(frame::Revoked{{1}, identity::LeaseEnd::kReplaced});
  std::size_t bytes = 0;
  bool ended = false;
  scope_.spawn("read", read_all(channel, bytes, ended));
  world_.run_for(std::chrono::seconds(1));
  EXPECT_EQ(bytes, 0U);
  EXPECT_FALSE(ended);
}

}  // namespace
}  // namespace space::hop
