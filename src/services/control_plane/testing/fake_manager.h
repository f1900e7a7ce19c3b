#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/wire/messages.h"
#include "ports/stream.h"
#include "ports/task_scope.h"
#include "services/hop/mux.h"

namespace space::control_plane {

// A worker's manager as the control plane sees it, with the rules of P-13 and no sandbox behind it.
// What it holds survives a disconnection. Broken rules are noted in `violations` of the fleet.
struct FakeFleet {
  std::map<identity::SandboxId, identity::WorkerId> installed_at;
  std::set<std::string> artifacts;
  std::vector<std::string> violations;
  std::map<identity::SandboxId, std::set<std::uint64_t>> generations;  // ever installed
};

class FakeManager {
 public:
  FakeManager(FakeFleet& fleet, Timer& timer, identity::WorkerId id, std::uint8_t boot)
      : fleet_(fleet), timer_(timer), id_(std::move(id)), scope_(timer) {
    const Bytes nonce(16, std::byte{boot});
    boot_ = *identity::BootNonce::from(nonce);
  }

  struct Runtime {
    identity::RouteIdentity route;
    bool frozen = false;
    Bytes secret;
    std::string started_from;
  };
  struct Installed {
    identity::RuntimeRecord record;
    Bytes encoded;
  };
  std::map<std::string, Runtime> runtimes;
  std::map<identity::SandboxId, Installed> installed;
  std::map<identity::SandboxId, std::uint64_t> floors;
  std::map<policy::Operation, std::pair<wire::hop::Outcome, int>> failures;  // answer so, n times
  std::optional<wire::hop::InstallOutcome> fail_install;
  bool lose_answers = false;  // does what it is told and closes the connection instead of answering
  bool serving = true;
  std::uint32_t thaws = 0;
  std::uint32_t installs = 0;
  std::vector<identity::SessionId> ended;
  std::optional<identity::KeyBundle> bundle;
  std::optional<identity::BundleRefusal> refuse_bundle;

  void start(std::unique_ptr<Listener> listener) {
    listener_ = std::move(listener);
    scope_.spawn("fake.accept", accept());
  }
  // Not reachable until the next start().
  void cut() {
    if (listener_) listener_->close();
    for (auto* connection : connections_) connection->close();
  }
  Task<void> stop() {
    cut();
    co_await scope_.stop();
  }

 private:
  Task<void> accept() {
    auto* listener = listener_.get();
    for (;;) {
      auto stream = co_await listener->accept();
      if (!stream) co_return;
      scope_.spawn("fake.serve", serve(*std::move(stream)));
    }
  }
  Task<void> serve(std::unique_ptr<Stream> stream) {
    hop::Connection::Options options;
    options.self = wire::hop::Role::kManager;
    options.peer = wire::hop::Role::kControlPlane;
    options.id = id_.text();
    options.boot = boot_;
    hop::Connection connection(std::move(stream), timer_, std::move(options));
    connections_.insert(&connection);
    const auto hello = co_await connection.handshake(timer_.now() + std::chrono::seconds(5));
    if (hello) {
      hop::Mux mux(connection, timer_);
      mux.on_open([this, &connection](std::shared_ptr<hop::Channel> channel, wire::hop::Open open) {
        scope_.spawn("fake.open", answer(std::move(channel), std::move(open), &connection));
      });
      mux.on_request([this, &mux](wire::hop::StreamId stream_id, wire::hop::Payload request) {
        on_request(mux, stream_id, std::move(request));
      });
      co_await mux.run();
    }
    connections_.erase(&connection);
  }
  void on_request(hop::Mux& mux, wire::hop::StreamId stream, wire::hop::Payload request) {
    namespace frame = wire::hop;
    if (const auto* bundle_frame = std::get_if<frame::Bundle>(&request)) {
      bundle = identity::decode_bundle(bundle_frame->bundle);
      frame::BundleAck ack;
      ack.refused = std::exchange(refuse_bundle, std::nullopt);
      ack.version = bundle ? bundle->version : identity::BundleVersion{};
      mux.respond(stream, ack);
    } else if (std::holds_alternative<frame::Lease>(request)) {
      mux.respond(stream, frame::LeaseAck{0, true});
    } else if (const auto* install = std::get_if<frame::Install>(&request)) {
      auto result = on_install(*install);
      if (lose_answers) return mux.connection().close();
      mux.respond(stream, std::move(result));
    } else if (const auto* retire = std::get_if<frame::Retire>(&request)) {
      frame::Retired result;
      const auto at = installed.find(retire->route.sandbox);
      if (at != installed.end() && at->second.record.route == retire->route) {
        result.was_installed = true;
        installed.erase(at);
        fleet_.installed_at.erase(retire->route.sandbox);
      }
      result.floor = floors[retire->route.sandbox];
      if (lose_answers) return mux.connection().close();
      mux.respond(stream, result);
    } else if (const auto* over = std::get_if<frame::SessionEnded>(&request)) {
      ended.push_back(over->session);
    }
  }
  wire::hop::Installed on_install(const wire::hop::Install& install) {
    namespace frame = wire::hop;
    frame::Installed result;
    const auto record = identity::decode_record(install.record);
    if (!record || record->route.worker != id_) {
      fleet_.violations.emplace_back("malformed install");
      result.outcome = frame::InstallOutcome::kMalformed;
      return result;
    }
    const auto& sandbox = record->route.sandbox;
    auto& floor = floors[sandbox];
    const auto runtime = runtimes.find(record->runtime_handle);
    if (runtime == runtimes.end() || runtime->second.route != record->route ||
        runtime->second.secret != install.secret || runtime->second.frozen) {
      fleet_.violations.emplace_back("install without its runtime");
      result.outcome = frame::InstallOutcome::kNoRuntime;
      return result;
    }
    const auto there = installed.find(sandbox);
    const bool identical = there != installed.end() && there->second.record.route == record->route;
    if (!identical && record->route.generation.value <= floor) {
      result.outcome = frame::InstallOutcome::kBehindFloor;
      result.floor = floor;
      return result;
    }
    if (fail_install) {
      result.outcome = *std::exchange(fail_install, std::nullopt);
      result.floor = floor;
      return result;
    }
    const auto elsewhere = fleet_.installed_at.find(sandbox);
    if (elsewhere != fleet_.installed_at.end() && elsewhere->second != id_) {
      fleet_.violations.push_back("installed on two workers");
    }
    if (!identical && !fleet_.generations[sandbox].insert(record->route.generation.value).second) {
      fleet_.violations.push_back("generation used twice");
    }
    if (there != installed.end() && !identical) {
      fleet_.violations.push_back("installed over an execution that was not retired");
    }
    ++installs;
    floor = record->route.generation.value;
    fleet_.installed_at.insert_or_assign(sandbox, id_);
    installed.insert_or_assign(sandbox, Installed{*record, install.record});
    result.floor = floor;
    result.epoch = 1;
    return result;
  }
  wire::hop::End node(policy::Operation operation, ByteView metadata) {
    namespace frame = wire::hop;
    using policy::Operation;
    frame::End end;
    const auto fail = [&end](frame::Outcome outcome, std::string message) {
      end.outcome = outcome;
      end.message = std::move(message);
      return end;
    };
    if (const auto at = failures.find(operation); at != failures.end() && at->second.second > 0) {
      --at->second.second;
      return fail(at->second.first, "injected");
    }
    switch (operation) {
      case Operation::kNodeStart: {
        const auto request = wire::decode<wire::NodeStartRequest>(metadata);
        if (!request) return fail(frame::Outcome::kInvalidArgument, "malformed");
        if (!request->artifact.empty() && !fleet_.artifacts.contains(request->artifact)) {
          fleet_.violations.push_back("start from a missing artifact");
        }
        const auto handle = "rt-" + request->route.activation.text();
        runtimes[handle] = Runtime{request->route, false, request->secret, request->artifact};
        end.result = wire::encode(wire::NodeInstance{handle});
        return end;
      }
      case Operation::kNodeFreeze: {
        const auto request = wire::decode<wire::NodeFreezeRequest>(metadata);
        for (auto& [handle, runtime] : runtimes) {
          if (request && runtime.route == request->route) {
            runtime.frozen = true;
            end.result = wire::encode(wire::NodeInstance{handle});
            return end;
          }
        }
        return fail(frame::Outcome::kNotFound, "no such execution");
      }
      case Operation::kNodeThaw: {
        const auto request = wire::decode<wire::NodeThawRequest>(metadata);
        const auto at = request ? runtimes.find(request->handle) : runtimes.end();
        if (at == runtimes.end()) return fail(frame::Outcome::kNotFound, "no such runtime");
        const bool again = at->second.route == request->route;
        if (!again && (at->second.secret != request->old_secret || !at->second.frozen)) {
          fleet_.violations.push_back("thaw with a wrong secret or of a running one");
        }
        if (installed.contains(request->route.sandbox)) {
          fleet_.violations.push_back("thaw before the old execution was retired");
        }
        if (!again) ++thaws;
        at->second.route = request->route;
        at->second.secret = request->secret;
        at->second.frozen = false;
        end.result = wire::encode(wire::NodeInstance{request->handle});
        return end;
      }
      case Operation::kNodePublish: {
        const auto request = wire::decode<wire::NodePublishRequest>(metadata);
        const auto at = request ? runtimes.find(request->handle) : runtimes.end();
        if (at == runtimes.end()) return fail(frame::Outcome::kNotFound, "no such runtime");
        if (!at->second.frozen) fleet_.violations.push_back("published while running");
        fleet_.artifacts.insert(request->artifact);
        return end;
      }
      case Operation::kNodeDestroy: {
        const auto request = wire::decode<wire::NodeDestroyRequest>(metadata);
        if (!request) return fail(frame::Outcome::kInvalidArgument, "malformed");
        for (const auto& [sandbox, there] : installed) {
          if (there.record.runtime_handle == request->handle) {
            fleet_.violations.push_back("destroy of an installed runtime");
            return fail(frame::Outcome::kConflict, "installed");
          }
        }
        runtimes.erase(request->handle);
        fleet_.artifacts.erase(request->artifact);
        return end;
      }
      case Operation::kNodeStatus: {
        wire::NodeStatusResult result;
        result.boot = boot_;
        result.runtime = "fake";
        result.evidence = "basic";
        for (const auto& [sandbox, floor] : floors) {
          wire::NodeSandboxStatus status;
          status.sandbox = sandbox;
          status.floor = floor;
          if (const auto at = installed.find(sandbox); at != installed.end()) {
            status.installed = at->second.record.route;
            status.attempt = at->second.record.attempt.value;
            status.serving = serving;
            if (!serving) status.reason = "the guest did not prove itself";
          }
          result.sandboxes.push_back(std::move(status));
        }
        end.result = wire::encode(result);
        return end;
      }
      default:
        return fail(frame::Outcome::kUnsupported, "not a node operation");
    }
  }
  Task<void> answer(std::shared_ptr<hop::Channel> channel, wire::hop::Open open,
                    hop::Connection* connection) {
    auto end = node(open.operation, open.metadata);
    if (lose_answers && open.operation != policy::Operation::kNodeStatus) {
      if (connections_.contains(connection)) connection->close();
      co_return;
    }
    channel->send(wire::hop::Opened{});
    const auto result = std::exchange(end.result, {});
    if (!result.empty() && !co_await channel->write(result)) co_return;
    channel->end(std::move(end));
  }

  FakeFleet& fleet_;
  Timer& timer_;
  identity::WorkerId id_;
  identity::BootNonce boot_;
  std::unique_ptr<Listener> listener_;
  std::set<hop::Connection*> connections_;
  TaskScope scope_;
};

}  // namespace space::control_plane
