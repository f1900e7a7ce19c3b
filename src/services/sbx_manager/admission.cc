#include <algorithm>
#include <utility>

#include "base/result.h"
#include "services/sbx_manager/state.h"

namespace space::sbx_manager {
namespace {

frame::Refused denied(identity::DenyReason reason) { return frame::Refused{frame::Denied{reason}}; }
frame::Refused unavailable(frame::UnavailableReason reason, std::uint32_t retry_after_ms = 0) {
  return frame::Refused{frame::Unavailable{reason, retry_after_ms}};
}

std::string describe(const frame::Refused& refused) {
  return std::visit(
      Overload{
          [](const frame::Refresh& r) { return "refresh " + std::string(to_string(r.reason)); },
          [](const frame::Denied& d) { return "denied " + std::string(to_string(d.reason)); },
          [](const frame::Unavailable& u) {
            return "unavailable " + std::string(to_string(u.reason));
          },
      },
      refused.verdict);
}

}  // namespace

SbxManager::NodeApi::NodeApi(SbxManager& m, std::unique_ptr<Stream> stream, identity::HolderId h)
    : manager(m),
      holder(h),
      connection(std::move(stream), m.world_.timer,
                 hop::Connection::Options{frame::Role::kManager, frame::Role::kNodeApi, false,
                                          m.options_.worker.text(), m.boot_, true}) {
  manager.node_apis_.push_back(this);
}

SbxManager::NodeApi::~NodeApi() { std::erase(manager.node_apis_, this); }

void SbxManager::NodeApi::on_frame(frame::Frame received) {
  if (auto* open = std::get_if<frame::Open>(&received.payload)) {
    manager.open(shared_from_this(), received.stream, std::move(*open));
    return;
  }
  // Of a stream that waits for its bridge only RESET is legal: the waiting task sees that it is
  // gone.
  const auto at = streams.find(received.stream);
  if (at != streams.end()) manager.from_node_api(*at->second, std::move(received.payload));
}

void SbxManager::NodeApi::on_data(frame::StreamId stream, frame::DataView data) {
  const auto at = streams.find(stream);
  if (at == streams.end() || !manager.holds(*at->second)) return;
  at->second->bridge.connection.send_data(at->second->bridge_stream, data.bytes);
}

void SbxManager::NodeApi::on_close(hop::CloseCause) {
  while (!streams.empty()) {
    manager.from_node_api(*streams.begin()->second, frame::Reset{frame::ResetCode::kCancelled});
  }
}

Task<void> SbxManager::serve_hop(Listener& listener) {
  for (;;) {
    auto accepted = co_await accept(listener);
    if (!accepted) co_return;
    const auto holder = hop::holder_at(*accepted, options_.holders);
    if (!holder || node_apis_.size() >= kMaxPeers) {
      world_.log.event(Level::kWarning, "peer.refused",
                       {{"listener", "hop"}, {"peer", hop::describe_peer(*accepted)}});
      continue;
    }
    tasks_.spawn("manager.node_api", serve_node_api(std::move(accepted), *holder));
  }
}

Task<void> SbxManager::serve_node_api(std::unique_ptr<Stream> stream, identity::HolderId holder) {
  const auto peer = std::make_shared<NodeApi>(*this, std::move(stream), holder);
  const auto hello = co_await peer->connection.handshake(world_.timer.now() + kPeerHandshake);
  if (hello) {
    co_await peer->connection.run(*peer);
  } else {
    peer->connection.close();
  }
}

identity::VerifyContext SbxManager::context(const identity::HolderId& holder,
                                            policy::Operation operation) const {
  identity::VerifyContext context;
  context.now = world_.clock.now();
  context.tolerance = options_.tolerance;
  context.clock_healthy = clock_healthy_;
  context.demand.peer = holder;
  context.demand.access = policy::info(operation).access;
  return context;
}

bool SbxManager::session_ended(const identity::SessionId& session) const {
  return std::ranges::any_of(ended_sessions_,
                             [&](const auto& ended) { return ended.second == session; });
}

void SbxManager::open(const std::shared_ptr<NodeApi>& peer, frame::StreamId stream,
                      frame::Open open) {
  const auto progress = advance(*peer, stream, open, false);
  if (progress == Progress::kDone) return;
  tasks_.spawn("manager.open", open_later(peer, stream, std::move(open), progress));
}

// Waits for what the opening lacks, and after each wait judges it anew from the start.
Task<void> SbxManager::open_later(std::shared_ptr<NodeApi> peer, frame::StreamId stream,
                                  frame::Open open, Progress progress) {
  const auto deadline = world_.timer.now() + kBridgeWait;
  const auto wanted = [&] {
    return !stopping_ && !peer->connection.closed() && peer->connection.rules().is_open(stream);
  };
  while (progress != Progress::kDone) {
    auto& sandbox = sandboxes_.at(*open.sandbox);
    bool record_read = false;
    if (progress == Progress::kNeedsBridge) {
      launch(sandbox);
      const auto launches = sandbox.launches;
      ++sandbox.waiting;
      const auto wake = co_await sandbox.changed.wait(world_.timer, deadline);
      --sandbox.waiting;
      if (wake == Notifier::Wake::kCancelled || !wanted()) co_return;
      const bool failed = sandbox.launches != launches && !sandbox.bridge;
      if (wake == Notifier::Wake::kTimedOut || failed) {
        refuse(*peer, stream, open, unavailable(frame::UnavailableReason::kNoBridge));
        co_return;
      }
    } else {
      ++sandbox.waiting;
      const auto stored = co_await world_.records.read(*open.sandbox);
      --sandbox.waiting;
      if (!wanted()) co_return;
      const auto* record = sandbox.record();
      if (!stored || !stored->has_value() || record == nullptr || **stored != *record) {
        refuse(*peer, stream, open,
               unavailable(stored ? frame::UnavailableReason::kInstalling
                                  : frame::UnavailableReason::kInternal));
        co_return;
      }
      record_read = true;
    }
    progress = advance(*peer, stream, open, record_read);
  }
}

SbxManager::Progress SbxManager::refuse(NodeApi& peer, frame::StreamId stream,
                                        const frame::Open& open, frame::Refused refused) {
  world_.log.event(Level::kInfo, "open.refused",
                   {{"sandbox", open.sandbox->text()},
                    {"operation", policy::info(open.operation).name},
                    {"request", open.request.text()},
                    {"reason", describe(refused)}});
  peer.connection.send(frame::Frame{stream, std::move(refused)});
  return Progress::kDone;
}

// The admission (P-7, P-8, P-10): verify, compare, take the lease, capture the epoch and forward,
// all in one turn. Suspends nowhere. `record_read`: the durable record was found equal to ours in
// this turn (ST-2).
SbxManager::Progress SbxManager::advance(NodeApi& peer, frame::StreamId stream, frame::Open& open,
                                         bool record_read) {
  const identity::SealedCapability sealed{std::get<frame::Capability>(open.authority).sealed};
  const auto verified = identity::verify(sealed, keys_, world_.signatures, &signatures_,
                                         context(peer.holder, open.operation));
  if (!verified) return refuse(peer, stream, open, denied(verified.error()));
  const auto& claims = verified->claims();
  if (session_ended(claims.session)) {
    return refuse(peer, stream, open, denied(identity::DenyReason::kSessionRevoked));
  }

  const auto at = sandboxes_.find(*open.sandbox);
  identity::Receiver receiver;
  if (at != sandboxes_.end()) receiver.record = at->second.record();
  const auto comparison = identity::compare(*open.sandbox, claims, receiver);
  if (std::holds_alternative<identity::Deny>(comparison)) {
    return refuse(peer, stream, open, denied(identity::DenyReason::kWrongSandbox));
  }
  if (const auto* refresh = std::get_if<identity::RefreshRoute>(&comparison)) {
    if (refresh->reason == identity::RefreshReason::kConflict) {
      world_.log.event(
          Level::kAlarm, "open.conflict",
          {{"sandbox", open.sandbox->text()}, {"generation", claims.route.generation.value}});
    }
    return refuse(peer, stream, open, frame::Refused{frame::Refresh{refresh->reason}});
  }

  auto& sandbox = at->second;
  if (sandbox.draining) {
    return refuse(peer, stream, open, unavailable(frame::UnavailableReason::kDraining, 1'000));
  }
  if (!sandbox.lost.empty()) {
    return refuse(peer, stream, open, unavailable(frame::UnavailableReason::kNoBridge));
  }
  if (sandbox.operations + sandbox.waiting >= options_.max_streams) {
    return refuse(peer, stream, open, unavailable(frame::UnavailableReason::kOverloaded, 1'000));
  }
  if (!sandbox.bridge || sandbox.bridge->connection.closed()) return Progress::kNeedsBridge;
  auto& bridge = *sandbox.bridge;
  if (!bridge.connection.rules().may_open()) {
    return refuse(peer, stream, open, unavailable(frame::UnavailableReason::kOverloaded, 1'000));
  }
  if (policy::info(open.operation).kind == policy::Kind::kStream && !record_read) {
    return Progress::kNeedsRecord;
  }
  const auto bridge_stream = bridge.connection.rules().next_stream();
  if (bridge_stream == 0) {  // no ids left: the next opening gets a new connection
    end_bridge(sandbox);
    return Progress::kNeedsBridge;
  }

  const auto lease = leases_.take(claims, sandbox.epoch, options_.tolerance);
  if (leases_.size() == 1) lease_taken_.notify();
  auto operation = std::make_unique<Operation>(
      Operation{lease, sandbox, peer, stream, bridge, bridge_stream, open.operation});
  peer.streams.emplace(stream, operation.get());
  bridge.streams.emplace(bridge_stream, operation.get());
  operations_.emplace(lease, std::move(operation));
  ++sandbox.operations;

  open.authority = frame::AdmittedOp{claims.route, sandbox.epoch.counter, lease};
  bridge.connection.send(frame::Frame{bridge_stream, std::move(open)});
  return Progress::kDone;
}

// The check of every forward (P-10). False: the lease is over and the operation was cut.
bool SbxManager::holds(Operation& operation) {
  if (leases_.live(operation.lease, world_.clock.now()) != nullptr) return true;
  cut({operation.lease}, identity::LeaseEnd::kExpired);
  return false;
}

void SbxManager::from_node_api(Operation& operation, frame::Payload payload) {
  auto& to = operation.bridge.connection;
  const auto stream = operation.bridge_stream;
  if (const auto* reset = std::get_if<frame::Reset>(&payload)) {
    to.discard(stream);
    to.send(frame::Frame{stream, *reset});
    finish(operation);
    return;
  }
  if (!holds(operation)) return;
  std::visit(Overload{
                 [&](frame::Credit& credit) { to.send(frame::Frame{stream, credit}); },
                 [&](frame::Consumed& consumed) { to.send(frame::Frame{stream, consumed}); },
                 [&](frame::End& end) { to.send(frame::Frame{stream, std::move(end)}); },
                 [&](frame::Renew& fresh) { renew(operation, fresh); },
                 [](auto&) {},
             },
             payload);
}

void SbxManager::from_bridge(Operation& operation, frame::Payload payload) {
  if (!holds(operation)) return;
  auto& to = operation.peer.connection;
  const auto stream = operation.peer_stream;
  std::visit(Overload{
                 [&](frame::Opened&) {
                   const auto* lease = leases_.live(operation.lease, world_.clock.now());
                   if (lease == nullptr) {  // the clock went on since the check
                     cut({operation.lease}, identity::LeaseEnd::kExpired);
                     return;
                   }
                   operation.admitted = true;
                   frame::Admitted admitted{lease->route, lease->epoch.counter, lease->id,
                                            lease->deadline, frame::kInitialWindow};
                   to.send(frame::Frame{stream, std::move(admitted)});
                 },
                 [&](frame::Credit& credit) { to.send(frame::Frame{stream, credit}); },
                 [&](frame::Consumed& consumed) { to.send(frame::Frame{stream, consumed}); },
                 [&](frame::End& end) {
                   to.send(frame::Frame{stream, std::move(end)});
                   finish(operation);
                 },
                 [&](frame::Reset& reset) {
                   to.send(frame::Frame{stream, reset});
                   finish(operation);
                 },
                 [&](frame::Refused& refused) {  // Unavailable, of spaced-host itself
                   to.send(frame::Frame{stream, std::move(refused)});
                   finish(operation);
                 },
                 [](auto&) {},
             },
             payload);
}

void SbxManager::renew(Operation& operation, const frame::Renew& renew) {
  const identity::SealedCapability sealed{renew.capability.sealed};
  const auto fresh = identity::verify(sealed, keys_, world_.signatures, &signatures_,
                                      context(operation.peer.holder, operation.kind));
  frame::Renewed renewed;
  if (!fresh) {
    renewed.refused = fresh.error();
  } else if (session_ended(fresh->claims().session)) {
    renewed.refused = identity::DenyReason::kSessionRevoked;
  } else {
    renewed.refused =
        leases_.renew(operation.lease, *fresh, options_.tolerance, world_.clock.now());
  }
  if (const auto* lease = leases_.live(operation.lease, world_.clock.now())) {
    renewed.lease_deadline = lease->deadline;
  }
  operation.peer.connection.send(frame::Frame{operation.peer_stream, renewed});
}

void SbxManager::bridge_over(Bridge& bridge, hop::CloseCause cause) {
  if (cause != hop::CloseCause::kLocal) {
    world_.log.event(Level::kWarning, "bridge.lost",
                     {{"sandbox", bridge.sandbox.id.text()}, {"reason", to_string(cause)}});
  }
  while (!bridge.streams.empty()) {
    auto& operation = *bridge.streams.begin()->second;
    // Once the guest had begun, some of it was forwarded; before that the OPEN may or may not have
    // arrived.
    const auto forwarded =
        operation.admitted ? frame::Forwarded::kSome : frame::Forwarded::kUnknown;
    operation.peer.connection.send(frame::Frame{
        operation.peer_stream, frame::Reset{frame::ResetCode::kConnectionLost, forwarded}});
    finish(operation);
  }
  if (bridge.sandbox.bridge.get() == &bridge) bridge.sandbox.bridge.reset();
}

void SbxManager::finish(Operation& operation) {
  operation.peer.streams.erase(operation.peer_stream);
  operation.bridge.streams.erase(operation.bridge_stream);
  --operation.sandbox.operations;
  const auto lease = operation.lease;
  leases_.release(lease);
  operations_.erase(lease);
}

// Input and output of the ended leases stop in this turn: what is queued is dropped both ways
// (P-14).
void SbxManager::cut(const std::vector<identity::LeaseId>& ended, identity::LeaseEnd reason) {
  for (const auto id : ended) {
    const auto at = operations_.find(id);
    if (at == operations_.end()) continue;
    auto& operation = *at->second;
    auto& peer = operation.peer.connection;
    peer.discard(operation.peer_stream);
    peer.send(frame::Frame{operation.peer_stream, frame::Revoked{id, reason}});
    auto& bridge = operation.bridge.connection;
    bridge.discard(operation.bridge_stream);
    bridge.send(frame::Frame{operation.bridge_stream,
                             frame::Reset{frame::ResetCode::kCancelled, frame::Forwarded::kSome}});
    finish(operation);
  }
}

Task<void> SbxManager::expire_leases() {
  while (!stopping_) {
    cut(leases_.end_expired(world_.clock.now()), identity::LeaseEnd::kExpired);
    std::optional<MonoTime> until;
    if (const auto next = leases_.next_deadline()) {
      // The calendar clock may be set meanwhile: look at least once a second.
      const auto wait = std::clamp<BootClock::duration>(
          *next - world_.clock.now(), std::chrono::milliseconds(1), std::chrono::seconds(1));
      until = world_.timer.now() + wait;
    }
    const auto wake = co_await lease_taken_.wait(world_.timer, until);
    if (wake == Notifier::Wake::kCancelled) co_return;
  }
}

}  // namespace space::sbx_manager
