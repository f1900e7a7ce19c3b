#pragma once
#include <gtest/gtest.h>
#include <map>
#include <memory>

#include <set>
#include <string>
#include <vector>

#include "services/hop/mux.h"
#include "services/node_api/gateway.h"
#include "sim/network.h"
#include "sim/world.h"

// A control plane and managers that say what a test tells them to, over the simulated network.
namespace space::node_api::testing {

class CountingLog final : public Log {
 public:
  void event(Level level, std::string_view, std::initializer_list<Field>) override {
    if (level == Level::kAlarm) ++alarms;
  }
  int alarms = 0;
};

// What a fake capability carries in place of claims and signature.
struct FakeClaims {
  identity::SessionId session;
  identity::RouteIdentity route;
  std::uint32_t attempt = 1;
  identity::AccessSet access;
  std::uint64_t serial = 0;
  static void fields(auto& r, auto& f) {
    f(r.session, r.route, r.attempt, r.access.bits, r.serial);
  }
};

// Accepts hop connections at one address and hands each OPEN to `on_open`.
class FakePart {
 public:
  using OnOpen = std::function<void(std::shared_ptr<hop::Channel>, frame::Open)>;
  FakePart(sim::World& world, sim::SimNetwork& network, std::string address, frame::Role role,
           std::string id, std::uint8_t boot, OnOpen on_open)
      : world_(world),
        role_(role),
        id_(std::move(id)),
        on_open_(std::move(on_open)),
        tasks_(world) {
    const Bytes nonce(identity::BootNonce::kBytes, std::byte{boot});
    boot_ = *identity::BootNonce::from(nonce);
    listener_ = network.listen(id_, std::move(address));
    tasks_.spawn("fake.accept", accept());
  }
  ~FakePart() { stop(); }
  // Ends listening, all connections and tasks. Idempotent.
  void stop() {
    if (listener_) listener_->close();
    for (const auto& end : ends_) end->connection.close();
    EXPECT_TRUE(world_.run(tasks_.stop()));
  }
  void cut() {
    for (const auto& end : ends_) end->connection.close();
  }
  void on_renew(hop::Mux::RenewHandler handler) { renew_ = std::move(handler); }
  void send_session_ended(const identity::SessionId& session) {
    for (const auto& end : ends_) {
      if (!end->connection.closed()) {
        end->connection.send(frame::Frame{0, frame::SessionEnded{session}});
      }
    }
  }
  std::size_t connections() const { return ends_.size(); }
  const identity::BootNonce& boot() const { return boot_; }
  TaskScope& tasks() { return tasks_; }

 private:
  struct End {
    End(std::unique_ptr<Stream> stream, Timer& timer, hop::Connection::Options options)
        : connection(std::move(stream), timer, std::move(options)), mux(connection, timer) {}
    hop::Connection connection;
    hop::Mux mux;
  };
  Task<void> accept() {
    for (;;) {
      auto stream = co_await listener_->accept();
      if (!stream) co_return;
      hop::Connection::Options options{role_, frame::Role::kNodeApi, false, id_, boot_, true};
      ends_.push_back(std::make_shared<End>(std::move(*stream), world_, std::move(options)));
      tasks_.spawn("fake.end", serve(ends_.back()));
    }
  }
  Task<void> serve(std::shared_ptr<End> end) {
    const auto hello = co_await end->connection.handshake(world_.now() + std::chrono::seconds(5));
    if (!hello) co_return;
    end->mux.on_open(on_open_);
    end->mux.on_renew(renew_);
    co_await end->mux.run();
  }

  sim::World& world_;
  frame::Role role_;
  std::string id_;
  identity::BootNonce boot_;
  OnOpen on_open_;
  hop::Mux::RenewHandler renew_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<End>> ends_;
  TaskScope tasks_;
};

inline void answer(hop::Channel& channel, Bytes result) {
  channel.send(frame::Opened{});
  frame::End end;
  end.result = std::move(result);
  channel.end(std::move(end));
}
inline void refuse(hop::Channel& channel, frame::Outcome outcome, std::string message = {}) {
  channel.send(frame::Opened{});
  frame::End end;
  end.outcome = outcome;
  end.message = std::move(message);
  channel.end(std::move(end));
}

class FakeControl {
 public:
  FakeControl(sim::World& world, sim::SimNetwork& network, const WallClock& clock)
      : clock_(clock),
        part(world, network, "sim:control", frame::Role::kControlPlane, "control", 1,
             [this](std::shared_ptr<hop::Channel> channel, frame::Open open) {
               serve(*channel, open);
             }) {}

  // API key -> session number; the sandboxes a session may use.
  std::map<std::string, std::uint8_t> keys{{"e2b_aa", 1}, {"e2b_bb", 2}};
  std::map<std::uint8_t, std::set<std::string>> owns{{1, {"abc"}}};
  std::map<std::uint8_t, std::string> bound;  // sessions of an access token, and its sandbox
  std::map<std::string, wire::RouteResolveResult> routes;
  std::map<std::string, std::string> unroutable;  // sandbox -> message of its kConflict
  std::chrono::seconds session_life{600};
  int sessions = 0, resolves = 0, mints = 0;
  std::vector<FakeClaims> minted;
  std::function<bool(hop::Channel&, const frame::Open&)> intercept;  // true: dealt with

  static identity::SessionId session(std::uint8_t number) {
    const Bytes bytes(identity::SessionId::kBytes, std::byte{number});
    return *identity::SessionId::from(bytes);
  }

 private:
  bool may(const identity::SessionId& session_id, const identity::SandboxId& sandbox) {
    for (const auto& [number, sandboxes] : owns) {
      if (session(number) == session_id) return sandboxes.contains(sandbox.text());
    }
    return false;
  }
  void serve(hop::Channel& channel, const frame::Open& open) {
    if (intercept && intercept(channel, open)) return;
    using enum policy::Operation;
    if (open.operation == kSessionOpen) {
      ++sessions;
      const auto request = *wire::decode<wire::SessionOpenRequest>(open.metadata);
      const auto at = keys.find(request.api_key);
      if (at == keys.end()) return refuse(channel, frame::Outcome::kUnauthenticated, "unknown key");
      wire::SessionOpenResult result{session(at->second), *identity::TeamId::parse("t"),
                                     clock_.now() + session_life, std::nullopt};
      if (const auto own = bound.find(at->second); own != bound.end()) {
        result.sandbox = identity::SandboxId::parse(own->second);
      }
      return answer(channel, wire::encode(result));
    }
    if (open.operation == kRouteResolve) {
      ++resolves;
      const auto request = *wire::decode<wire::RouteResolveRequest>(open.metadata);
      const auto at = routes.find(request.sandbox.text());
      if (!may(request.session, request.sandbox)) {
        return refuse(channel, frame::Outcome::kNotFound, "not yours");
      }
      if (const auto why = unroutable.find(request.sandbox.text()); why != unroutable.end()) {
        return refuse(channel, frame::Outcome::kConflict, why->second);
      }
      if (at == routes.end()) return refuse(channel, frame::Outcome::kNotFound, "no such sandbox");
      return answer(channel, wire::encode(at->second));
    }
    if (open.operation == kCapabilityMint) {
      ++mints;
      const auto request = *wire::decode<wire::CapabilityMintRequest>(open.metadata);
      if (!may(request.session, request.route.sandbox)) {
        return refuse(channel, frame::Outcome::kNotFound, "not yours either");
      }
      FakeClaims claims{request.session, request.route, request.attempt, request.access,
                        minted.size()};
      minted.push_back(claims);
      const wire::CapabilityMintResult result{
          wire::encode(claims), std::chrono::time_point_cast<std::chrono::milliseconds>(
                                    clock_.now() + identity::kCapabilityLifetime)};
      return answer(channel, wire::encode(result));
    }
    refuse(channel, frame::Outcome::kUnsupported);
  }

  const WallClock& clock_;

 public:
  FakePart part;  // last: calls back into the members above
};

// Serves one installed generation per sandbox, with a comparator reduced to what the tests need.
class FakeManager {
 public:
  FakeManager(sim::World& world, sim::SimNetwork& network, const WallClock& clock, std::string id,
              std::string address, std::uint8_t boot)
      : clock_(clock),
        part(world, network, std::move(address), frame::Role::kManager, std::move(id), boot,
             [this](std::shared_ptr<hop::Channel> channel, frame::Open open) {
               serve(std::move(channel), std::move(open));
             }) {}

  std::map<std::string, identity::RouteIdentity> installed;
  std::vector<frame::Open> opens;
  // What an admitted operation does; default: END with the metadata as result.
  std::function<void(std::shared_ptr<hop::Channel>, const frame::Open&)> operate;
  // Decides in place of the comparison when it returns a verdict.
  std::function<std::optional<frame::Refused>(const frame::Open&)> verdict;
  std::function<void(frame::Admitted&)> twist;  // changes ADMITTED
  std::vector<std::shared_ptr<hop::Channel>> kept;

  static frame::Refused refresh(identity::RefreshReason reason) {
    return frame::Refused{frame::Refresh{reason}};
  }

 private:
  void serve(std::shared_ptr<hop::Channel> channel, frame::Open open) {
    opens.push_back(open);
    std::optional<frame::Refused> refused;
    if (verdict) refused = verdict(open);
    const auto claims =
        *wire::decode<FakeClaims>(std::get<frame::Capability>(open.authority).sealed);
    const auto at = installed.find(open.sandbox->text());
    if (!refused && at == installed.end()) refused = refresh(identity::RefreshReason::kNotHere);
    if (!refused && claims.route != at->second) refused = refresh(identity::RefreshReason::kStale);
    if (refused) {
      channel->send(*refused);
      return;
    }
    frame::Admitted admitted;
    admitted.route = at->second;
    admitted.epoch = 1;
    admitted.lease = {opens.size()};
    admitted.lease_deadline = std::chrono::time_point_cast<std::chrono::milliseconds>(
        clock_.now() + identity::kCapabilityLifetime + identity::kMaxClockTolerance);
    if (twist) twist(admitted);
    channel->send(admitted);
    if (operate) {
      operate(std::move(channel), open);
      return;
    }
    frame::End end;
    end.result = open.metadata;
    channel->end(std::move(end));
  }

  const WallClock& clock_;

 public:
  FakePart part;  // last: calls back into the members above
};

inline wire::RouteResolveResult route_at(std::uint64_t generation, const FakePart& part,
                                         std::string_view worker, std::string endpoint,
                                         std::string_view sandbox = "abc") {
  wire::RouteResolveResult result;
  result.route.sandbox = *identity::SandboxId::parse(sandbox);
  result.route.generation = {generation};
  result.route.worker = *identity::WorkerId::parse(worker);
  const Bytes activation(identity::ActivationId::kBytes,
                         std::byte{static_cast<std::uint8_t>(generation)});
  result.route.activation = *identity::ActivationId::from(activation);
  result.endpoint = std::move(endpoint);
  result.worker_boot = part.boot();
  return result;
}

// One gateway, one control plane, two workers; sandbox "abc" of session 1 runs as generation 7 on
// w1.
class PlatformTest : public ::testing::Test {
 protected:
  PlatformTest()
      : world_(1),
        network_(world_),
        clock_(world_),
        entropy_(7),
        dialer_(network_.dialer("node-api")),
        control_(world_, network_, clock_),
        w1_(world_, network_, clock_, "w1", "sim:w1", 11),
        w2_(world_, network_, clock_, "w2", "sim:w2", 22),
        gateway_(*dialer_, world_, clock_, entropy_, log_, options()) {
    select(route_at(7, w1_.part, "w1", "sim:w1"));
    w1_.installed["abc"] = control_.routes["abc"].route;
    gateway_.start();
    world_.run_for(std::chrono::seconds(1));
  }
  ~PlatformTest() override {
    EXPECT_TRUE(world_.run(gateway_.stop()));
    for (auto* part : {&control_.part, &w1_.part, &w2_.part}) part->stop();
  }
  static Gateway::Options options() {
    Gateway::Options options;
    options.control_address = "sim:control";
    return options;
  }
  void select(wire::RouteResolveResult route) {
    control_.routes[route.route.sandbox.text()] = std::move(route);
  }
  // Generation 8 on w2, as after a move; w1 keeps serving nothing.
  void move_to_w2() {
    select(route_at(8, w2_.part, "w2", "sim:w2"));
    w2_.installed["abc"] = control_.routes["abc"].route;
    w1_.installed.clear();
  }
  static identity::SandboxId abc() { return *identity::SandboxId::parse("abc"); }

  sim::World world_;
  sim::SimNetwork network_;
  sim::SimClock clock_;
  sim::SimEntropy entropy_;
  CountingLog log_;
  std::unique_ptr<Dialer> dialer_;
  FakeControl control_;
  FakeManager w1_;
  FakeManager w2_;
  Gateway gateway_;
};

}  // namespace space::node_api::testing
