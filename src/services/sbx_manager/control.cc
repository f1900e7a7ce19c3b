#include <algorithm>
#include <utility>

#include "base/result.h"
#include "services/sbx_manager/state.h"

namespace space::sbx_manager {

SbxManager::Control::Control(SbxManager& m, std::unique_ptr<Stream> stream)
    : manager(m),
      connection(std::move(stream), m.world_.timer,
                 hop::Connection::Options{frame::Role::kManager, frame::Role::kControlPlane, false,
                                          m.options_.worker.text(), m.boot_, true}) {
  manager.controls_.push_back(this);
}

SbxManager::Control::~Control() { std::erase(manager.controls_, this); }

Task<void> SbxManager::serve_control(Listener& listener) {
  for (;;) {
    auto accepted = co_await accept(listener);
    if (!accepted) co_return;
    const hop::ExpectedPeer control{
        identity::PeerRole::kControlPlane, {}, {}, options_.control_uid};
    if (!hop::is(*accepted, control) || controls_.size() >= kMaxPeers) {
      world_.log.event(Level::kWarning, "peer.refused",
                       {{"listener", "control"}, {"peer", hop::describe_peer(*accepted)}});
      continue;
    }
    tasks_.spawn("manager.control", serve_control_peer(std::move(accepted)));
  }
}

Task<void> SbxManager::serve_control_peer(std::unique_ptr<Stream> stream) {
  const auto peer = std::make_shared<Control>(*this, std::move(stream));
  const auto hello = co_await peer->connection.handshake(world_.timer.now() + kPeerHandshake);
  if (!hello) {
    peer->connection.close();
    co_return;
  }
  auto& mux = peer->mux.emplace(peer->connection, world_.timer);
  // The handlers run within mux.run() below, while this task owns the peer.
  auto* raw = &peer;
  mux.on_open([this, raw](std::shared_ptr<hop::Channel> channel, frame::Open open) {
    tasks_.spawn("manager.operate", operate(*raw, std::move(channel), std::move(open)));
  });
  mux.on_request([this, raw](frame::StreamId stream, frame::Payload payload) {
    request(*raw, stream, std::move(payload));
  });
  co_await mux.run();
}

void SbxManager::request(const std::shared_ptr<Control>& peer, frame::StreamId stream,
                         frame::Payload payload) {
  std::visit(
      Overload{
          [&](frame::Install& install) {
            tasks_.spawn("manager.install",
                         answer_install(peer, stream, std::move(install), world_.timer.now()));
          },
          [&](frame::Retire& retire) {
            tasks_.spawn("manager.retire", answer_retire(peer, stream, std::move(retire)));
          },
          [&](frame::Bundle& bundle) {
            tasks_.spawn("manager.bundle", answer_bundle(peer, stream, std::move(bundle)));
          },
          [&](frame::Lease& lease) { peer->mux->respond(stream, renew_worker_lease(lease)); },
          [&](frame::SessionEnded& ended) { end_session(ended.session); },
          [](auto&) {},
      },
      payload);
}

Task<void> SbxManager::answer_install(std::shared_ptr<Control> peer, frame::StreamId stream,
                                      frame::Install request, MonoTime received) {
  auto answer = co_await install(std::move(request), received);
  peer->mux->respond(stream, std::move(answer));
}
Task<void> SbxManager::answer_retire(std::shared_ptr<Control> peer, frame::StreamId stream,
                                     frame::Retire request) {
  const auto route = request.route;
  auto answer = co_await retire(std::move(request));
  // Nothing was made durable: no answer may say otherwise.
  if (!answer) {
    peer->connection.close();
    co_return;
  }
  peer->mux->respond(stream, *answer);
}
Task<void> SbxManager::answer_bundle(std::shared_ptr<Control> peer, frame::StreamId stream,
                                     frame::Bundle request) {
  auto answer = co_await install_bundle(std::move(request));
  if (!answer) {
    peer->connection.close();
    co_return;
  }
  peer->mux->respond(stream, *answer);
}

frame::Installed SbxManager::outcome(const Sandbox& sandbox, frame::InstallOutcome outcome,
                                     std::string detail) const {
  world_.log.event(
      outcome == frame::InstallOutcome::kInstalled     ? Level::kInfo
      : outcome == frame::InstallOutcome::kConflicting ? Level::kAlarm
                                                       : Level::kWarning,
      outcome == frame::InstallOutcome::kInstalled ? "install.done" : "install.refused",
      {{"sandbox", sandbox.id.text()},
       {"generation", sandbox.stored ? sandbox.stored->record.route.generation.value : 0},
       {"epoch", sandbox.epoch.counter},
       {"floor", sandbox.floor.value},
       {"reason", to_string(outcome)},
       {"detail", detail}});
  return frame::Installed{outcome, sandbox.stored ? sandbox.epoch.counter : 0, sandbox.floor.value,
                          std::move(detail)};
}

Task<frame::Installed> SbxManager::install(frame::Install install, MonoTime received) {
  using enum frame::InstallOutcome;
  auto next = identity::decode_record(install.record);
  if (!next) co_return frame::Installed{kMalformed, 0, 0, "the record is malformed"};
  if (next->route.worker != options_.worker) {
    co_return frame::Installed{kWrongWorker, 0, 0, "this is worker " + options_.worker.text()};
  }
  const auto deadline = install.max_age_ms == 0
                            ? MonoTime::max()
                            : received + std::chrono::milliseconds(install.max_age_ms);
  auto id = next->route.sandbox;
  const auto turn = co_await turns_.take(id.text());
  const auto handle_turn = turn ? co_await turns_.take("/" + next->runtime_handle) : nullptr;
  if (!handle_turn) co_return frame::Installed{kStoreFailed, 0, 0, "stopping"};
  auto& sandbox = sandboxes_.try_emplace(id).first->second;
  sandbox.id = id;
  if (world_.timer.now() > deadline) co_return outcome(sandbox, kTooOld);

  GuestSecret secret(std::span(install.secret).first<32>());
  switch (identity::judge_install(sandbox.record(), sandbox.floor, *next)) {
    case identity::InstallVerdict::kReplace:
      co_return co_await replace(sandbox, *std::move(next), std::move(secret), deadline);
    case identity::InstallVerdict::kIdentical:
      co_return co_await reprove(sandbox);
    case identity::InstallVerdict::kSameRoute: {
      // Owner or attempt moved on around the same process: leases and epoch stay (P-12).
      next->guest_process = sandbox.stored->record.guest_process;
      next->transport = sandbox.stored->record.transport;
      next->runtime_handle = sandbox.stored->record.runtime_handle;
      StoredRecord copy{*next, sandbox.stored->secret.duplicate(), sandbox.stored->boot_id};
      const auto written = co_await world_.records.put(std::move(copy));
      if (!written) co_return outcome(sandbox, kStoreFailed, written.error().message());
      sandbox.stored->record = *std::move(next);
      co_return co_await reprove(sandbox);
    }
    case identity::InstallVerdict::kBehindFloor:
      co_return outcome(sandbox, kBehindFloor);
    case identity::InstallVerdict::kConflicting:
      co_return outcome(sandbox, kConflicting);
    case identity::InstallVerdict::kAttemptBackwards:
      co_return outcome(sandbox, kAttemptBackwards);
  }
  std::unreachable();
}

// Proves the runtime, then in the order of P-13: durable, swap and cut in one turn, acknowledge.
Task<frame::Installed> SbxManager::replace(Sandbox& sandbox, identity::RuntimeRecord next,
                                           GuestSecret secret, MonoTime deadline) {
  using enum frame::InstallOutcome;
  const auto began = world_.timer.now();
  auto found = co_await world_.runtime.inspect(next.runtime_handle);
  if (!found) co_return outcome(sandbox, kNoRuntime, found.error().detail);
  if (found->frozen) co_return outcome(sandbox, kNoRuntime, "the runtime is frozen");
  if (next.guest_process && next.guest_process != found->guest_process) {
    co_return outcome(sandbox, kNoRuntime, "the record names another guest process");
  }
  next.guest_process = found->guest_process;
  next.transport = found->transport;

  const identity::Epoch epoch{boot_, ++last_epoch_};
  BridgeTarget target{next.route, found->guest_process, found->transport};
  auto bridge = co_await connect(sandbox, std::move(target), epoch.counter, secret.duplicate(),
                                 std::nullopt, {});
  if (!bridge) co_return outcome(sandbox, kBridgeFailed, bridge.error().reason);
  if (world_.timer.now() > deadline) {
    (*bridge)->connection.close();
    co_return outcome(sandbox, kTooOld);
  }
  StoredRecord copy{next, secret.duplicate(), (*bridge)->boot_id};
  const auto written = co_await world_.records.put(std::move(copy));
  if (!written || stopping_) {
    (*bridge)->connection.close();
    co_return outcome(sandbox, kStoreFailed, written ? "stopping" : written.error().message());
  }

  const auto swapped = world_.timer.now();
  const auto ended = leases_.end_sandbox(sandbox.id);
  cut(ended, identity::LeaseEnd::kReplaced);
  end_bridge(sandbox);
  sandbox.floor = next.route.generation;
  sandbox.stored = StoredRecord{std::move(next), std::move(secret), (*bridge)->boot_id};
  sandbox.thawed.reset();
  sandbox.epoch = epoch;
  sandbox.proved = true;
  sandbox.draining = false;
  sandbox.lost.clear();
  // It may have ended during the write: then the next opening makes another one.
  if (!(*bridge)->connection.closed()) sandbox.bridge = *std::move(bridge);
  sandbox.changed.notify();
  const auto us = [](BootClock::duration d) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(d).count());
  };
  world_.log.event(Level::kInfo, "leases.cut",
                   {{"sandbox", sandbox.id.text()},
                    {"leases", ended.size()},
                    {"reason", to_string(identity::LeaseEnd::kReplaced)},
                    {"prepare_us", us(swapped - began)},
                    {"cut_us", us(world_.timer.now() - swapped)}});
  co_return outcome(sandbox, kInstalled);
}

// A redelivered install: acknowledged when what is installed serves, which is found out anew if
// need be.
Task<frame::Installed> SbxManager::reprove(Sandbox& sandbox) {
  using enum frame::InstallOutcome;
  if (!sandbox.bridge) {
    sandbox.proved = false;
    sandbox.draining = false;
    sandbox.lost.clear();
    const auto launches = sandbox.launches;
    launch(sandbox);
    const auto deadline = world_.timer.now() + kBridgeDeadline;
    while (!sandbox.bridge && sandbox.launches == launches) {
      if (co_await sandbox.changed.wait(world_.timer, deadline) != Notifier::Wake::kNotified) break;
    }
  }
  if (sandbox.draining) co_return outcome(sandbox, kNoRuntime, "the runtime is frozen");
  if (!sandbox.bridge) {
    co_return outcome(sandbox, kBridgeFailed,
                      sandbox.lost.empty() ? "no proven guest" : sandbox.lost);
  }
  co_return outcome(sandbox, kInstalled);
}

Task<std::optional<frame::Retired>> SbxManager::retire(frame::Retire retire) {
  const auto& id = retire.route.sandbox;
  const auto turn = co_await turns_.take(id.text());
  if (!turn) co_return std::nullopt;
  const auto at = sandboxes_.find(id);
  if (at == sandboxes_.end()) co_return frame::Retired{false, 0};
  auto& sandbox = at->second;
  if (sandbox.record() == nullptr || sandbox.record()->route != retire.route) {
    co_return frame::Retired{false, sandbox.floor.value};
  }
  const auto written = co_await world_.records.erase(sandbox.id, sandbox.floor);
  if (!written) {
    world_.log.event(Level::kError, "retire.failed",
                     {{"sandbox", sandbox.id.text()}, {"reason", written.error().message()}});
    co_return std::nullopt;
  }
  cut(leases_.end_sandbox(sandbox.id), identity::LeaseEnd::kRetired);
  end_bridge(sandbox);
  sandbox.stored.reset();
  sandbox.proved = false;
  sandbox.draining = false;
  sandbox.lost.clear();
  world_.log.event(Level::kInfo, "retire.done",
                   {{"sandbox", sandbox.id.text()},
                    {"generation", retire.route.generation.value},
                    {"epoch", sandbox.epoch.counter},
                    {"operation", retire.operation.text()}});
  co_return frame::Retired{true, sandbox.floor.value};
}

// The version is durable before anything verifies under it (P-6).
Task<std::optional<frame::BundleAck>> SbxManager::install_bundle(frame::Bundle bundle) {
  const auto turn = co_await turns_.take("key bundle");
  if (!turn) co_return std::nullopt;
  const auto decoded = identity::decode_bundle(bundle.bundle);
  if (!decoded) co_return std::nullopt;
  auto next = keys_;
  if (const auto refused = next.install(*decoded, world_.clock.now())) {
    world_.log.event(Level::kError, "bundle.refused",
                     {{"version", decoded->version.value}, {"reason", to_string(*refused)}});
    co_return frame::BundleAck{*refused, keys_.floor()};
  }
  if (next.floor() != keys_.floor()) {
    const auto written = co_await world_.records.put_bundle_version(next.floor());
    if (!written) {
      world_.log.event(Level::kError, "bundle.failed", {{"reason", written.error().message()}});
      co_return std::nullopt;
    }
    world_.log.event(Level::kInfo, "bundle.installed", {{"version", next.floor().value}});
  }
  keys_ = std::move(next);
  signatures_.clear();
  for (const auto& key : keys_.bundle()->keys) {
    if (key.state != identity::KeyState::kCompromised) continue;
    cut(leases_.end_key(key.id), identity::LeaseEnd::kKeyCompromised);
  }
  co_return frame::BundleAck{std::nullopt, keys_.floor()};
}

frame::LeaseAck SbxManager::renew_worker_lease(const frame::Lease& lease) {
  const auto offset = world_.clock.now() - lease.now;
  const bool healthy = offset <= kMaxClockOffset && offset >= -kMaxClockOffset;
  if (healthy != clock_healthy_) {
    world_.log.event(healthy ? Level::kInfo : Level::kAlarm,
                     healthy ? "clock.healthy" : "clock.unhealthy",
                     {{"offset_ms", std::to_string(offset.count())}});
  }
  clock_healthy_ = healthy;
  return frame::LeaseAck{offset.count(), healthy};
}

void SbxManager::end_session(const identity::SessionId& session) {
  // Its capabilities may be presented until they expire.
  const auto now = world_.timer.now();
  while (!ended_sessions_.empty() &&
         (ended_sessions_.size() >= kMaxEndedSessions ||
          now - ended_sessions_.front().first >
              identity::kCapabilityLifetime + 2 * identity::kMaxClockTolerance)) {
    ended_sessions_.pop_front();
  }
  if (!session_ended(session)) ended_sessions_.emplace_back(now, session);
  cut(leases_.end_session(session), identity::LeaseEnd::kSessionRevoked);
}

}  // namespace space::sbx_manager
