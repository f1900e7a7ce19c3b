#pragma once
#include <array>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "ports/bridge.h"
#include "ports/record_store.h"
#include "ports/runtime.h"
#include "services/hop/guest_proof.h"
#include "services/hop/mux.h"
#include "services/spaced_host/bridge.h"
#include "sim/network.h"

// A worker machine for tests of the manager: instances with a guest that proves itself and counts
// what reaches it, real bridges in-process, and a record store that outlives managers.
namespace space::sbx_manager::testing {

namespace frame = wire::hop;

class MemoryRecordStore final : public RecordStore {
 public:
  Task<IoResult<Contents>> load_all() override {
    Contents contents;
    for (const auto& [id, stored] : records) contents.records.push_back(copy(stored));
    contents.floors = floors;
    contents.bundle = bundle;
    co_return contents;
  }
  Task<IoResult<void>> put(StoredRecord stored) override {
    if (fail) co_return io_error(std::errc::io_error);
    auto id = stored.record.route.sandbox;
    floors[id] = stored.record.route.generation;
    records.insert_or_assign(id, std::move(stored));
    co_return IoResult<void>{};
  }
  Task<IoResult<std::optional<identity::RuntimeRecord>>> read(
      identity::SandboxId sandbox) override {
    ++reads;
    if (slow_read.count() > 0) co_await sleep_for(*timer, slow_read);
    const auto at = records.find(sandbox);
    if (at == records.end()) co_return std::nullopt;
    co_return at->second.record;
  }
  Task<IoResult<void>> erase(identity::SandboxId sandbox, identity::Generation floor) override {
    if (fail) co_return io_error(std::errc::io_error);
    records.erase(sandbox);
    floors[sandbox] = floor;
    co_return IoResult<void>{};
  }
  Task<IoResult<void>> put_bundle_version(identity::BundleVersion version) override {
    if (fail) co_return io_error(std::errc::io_error);
    bundle = version;
    co_return IoResult<void>{};
  }
  static StoredRecord copy(const StoredRecord& stored) {
    return StoredRecord{stored.record, stored.secret.duplicate(), stored.boot_id};
  }

  std::map<identity::SandboxId, StoredRecord> records;
  std::map<identity::SandboxId, identity::Generation> floors;
  identity::BundleVersion bundle;
  bool fail = false;
  int reads = 0;
  BootClock::duration slow_read{0};
  Timer* timer = nullptr;
};

class FakeMachine final : public Runtime, public BridgeLauncher {
 public:
  struct Instance {
    identity::RouteIdentity route;
    GuestSecret secret;
    RuntimeInstance facts;
    std::string boot_id = "boot";
    std::uint64_t opens = 0;       // operations that reached the guest
    std::uint64_t data_bytes = 0;  // of them
    std::uint64_t resets = 0;
  };

  FakeMachine(sim::World& world, Entropy& entropy, Log& log)
      : world_(world), entropy_(entropy), log_(log), network_(world), tasks_(world) {}

  std::uint64_t opens() const {
    std::uint64_t sum = 0;
    for (const auto& [handle, instance] : instances) sum += instance.opens;
    return sum;
  }
  // Ends every bridge process, as a kill would.
  void kill_bridges() {
    for (auto* bridge : bridges_) bridge->close();
  }
  std::size_t bridges() const { return bridges_.size(); }
  Task<void> stop() {
    kill_bridges();
    for (auto* guest : guests_) guest->close();
    co_await tasks_.stop();
  }

  Task<RuntimeResult<RuntimeInstance>> start(StartRequest request) override {
    const auto handle =
        request.route.sandbox.text() + "." + std::to_string(request.route.generation.value);
    Instance instance;
    instance.route = request.route;
    instance.secret = std::move(request.secret);
    instance.facts.handle = handle;
    instance.facts.guest_process.pid = next_pid_++;
    instance.facts.guest_process.start_time_ticks = 77;
    instance.facts.transport.socket_path = "/" + handle;
    instance.facts.transport.path_inode = static_cast<std::uint64_t>(next_pid_);
    const auto facts = instance.facts;
    instances.insert_or_assign(handle, std::move(instance));
    co_return facts;
  }
  Task<RuntimeResult<void>> freeze(std::string handle) override {
    if (!instances.contains(handle)) co_return none();
    instances.at(handle).facts.frozen = true;
    co_return RuntimeResult<void>{};
  }
  Task<RuntimeResult<RuntimeInstance>> thaw(std::string handle) override {
    if (!instances.contains(handle)) co_return none();
    instances.at(handle).facts.frozen = false;
    co_return instances.at(handle).facts;
  }
  Task<RuntimeResult<void>> publish(std::string handle, std::string name) override {
    if (!instances.contains(handle)) co_return none();
    artifacts.insert(std::move(name));
    co_return RuntimeResult<void>{};
  }
  Task<RuntimeResult<void>> destroy(std::string handle) override {
    instances.erase(handle);
    co_return RuntimeResult<void>{};
  }
  Task<RuntimeResult<RuntimeInstance>> inspect(std::string handle) override {
    if (!instances.contains(handle)) co_return none();
    co_return instances.at(handle).facts;
  }
  Task<RuntimeResult<std::vector<std::string>>> list() override {
    std::vector<std::string> handles;
    for (const auto& [handle, instance] : instances) handles.push_back(handle);
    co_return handles;
  }
  Task<RuntimeResult<void>> remove_artifact(std::string name) override {
    artifacts.erase(name);
    co_return RuntimeResult<void>{};
  }

  Task<std::expected<BridgeLink, BridgeError>> launch(BridgeTarget target, MonoTime) override {
    ++launches;
    if (launch_time.count() > 0) co_await sleep_for(world_, launch_time);
    if (launch_error) co_return std::unexpected(*launch_error);
    Instance* found = nullptr;
    for (auto& [handle, instance] : instances) {
      if (instance.facts.transport == target.transport) found = &instance;
    }
    if (found == nullptr) co_return std::unexpected(BridgeError::kNoListener);
    if (found->facts.guest_process != target.guest_process) {
      co_return std::unexpected(BridgeError::kProcessGone);
    }
    auto [manager_end, bridge_up] = network_.pair();
    auto [bridge_down, guest_end] = network_.pair();
    tasks_.spawn("bridge", run_bridge(std::move(bridge_up), std::move(bridge_down)));
    tasks_.spawn("guest", run_guest(found->facts.handle, std::move(guest_end)));
    BridgeLink link;
    link.stream = std::move(manager_end);
    link.evidence = "basic";
    co_return link;
  }

  std::map<std::string, Instance> instances;  // by handle
  std::set<std::string> artifacts;
  int launches = 0;
  BootClock::duration launch_time{0};
  std::optional<BridgeError> launch_error;

 private:
  static std::unexpected<RuntimeFailure> none() {
    return std::unexpected(RuntimeFailure{RuntimeError::kNoSuchInstance, "no such instance"});
  }

  Task<void> run_bridge(std::unique_ptr<Stream> up, std::unique_ptr<Stream> down) {
    spaced_host::Bridge bridge(std::move(up), std::move(down), {world_, entropy_, log_});
    bridges_.insert(&bridge);
    co_await bridge.run();
    bridges_.erase(&bridge);
  }

  Task<void> run_guest(std::string handle, std::unique_ptr<Stream> stream) {
    std::array<std::byte, 64> line{};
    const auto count = co_await stream->read_some(line);
    if (!count || !instances.contains(handle)) co_return;
    if (instances.at(handle).facts.frozen) {
      co_await stream->read_some(line);
      co_return;
    }
    if (!co_await stream->write_all(as_bytes("OK 1073741824\n"))) co_return;
    hop::Connection connection(
        std::move(stream), world_,
        hop::Connection::Options{
            frame::Role::kGuest, frame::Role::kBridge, false, "guest", {}, false});
    guests_.insert(&connection);
    if (co_await prove(handle, connection)) {
      hop::Mux mux(connection, world_);
      mux.on_open([this, handle](std::shared_ptr<hop::Channel> channel, frame::Open open) {
        if (!instances.contains(handle)) return;
        ++instances.at(handle).opens;
        tasks_.spawn("operation", operate(handle, std::move(channel), open.operation));
      });
      mux.on_request([this, handle, &connection](frame::StreamId, frame::Payload payload) {
        const auto* rekey = std::get_if<frame::Rekey>(&payload);
        if (rekey == nullptr || !instances.contains(handle)) return;
        instances.at(handle).route = rekey->route;
        instances.at(handle).secret = GuestSecret(std::span(rekey->secret).first<32>());
        connection.send(frame::Frame{0, frame::Rekeyed{}});
      });
      co_await mux.run();
    }
    connection.close();
    guests_.erase(&connection);
  }

  Task<bool> prove(std::string handle, hop::Connection& connection) {
    const auto deadline = world_.now() + std::chrono::seconds(20);
    const auto hello = co_await connection.handshake(deadline);
    if (!hello) co_return false;
    auto received = co_await connection.read_frame(deadline);
    if (!received || !instances.contains(handle)) co_return false;
    auto& instance = instances.at(handle);
    hop::ProofInput input;
    input.bridge = *hello;
    input.guest = connection.own_hello();
    input.challenge = std::get<frame::Challenge>(received->payload);
    input.guest_nonce = random_id<frame::Nonce>(entropy_);
    input.boot_id = instance.boot_id;
    const auto expected = hop::bridge_proof(instance.secret, input);
    frame::Proof proof{input.guest_nonce, input.boot_id, hop::guest_proof(instance.secret, input)};
    connection.send(frame::Frame{0, std::move(proof)});
    auto answer = co_await connection.read_frame(deadline);
    if (!answer) co_return false;
    const auto* ack = std::get_if<frame::ProofAck>(&answer->payload);
    co_return ack != nullptr && ack->mac == expected;
  }

  // file.read gives ten bytes; everything else echoes until the opener ends it.
  Task<void> operate(std::string handle, std::shared_ptr<hop::Channel> channel,
                     policy::Operation operation) {
    channel->send(frame::Opened{});
    if (operation == policy::Operation::kFileRead) {
      const auto content = to_bytes("0123456789");
      if (co_await channel->write(content)) channel->end({});
      co_return;
    }
    for (;;) {
      auto event = co_await channel->next();
      if (const auto* data = std::get_if<frame::Data>(&event)) {
        if (instances.contains(handle)) instances.at(handle).data_bytes += data->bytes.size();
        if (!co_await channel->write(data->bytes)) co_return;
      } else if (std::holds_alternative<frame::End>(event)) {
        channel->end({});
        co_return;
      } else {
        if (instances.contains(handle)) ++instances.at(handle).resets;
        co_return;
      }
    }
  }

  sim::World& world_;
  Entropy& entropy_;
  Log& log_;
  sim::SimNetwork network_;
  std::set<spaced_host::Bridge*> bridges_;
  std::set<hop::Connection*> guests_;
  std::int32_t next_pid_ = 100;
  TaskScope tasks_;
};

}  // namespace space::sbx_manager::testing
