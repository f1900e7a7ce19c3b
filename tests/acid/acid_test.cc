// The acid test (PR-4) with real processes: unmodified sbx-manager, spaced-host, space-stage and
// real containers. This program is the control plane (its own signing keys, over the control
// listener) and the hop client (as the node-api's user). The guest is the real agent with a counter
// of what reaches it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>

#include "adapters/crypto/ed25519_signer.h"
#include "adapters/crypto/system_entropy.h"
#include "core/identity/key_bundle.h"
#include "core/wire/messages.h"
#include "probe/probe.h"

extern char** environ;

namespace space {
namespace {

namespace fs = std::filesystem;
namespace frame = wire::hop;
using probe::Leg;
using probe::Verdict;

constexpr std::uint32_t kNodeApiUid = 64'801;
constexpr identity::KeyId kActiveKey{1};
constexpr identity::KeyId kRetiredKey{2};
constexpr identity::KeyId kStrangerKey{9};

identity::SandboxId sandbox_id(const std::string& text) {
  return *identity::SandboxId::parse(text);
}
identity::WorkerId worker_id(const std::string& text) { return *identity::WorkerId::parse(text); }

// A port of loopback nobody listens at now.
std::uint16_t free_port() {
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
  return acceptor.local_endpoint().port();
}

// An execution that was really started and installed somewhere.
struct Execution {
  identity::RouteIdentity route;
  identity::RuntimeRecord record;
  std::string handle;
};

// What the test's control plane answers a node-api: any key opens a session; a look-up gives the
// scripted routes in order, the last one again and again; minting signs what is asked for.
struct Script {
  std::deque<identity::RouteIdentity> routes;
  std::size_t resolved = 0;
  std::size_t minted = 0;
};

class Platform {
 public:
  Platform() {
    char name[] = "/tmp/space-acid-XXXXXX";
    data_ = ::mkdtemp(name);
    ::chmod(data_.c_str(), 0711);
    entropy_.fill(holder_bytes_);
    const auto holder = *identity::HolderId::from(holder_bytes_);
    for (const auto id : {kActiveKey, kRetiredKey, kStrangerKey}) {
      std::array<std::byte, 32> seed{};
      entropy_.fill(seed);
      const crypto::SigningSeed secret{seed};
      signers_.emplace(id, std::make_unique<crypto::Ed25519Signer>(id, secret));
    }
    std::ofstream(data_ / "space.toml")
        << "[platform]\ndata = \"" << data_.string() << "\"\n[node_api]\nuid = " << kNodeApiUid
        << "\nlisten = \"127.0.0.1:" << port_ << "\"\nholder = \"" << holder.text() << "\"\n"
        << "[workers]\nbridge_uid = 64810\n"
        << "[[worker]]\nid = \"acid1\"\nfirst_uid = 268435456\n"
        << "[[worker]]\nid = \"acid2\"\nfirst_uid = 285212672\n";
    // What `space up` makes: each socket folder belongs to who may connect.
    for (const auto* worker : {"acid1", "acid2"}) {
      fs::create_directories(data_ / "run" / worker / "hop");
      fs::create_directories(data_ / "run" / worker / "control");
      fs::create_directories(data_ / "workers" / worker);
      const auto hop = data_ / "run" / worker / "hop";
      EXPECT_EQ(::chown(hop.c_str(), 0, kNodeApiUid), 0);
      ::chmod(hop.c_str(), 02750);
      ::chmod((data_ / "run" / worker / "control").c_str(), 0700);
    }
    fs::create_directories(data_ / "run" / "control");
    EXPECT_EQ(::chown((data_ / "run" / "control").c_str(), 0, kNodeApiUid), 0);
    ::chmod((data_ / "run" / "control").c_str(), 02750);
    fs::create_directories(data_ / "templates");
    fs::create_directories(data_ / "artifacts");
    // The shipped programs, with the counting guest in the guest's place.
    fs::create_directories(data_ / "bin");
    for (const auto* program : {"sbx-manager", "spaced-host", "space-stage", "space-node-api"}) {
      fs::copy_file(fs::path(SPACE_PROGRAMS) / program, data_ / "bin" / program);
    }
    fs::copy_file(SPACE_COUNTING_GUEST, data_ / "bin" / "spaced-guest");
    for (const auto* worker : {"acid1", "acid2"}) {
      start("sbx-manager", {"--config", (data_ / "space.toml").string(), "--worker", worker},
            worker);
    }
  }

  ~Platform() {
    loop_.run(tear_down(), {});
    for (const auto pid : parts_) {
      ::kill(pid, SIGTERM);
      ::waitpid(pid, nullptr, 0);
    }
    if (!::testing::Test::HasFailure()) {
      fs::remove_all(data_);
    } else {
      std::fprintf(stderr, "logs are kept in %s\n", data_.c_str());
    }
  }

  asio::Loop& loop() { return loop_; }
  identity::HolderId holder() const { return *identity::HolderId::from(holder_bytes_); }

  Task<bool> connect() {
    for (const auto* worker : {"acid1", "acid2"}) {
      auto leg = co_await dial(worker, "control/control.sock", frame::Role::kControlPlane, 0);
      if (!leg) co_return false;
      const auto now = clock_.now();
      identity::KeyBundle bundle;
      bundle.version = {1};
      bundle.issuer = *identity::Issuer::parse("acid");
      bundle.valid_until = now + identity::kBundleValidity;
      const auto key = [&](identity::KeyId id, identity::KeyState state) {
        identity::BundleKey entry;
        entry.id = id;
        entry.state = state;
        entry.key = signers_.at(id)->public_key();
        if (state == identity::KeyState::kRetired)
          entry.retired_until = now - std::chrono::seconds(1);
        return entry;
      };
      bundle.keys = {key(kActiveKey, identity::KeyState::kActive),
                     key(kRetiredKey, identity::KeyState::kRetired)};
      frame::Bundle install{identity::encode_bundle(bundle)};
      auto ack = co_await leg->mux().exchange(std::move(install), soon());
      if (!ack || std::get<frame::BundleAck>(*ack).refused) co_return false;
      frame::Lease lease{30'000, clock_.now()};
      auto lease_ack = co_await leg->mux().exchange(lease, soon());
      if (!lease_ack) co_return false;
      control_[worker] = std::move(leg);
      auto hop = co_await dial(worker, "hop/hop.sock", frame::Role::kNodeApi, kNodeApiUid);
      if (!hop) co_return false;
      hop_[worker] = std::move(hop);
    }
    co_return true;
  }

  // Starts a runtime for the execution and installs it, as the control plane does.
  Task<std::optional<Execution>> activate(std::string worker, std::string sandbox,
                                          std::uint64_t generation) {
    Execution execution;
    auto& route = execution.route;
    route.sandbox = sandbox_id(sandbox);
    route.generation = {generation};
    route.worker = worker_id(worker);
    route.activation = random_id<identity::ActivationId>(entropy_);
    std::array<std::byte, 32> secret{};
    entropy_.fill(secret);
    wire::NodeStartRequest start;
    start.route = route;
    start.template_name = "host";
    start.memory_bytes = 256U << 20;
    start.cpu_millis = 1000;
    start.max_processes = 64;
    start.disk_bytes = 64U << 20;
    start.secret.assign(secret.begin(), secret.end());
    start.first_public_pid = 1000;
    const auto started = co_await node(worker, policy::Operation::kNodeStart, wire::encode(start));
    if (started.outcome != frame::Outcome::kOk) {
      ADD_FAILURE() << "node.start: " << started.message;
      co_return std::nullopt;
    }
    execution.handle = wire::decode<wire::NodeInstance>(started.result)->handle;
    execution.record.route = route;
    execution.record.owner = *identity::OwnerId::parse("acid");
    execution.record.operation = random_id<identity::OperationId>(entropy_);
    execution.record.first_public_pid = 1000;
    execution.record.runtime_handle = execution.handle;
    secrets_[execution.handle] = start.secret;
    const auto outcome = co_await install(worker, execution);
    if (outcome != frame::InstallOutcome::kInstalled) {
      ADD_FAILURE() << "install: " << to_string(outcome);
      co_return std::nullopt;
    }
    live_.emplace_back(worker, execution);
    co_return execution;
  }
  Task<frame::InstallOutcome> install(std::string worker, Execution execution) {
    frame::Install install;
    install.record = identity::encode_record(execution.record);
    install.secret = secrets_.at(execution.handle);
    auto answer = co_await control_.at(worker)->mux().exchange(std::move(install), soon());
    if (!answer) co_return frame::InstallOutcome::kStoreFailed;
    co_return std::get<frame::Installed>(*answer).outcome;
  }
  Task<bool> retire(std::string worker, Execution execution) {
    frame::Retire retire{execution.route, random_id<identity::OperationId>(entropy_)};
    auto answer = co_await control_.at(worker)->mux().exchange(std::move(retire), soon());
    co_return answer&& std::get<frame::Retired>(*answer).was_installed;
  }
  Task<frame::End> node(std::string worker, policy::Operation operation, Bytes metadata) {
    frame::Open open;
    open.operation = operation;
    open.metadata = std::move(metadata);
    co_return co_await hop::call(control_.at(worker)->mux(), std::move(open), soon());
  }

  identity::Claims claims(const identity::RouteIdentity& route) {
    identity::Claims claims;
    claims.key = kActiveKey;
    claims.issuer = *identity::Issuer::parse("acid");
    claims.route = route;
    claims.access = identity::AccessSet{}.with(identity::Access::kFilesRead);
    claims.session = random_id<identity::SessionId>(entropy_);
    claims.holder = holder();
    claims.issued_at = clock_.now();
    claims.expires_at = claims.issued_at + identity::kCapabilityLifetime;
    claims.id = random_id<identity::CapabilityId>(entropy_);
    return claims;
  }
  Bytes seal(const identity::Claims& claims) {
    const auto bytes = identity::encode_claims(claims);
    const auto signature = signers_.at(claims.key)->sign(identity::signature_message(bytes));
    return identity::seal(bytes, signature).bytes;
  }
  Task<std::string> read(std::string worker, identity::Claims claims, std::string addressed) {
    wire::FileReadRequest request;
    request.path = "/etc/hostname";
    auto sealed = seal(claims);
    auto metadata = wire::encode(request);
    auto sandbox = sandbox_id(addressed);
    const auto verdict =
        co_await probe::present(*hop_.at(worker), std::move(sealed), std::move(sandbox),
                                policy::Operation::kFileRead, std::move(metadata));
    co_return verdict.text;
  }

  // Starts an unmodified node-api, with empty caches, whose control plane is this program.
  bool start_node_api() {
    if (control_listener_) {
      ::kill(parts_.back(), SIGTERM);
      ::waitpid(parts_.back(), nullptr, 0);
      parts_.pop_back();
      start("space-node-api", {"--config", (data_ / "space.toml").string()}, "node-api");
      return true;
    }
    auto listener =
        asio::listen_unix(loop_, "unix:" + (data_ / "run/control/hop.sock").string(), 0660);
    if (!listener) return false;
    control_listener_ = std::move(*listener);
    tasks_.spawn("acid.control", serve_control(*control_listener_));
    start("space-node-api", {"--config", (data_ / "space.toml").string()}, "node-api");
    return true;
  }
  Script& script() { return script_; }
  // One HTTP/1.1 request on a connection of its own; everything the server said.
  Task<std::string> http(std::string request) {
    namespace net = boost::asio;
    constexpr auto tuple = net::as_tuple(net::use_awaitable);
    const auto until = soon();
    while (loop_.now() < until) {
      net::ip::tcp::socket socket(loop_.context());
      const net::ip::tcp::endpoint endpoint(net::ip::address_v4::loopback(), port_);
      const auto [refused] = co_await socket.async_connect(endpoint, tuple);
      if (refused) {
        co_await sleep_for(loop_, std::chrono::milliseconds(50));
        continue;
      }
      co_await net::async_write(socket, net::buffer(request), tuple);
      std::string answer;
      std::array<char, 4096> buffer{};
      for (;;) {
        const auto [error, count] = co_await socket.async_read_some(net::buffer(buffer), tuple);
        answer.append(buffer.data(), count);
        if (error) co_return answer;
      }
    }
    co_return "no server";
  }

  // Operations and data frames that reached the guest of this instance.
  std::uint64_t reached(const std::string& worker, const std::string& handle) const {
    std::ifstream in(data_ / "workers" / worker / "sandboxes" / handle / "vsock" / "count");
    std::uint64_t count = 0;
    in >> count;
    return count;
  }
  std::uint64_t reached_anywhere() const {
    std::uint64_t count = 0;
    for (const auto& [worker, execution] : live_) count += reached(worker, execution.handle);
    return count;
  }

 private:
  MonoTime soon() { return loop_.now() + std::chrono::seconds(60); }

  void start(const std::string& name, std::vector<std::string> arguments, const std::string& part) {
    const auto program = (data_ / "bin" / name).string();
    const auto run = (data_ / "run").string();
    const auto log = (data_ / (part + ".log")).string();
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, run.c_str());
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    parts_.push_back(pid);
  }

  // ---- the control plane's side of node-api ----
  Task<void> serve_control(Listener& listener) {
    for (;;) {
      auto accepted = co_await listener.accept();
      if (!accepted) co_return;
      node_apis_.push_back(std::make_unique<NodeApi>(std::move(*accepted), loop_));
      tasks_.spawn("acid.node_api", serve_node_api(*node_apis_.back()));
    }
  }
  struct NodeApi {
    NodeApi(std::unique_ptr<Stream> stream, asio::Loop& loop)
        : connection(
              std::move(stream), loop,
              hop::Connection::Options{
                  frame::Role::kControlPlane, frame::Role::kNodeApi, false, "acid", {}, true}) {}
    hop::Connection connection;
    std::unique_ptr<hop::Mux> mux;
  };
  Task<void> serve_node_api(NodeApi& peer) {
    const auto hello = co_await peer.connection.handshake(soon());
    if (!hello) co_return;
    peer.mux = std::make_unique<hop::Mux>(peer.connection, loop_);
    peer.mux->on_open([this](std::shared_ptr<hop::Channel> channel, const frame::Open& open) {
      channel->send(frame::Opened{});
      frame::End end;
      end.result = answer(open);
      channel->end(std::move(end));
    });
    co_await peer.mux->run();
  }
  Bytes answer(const frame::Open& open) {
    if (open.operation == policy::Operation::kSessionOpen) {
      wire::SessionOpenResult result;
      result.session = session_;
      result.team = *identity::TeamId::parse("acid");
      result.expires_at = clock_.now() + std::chrono::minutes(10);
      return wire::encode(result);
    }
    if (open.operation == policy::Operation::kRouteResolve) {
      ++script_.resolved;
      wire::RouteResolveResult result;
      result.route = script_.routes.front();
      if (script_.routes.size() > 1) script_.routes.pop_front();
      result.endpoint = "unix:" + result.route.worker.text() + "/hop/hop.sock";
      result.worker_boot = hop_.at(result.route.worker.text())->peer().boot;
      return wire::encode(result);
    }
    EXPECT_EQ(open.operation, policy::Operation::kCapabilityMint);
    ++script_.minted;
    const auto request = wire::decode<wire::CapabilityMintRequest>(open.metadata);
    auto made = claims(request->route);
    made.attempt = {request->attempt};
    made.session = request->session;
    made.access = request->access;
    wire::CapabilityMintResult result;
    result.sealed = seal(made);
    result.expires_at = made.expires_at;
    return wire::encode(result);
  }

  // Connects with the effective ids of `uid`, which is what the receiver sees as peer credentials.
  Task<std::unique_ptr<Leg>> dial(std::string worker, std::string socket, frame::Role self,
                                  std::uint32_t uid) {
    const auto address = "unix:" + (data_ / "run" / worker / socket).string();
    const auto until = soon();
    while (loop_.now() < until) {
      EXPECT_EQ(::setegid(uid), 0);
      EXPECT_EQ(::seteuid(uid), 0);
      asio::UnixDialer dialer(loop_);
      auto stream = co_await dialer.dial(address, loop_.now());
      EXPECT_EQ(::seteuid(0), 0);
      EXPECT_EQ(::setegid(0), 0);
      if (stream) {
        auto leg = std::make_unique<Leg>(loop_, std::move(*stream), self, frame::Role::kManager);
        const bool shaken = co_await leg->start();
        if (shaken) co_return leg;
      }
      co_await sleep_for(loop_, std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "cannot reach " << address;
    co_return nullptr;
  }

  Task<int> tear_down() {
    for (auto& [worker, execution] : live_) {
      if (!control_.contains(worker)) continue;
      co_await retire(worker, execution);
      wire::NodeDestroyRequest destroy;
      destroy.handle = execution.handle;
      const auto end =
          co_await node(worker, policy::Operation::kNodeDestroy, wire::encode(destroy));
      EXPECT_EQ(end.outcome, frame::Outcome::kOk) << end.message;
    }
    for (auto* legs : {&hop_, &control_}) {
      for (auto& [worker, leg] : *legs) co_await leg->stop();
      legs->clear();
    }
    if (control_listener_) control_listener_->close();
    for (const auto& peer : node_apis_) peer->connection.close();
    co_await tasks_.join();
    co_return 0;
  }

  asio::Loop loop_;
  asio::SystemClock clock_;
  crypto::SystemEntropy entropy_;
  fs::path data_;
  std::array<std::byte, 32> holder_bytes_{};
  std::map<identity::KeyId, std::unique_ptr<crypto::Ed25519Signer>> signers_;
  std::vector<pid_t> parts_;
  const std::uint16_t port_ = free_port();
  identity::SessionId session_ = random_id<identity::SessionId>(entropy_);
  Script script_;
  std::unique_ptr<Listener> control_listener_;
  std::list<std::unique_ptr<NodeApi>> node_apis_;
  TaskScope tasks_{loop_};
  std::map<std::string, std::unique_ptr<Leg>> control_;
  std::map<std::string, std::unique_ptr<Leg>> hop_;
  std::map<std::string, Bytes> secrets_;
  std::vector<std::pair<std::string, Execution>> live_;
};

// Every row is one presentation; none of them may reach a guest.
Task<int> refuse_everything(Platform& platform) {
  if (!co_await platform.connect()) co_return 1;
  // Sandbox "moved": 7 ran on acid1, 8 runs there now. Sandbox "behind": acid2 still serves 7.
  // Sandbox "gone": ran on acid2 and moved away. Sandbox "other": somebody else's.
  auto moved7 = co_await platform.activate("acid1", "moved", 7);
  if (!moved7) co_return 2;
  EXPECT_TRUE(co_await platform.retire("acid1", *moved7));
  auto moved8 = co_await platform.activate("acid1", "moved", 8);
  auto behind7 = co_await platform.activate("acid2", "behind", 7);
  auto other1 = co_await platform.activate("acid2", "other", 1);
  if (!moved8 || !behind7 || !other1) co_return 3;

  const auto before = platform.reached_anywhere();
  const auto row = [](std::string what, std::string got, std::string want) {
    EXPECT_EQ(got, want) << what;
  };

  row("7 at the worker serving 8",
      co_await platform.read("acid1", platform.claims(moved7->route), "moved"), "refresh stale");
  auto behind8 = behind7->route;
  behind8.generation = {8};
  row("8 at the worker still serving 7",
      co_await platform.read("acid2", platform.claims(behind8), "behind"), "refresh not_yet");
  row("a moved sandbox at the old worker, which has no record",
      co_await platform.read("acid2", platform.claims(moved8->route), "moved"), "refresh not_here");

  auto claims = platform.claims(moved8->route);
  auto holder_bytes = std::array<std::byte, 32>{std::byte{1}};
  claims.holder = *identity::HolderId::from(holder_bytes);
  row("another holder's capability", co_await platform.read("acid1", claims, "moved"),
      "denied wrong_holder");

  row("a capability for another sandbox",
      co_await platform.read("acid2", platform.claims(other1->route), "behind"),
      "denied wrong_sandbox");

  auto elsewhere = moved8->route;
  elsewhere.worker = worker_id("acid2");
  row("equal generation with another worker",
      co_await platform.read("acid1", platform.claims(elsewhere), "moved"), "refresh conflict");
  auto activation = moved8->route;
  activation.activation = {};
  row("equal generation with another activation",
      co_await platform.read("acid1", platform.claims(activation), "moved"), "refresh conflict");
  auto pod = moved8->route;
  pod.pod_uid = identity::PodUid::parse("0f7b4c1e-9d5b-4f9a-8f2f-0d1f5a3f8a11");
  row("equal generation with a pod UID where none is",
      co_await platform.read("acid1", platform.claims(pod), "moved"), "refresh conflict");

  // The lifecycle retries around the same process: attempt 2 is installed, attempt 1 is old.
  auto second = *behind7;
  second.record.attempt = {2};
  EXPECT_EQ(co_await platform.install("acid2", second), frame::InstallOutcome::kInstalled);
  row("an old attempt", co_await platform.read("acid2", platform.claims(behind7->route), "behind"),
      "refresh stale");

  claims = platform.claims(moved8->route);
  claims.issued_at -= std::chrono::seconds(136);
  claims.expires_at -= std::chrono::seconds(136);
  row("an expired capability", co_await platform.read("acid1", claims, "moved"), "denied expired");
  claims = platform.claims(moved8->route);
  claims.issued_at += std::chrono::seconds(30);
  claims.expires_at += std::chrono::seconds(30);
  row("a future-dated capability", co_await platform.read("acid1", claims, "moved"),
      "denied not_yet_valid");
  claims = platform.claims(moved8->route);
  claims.purpose = identity::Purpose::kServicePort;
  claims.port = 8080;
  claims.protocol = identity::PortProtocol::kHttp;
  claims.access = identity::AccessSet{}.with(identity::Access::kServicePort);
  row("a service-port capability", co_await platform.read("acid1", claims, "moved"),
      "denied wrong_purpose");
  claims = platform.claims(moved8->route);
  claims.key = kStrangerKey;
  row("an unknown key", co_await platform.read("acid1", claims, "moved"), "denied unknown_key");
  claims = platform.claims(moved8->route);
  claims.key = kRetiredKey;
  row("a retired key", co_await platform.read("acid1", claims, "moved"), "denied retired_key");
  claims = platform.claims(moved8->route);
  claims.access = identity::AccessSet{}.with(identity::Access::kProcessRead);
  row("access that was not granted", co_await platform.read("acid1", claims, "moved"),
      "denied access_not_granted");

  EXPECT_EQ(platform.reached_anywhere(), before) << "a refused request reached a guest";

  // The counter works, and the genuine endpoints still do.
  row("8 at the worker serving 8",
      co_await platform.read("acid1", platform.claims(moved8->route), "moved"), "admitted");
  claims = platform.claims(behind7->route);
  claims.attempt = {2};
  row("7 at the worker serving 7", co_await platform.read("acid2", claims, "behind"), "admitted");
  EXPECT_EQ(platform.reached_anywhere(), before + 2);
  co_return 0;
}

// The control plane's first answer is stale in each way a route can be; the second is right.
Task<int> repair_every_stale_route(Platform& platform) {
  if (!co_await platform.connect()) co_return 1;
  auto moved7 = co_await platform.activate("acid1", "moved", 7);
  if (!moved7) co_return 2;
  EXPECT_TRUE(co_await platform.retire("acid1", *moved7));
  auto moved8 = co_await platform.activate("acid1", "moved", 8);
  if (!moved8) co_return 3;

  auto elsewhere = moved8->route;  // acid2 has no record of it
  elsewhere.worker = worker_id("acid2");
  elsewhere.generation = {7};
  auto other_activation = moved8->route;
  other_activation.activation = {};
  const std::string head =
      " HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: e2b_00\r\nConnection: close\r\n";
  const std::string files = "/space/v1/sandboxes/moved/files?path=/home/user/";
  const std::pair<std::string, identity::RouteIdentity> stale[] = {
      {"stale", moved7->route}, {"not_here", elsewhere}, {"conflict", other_activation}};
  for (const auto& [name, route] : stale) {
    auto& script = platform.script();
    script = Script{};
    script.routes = {route, moved8->route};
    if (!platform.start_node_api()) co_return 4;
    const auto before = platform.reached("acid1", moved8->handle);
    auto request = "PUT " + files + name + head + "Content-Length: 4\r\n\r\nbody";
    const auto answer = co_await platform.http(std::move(request));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 201")) << name << ": " << answer;
    EXPECT_NE(answer.find("epaired: 1"), std::string::npos) << name << ": " << answer;
    EXPECT_NE(answer.find("moved.8@acid1"), std::string::npos) << name << ": " << answer;
    EXPECT_EQ(script.resolved, 2U) << name;
    // The write reached the guest once: one OPEN, one DATA.
    EXPECT_EQ(platform.reached("acid1", moved8->handle), before + 2) << name;
  }
  co_return 0;
}

TEST(Acid, RC2_P16_AStaleRouteIsRepairedThroughNodeApiAndServedOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: it starts real containers";
  Platform platform;
  EXPECT_EQ(platform.loop().run(repair_every_stale_route(platform), {}), 0);
}

TEST(Acid, PR4_ID4_RCV1_EveryWrongSelectionIsRefusedBeforeAByteIsForwarded) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: it starts real containers";
  Platform platform;
  EXPECT_EQ(platform.loop().run(refuse_everything(platform), {}), 0);
}

}  // namespace
}  // namespace space
