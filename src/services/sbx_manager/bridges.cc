#include <utility>

#include "services/sbx_manager/state.h"

namespace space::sbx_manager {

SbxManager::Bridge::Bridge(SbxManager& m, Sandbox& s, BridgeLink made)
    : manager(m),
      sandbox(s),
      process(made.process),
      connection(std::move(made.stream), m.world_.timer,
                 hop::Connection::Options{frame::Role::kManager, frame::Role::kBridge, false,
                                          m.options_.worker.text(), m.boot_, true}) {
  manager.bridges_.push_back(this);
}

SbxManager::Bridge::~Bridge() { std::erase(manager.bridges_, this); }

void SbxManager::Bridge::on_frame(frame::Frame received) {
  if (std::holds_alternative<frame::Fenced>(received.payload)) {
    fenced = true;
    fence_changed.notify();
    return;
  }
  const auto at = streams.find(received.stream);
  if (at != streams.end()) manager.from_bridge(*at->second, std::move(received.payload));
}

void SbxManager::Bridge::on_data(frame::StreamId stream, frame::DataView data) {
  const auto at = streams.find(stream);
  if (at == streams.end() || !manager.holds(*at->second)) return;
  at->second->peer.connection.send_data(at->second->peer_stream, data.bytes);
}

void SbxManager::Bridge::on_close(hop::CloseCause cause) {
  fence_changed.notify();
  manager.bridge_over(*this, cause);
}

// Starts making the bridge connection of the installed epoch, unless somebody does.
void SbxManager::launch(Sandbox& sandbox) {
  if (sandbox.launching || stopping_) return;
  sandbox.launching = true;
  tasks_.spawn("manager.launch", launch_task(sandbox));
}

Task<void> SbxManager::launch_task(Sandbox& sandbox) {
  const auto epoch = sandbox.epoch;
  const auto current = [&] {
    return sandbox.stored && sandbox.epoch == epoch && !sandbox.draining && !stopping_;
  };
  if (current()) {
    BridgeFailure failure;
    if (auto inspected = co_await inspect_again(sandbox); !inspected) {
      failure = std::move(inspected).error();
    } else if (current()) {
      const auto& stored = *sandbox.stored;
      BridgeTarget target{stored.record.route, *stored.record.guest_process,
                          *stored.record.transport};
      auto secret = stored.secret.duplicate();
      auto boot_id = stored.boot_id;
      auto made = co_await connect(sandbox, std::move(target), epoch.counter, std::move(secret),
                                   std::nullopt, std::move(boot_id));
      if (!made) {
        failure = std::move(made).error();
      } else if (current()) {
        sandbox.proved = true;
        sandbox.bridge = *std::move(made);
      } else {
        (*made)->connection.close();
      }
    }
    if (current() && !failure.reason.empty()) {
      if (failure.lost || failure.proof_failed) {
        lose(sandbox, failure.reason);
      } else {
        world_.log.event(Level::kWarning, "bridge.failed",
                         {{"sandbox", sandbox.id.text()}, {"reason", failure.reason}});
        // Whoever waits for it to serve sends no opening until it does.
        if (!sandbox.proved && !std::exchange(sandbox.relaunching, true)) {
          tasks_.spawn("manager.relaunch", relaunch(sandbox));
        }
      }
    }
  }
  sandbox.launching = false;
  ++sandbox.launches;
  sandbox.changed.notify();
}

Task<void> SbxManager::relaunch(Sandbox& sandbox) {
  co_await sleep_for(world_.timer, kRelaunchEvery);
  sandbox.relaunching = false;
  if (sandbox.stored && !sandbox.proved && sandbox.lost.empty()) launch(sandbox);
}

// After a restart: what runs must be what was recorded (RCV-6). Once proved, the launcher's own
// look at the processes is enough.
Task<std::expected<void, SbxManager::BridgeFailure>> SbxManager::inspect_again(Sandbox& sandbox) {
  using Result = std::expected<void, BridgeFailure>;
  if (sandbox.proved) co_return Result{};
  const auto epoch = sandbox.epoch;
  auto handle = sandbox.stored->record.runtime_handle;
  auto found = co_await world_.runtime.inspect(std::move(handle));
  if (!found) {
    const bool gone = found.error().error == RuntimeError::kNoSuchInstance;
    co_return std::unexpected(BridgeFailure{"runtime: " + found.error().detail, gone});
  }
  if (!sandbox.stored || sandbox.epoch != epoch) co_return Result{};
  const auto& record = sandbox.stored->record;
  if (found->guest_process != record.guest_process || found->transport != record.transport) {
    BridgeFailure other{"another process or listener than recorded", true};
    co_return std::unexpected(std::move(other));
  }
  // A pause was under way: its processes stand still until the control plane goes on.
  if (found->frozen) sandbox.draining = true;
  co_return Result{};
}

// Makes one verified connection to a guest and proves it under `secret` (BR-3). With `rekey` the
// guest is given its new identity and the connection ends. `boot_id`: refused when the guest's
// differs; empty: any.
Task<SbxManager::BridgeResult> SbxManager::connect(Sandbox& sandbox, BridgeTarget target,
                                                   std::uint64_t epoch, GuestSecret secret,
                                                   std::optional<frame::Rekey> rekey,
                                                   std::string boot_id) {
  const auto deadline = world_.timer.now() + kBridgeDeadline;
  frame::Activate activate;
  activate.route = target.route;
  activate.epoch = epoch;
  const auto bytes = secret.reveal();
  activate.secret.assign(bytes.begin(), bytes.end());
  const bool rekeying = rekey.has_value();
  activate.rekey = std::move(rekey);
  auto link = co_await world_.launcher.launch(std::move(target), deadline);
  if (!link) {
    const auto error = link.error();
    const bool lost = error != BridgeError::kBridgeNotStarted &&
                      error != BridgeError::kWrongBridgePeer && error != BridgeError::kTimedOut;
    co_return std::unexpected(BridgeFailure{std::string(to_string(error)), lost});
  }
  const auto evidence = link->evidence;
  const auto bridge = std::make_shared<Bridge>(*this, sandbox, *std::move(link));
  auto& connection = bridge->connection;
  const auto fail = [&](std::string reason, bool lost = false, bool proof = false) {
    connection.close();
    return std::unexpected(BridgeFailure{std::move(reason), lost, proof});
  };
  const auto hello = co_await connection.handshake(deadline);
  if (!hello) co_return fail("spaced-host: " + hello.error().message());
  connection.send(frame::Frame{0, std::move(activate)});
  auto received = co_await connection.read_frame(deadline);
  if (!received) co_return fail("spaced-host: " + received.error().message());
  auto* ack = std::get_if<frame::ActivateAck>(&received->payload);
  if (ack == nullptr) co_return fail("spaced-host: unexpected answer");
  if (ack->outcome != frame::ActivateOutcome::kReady) {
    co_return fail("guest: " + std::string(to_string(ack->outcome)), false,
                   ack->outcome == frame::ActivateOutcome::kProofFailed);
  }
  if (!boot_id.empty() && boot_id != ack->boot_id) {
    co_return fail("the guest's machine was started anew", true);
  }
  bridge->boot_id = std::move(ack->boot_id);
  if (rekeying) {
    connection.close();
    co_return bridge;
  }
  if (stopping_) co_return fail("stopping");
  world_.log.event(Level::kInfo, "bridge.up",
                   {{"sandbox", sandbox.id.text()}, {"epoch", epoch}, {"evidence", evidence}});
  tasks_.spawn("manager.bridge", run_bridge(bridge));
  co_return bridge;
}

Task<void> SbxManager::run_bridge(std::shared_ptr<Bridge> bridge) {
  co_await bridge->connection.run(*bridge);
}

void SbxManager::end_bridge(Sandbox& sandbox) {
  if (!sandbox.bridge) return;
  sandbox.bridge->connection.close();
  sandbox.bridge.reset();
}

// Ends the bridge once the guest has taken what was sent to it. What waited in a socket of a frozen
// guest would be done at its thaw, under the next identity (P-24, P-35). A guest that does not take
// it in time has itself to blame.
Task<void> SbxManager::fence_bridge(Sandbox& sandbox) {
  if (const auto bridge = sandbox.bridge) {
    const auto deadline = world_.timer.now() + kFenceWait;
    bridge->connection.send(frame::Frame{0, frame::Fence{}});
    while (!bridge->fenced && !bridge->connection.closed()) {
      if (co_await bridge->fence_changed.wait(world_.timer, deadline) !=
          Notifier::Wake::kNotified) {
        break;
      }
    }
  }
  end_bridge(sandbox);
}

void SbxManager::lose(Sandbox& sandbox, const std::string& reason) {
  sandbox.lost = reason.empty() ? "unknown" : reason;
  world_.log.event(Level::kAlarm, "sandbox.lost",
                   {{"sandbox", sandbox.id.text()},
                    {"generation", sandbox.stored->record.route.generation.value},
                    {"reason", sandbox.lost}});
}

}  // namespace space::sbx_manager
