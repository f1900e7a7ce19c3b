#include "services/control_plane/worker_link.h"

#include <algorithm>

#include "services/hop/peer.h"

namespace space::control_plane {

WorkerLink::WorkerLink(Timer& timer, const WallClock& clock, Dialer& dialer, Entropy& entropy,
                       Log& log, Owner& owner, WorkerOptions options, identity::BootNonce boot,
                       std::string name, Timing timing)
    : timer_(timer),
      clock_(clock),
      dialer_(dialer),
      entropy_(entropy),
      log_(log),
      owner_(owner),
      options_(std::move(options)),
      boot_(boot),
      name_(std::move(name)),
      timing_(timing) {}

std::string WorkerLink::reason() const {
  if (up_) return {};
  return "worker " + options_.id.text() + " is unreachable: " + why_down_;
}

void WorkerLink::stop() {
  stopped_ = true;
  if (mux_ != nullptr) mux_->connection().close();
  changed_.notify();
}

void WorkerLink::down(std::string why) {
  if (up_)
    log_.event(Level::kWarning, "worker.down", {{"worker", options_.id.text()}, {"reason", why}});
  up_ = false;
  why_down_ = std::move(why);
  changed_.notify();
}

Task<void> WorkerLink::run() {
  auto retry = timing_.first_retry;
  while (!stopped_) {
    auto stream = co_await dialer_.dial(options_.control_address, timer_.now() + timing_.handshake);
    if (stopped_) break;
    if (stream) {
      const auto began = timer_.now();
      co_await serve_connection(*std::move(stream));
      // A connection that held starts the back-off anew.
      if (timer_.now() - began > timing_.last_retry) retry = timing_.first_retry;
    } else {
      down(stream.error().message());
    }
    if (stopped_) break;
    const auto until = timer_.now() + retry;
    while (!stopped_ && timer_.now() < until) {
      if (co_await changed_.wait(timer_, until) == Notifier::Wake::kCancelled) co_return;
    }
    retry = std::min(retry * 2, timing_.last_retry);
  }
}

Task<void> WorkerLink::serve_connection(std::unique_ptr<Stream> stream) {
  const hop::ExpectedPeer expected{identity::PeerRole::kWorker, options_.id.text(), {}, {}};
  if (!hop::is(*stream, expected)) {
    log_.event(Level::kAlarm, "worker.wrong_peer",
               {{"worker", options_.id.text()}, {"peer", hop::describe_peer(*stream)}});
    down("another part answers at its address");
    co_return;
  }
  hop::Connection::Options options;
  options.self = frame::Role::kControlPlane;
  options.peer = frame::Role::kManager;
  options.dialled = true;
  options.id = name_;
  options.boot = boot_;
  hop::Connection connection(std::move(stream), timer_, std::move(options));
  const auto hello = co_await connection.handshake(timer_.now() + timing_.handshake);
  if (!hello) {
    down("handshake: " + hello.error().message());
    co_return;
  }
  if (hello->peer_id != options_.id.text()) {
    connection.close();
    log_.event(Level::kAlarm, "worker.wrong_id",
               {{"worker", options_.id.text()}, {"peer", hello->peer_id}});
    down("another worker answers at its address");
    co_return;
  }
  boot_of_worker_ = hello->boot;
  hop::Mux mux(connection, timer_);
  mux_ = &mux;
  TaskScope tasks(timer_);
  tasks.spawn("worker.keep", keep(mux));
  if (stopped_) connection.close();
  co_await mux.run();
  mux_ = nullptr;
  down(up_ ? "the connection ended" : why_down_);
  co_await tasks.join();
  while (in_flight_ > 0) co_await changed_.wait(timer_);
}

Task<void> WorkerLink::keep(hop::Mux& mux) {
  std::optional<MonoTime> bundle_due;
  bool seen = false;
  while (!mux.closed()) {
    const auto now = timer_.now();
    if (!bundle_due || *bundle_due <= now) {
      if (!co_await install_bundle(mux)) {
        bundle_due.reset();
      } else {
        bundle_due = now + timing_.bundle_every;
      }
    }
    if (mux.closed()) break;
    const bool leased = co_await renew_lease(mux);
    if (mux.closed()) break;
    if (bundle_due && leased) {
      if (!up_) {
        up_ = true;
        log_.event(Level::kInfo, "worker.up",
                   {{"worker", options_.id.text()}, {"bundle", bundle_.value}});
        changed_.notify();
      }
      seen = true;
    }
    if (seen) co_await owner_.worker_seen(*this);
    const auto until = timer_.now() + timing_.lease_every;
    while (!mux.closed() && timer_.now() < until) {
      if (co_await changed_.wait(timer_, until) == Notifier::Wake::kCancelled) {
        mux.connection().close();
        co_return;
      }
    }
  }
}

Task<bool> WorkerLink::install_bundle(hop::Mux& mux) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    frame::Bundle request;
    request.bundle = identity::encode_bundle(owner_.current_bundle());
    auto answer = co_await mux.exchange(std::move(request), timer_.now() + timing_.handshake);
    const auto* ack = answer ? std::get_if<frame::BundleAck>(&*answer) : nullptr;
    if (ack == nullptr) {
      why_down_ = "it does not acknowledge the key bundle";
      mux.connection().close();
      co_return false;
    }
    bundle_ = ack->version;
    if (!ack->refused) co_return true;
    why_down_ = "it refused the key bundle: " + std::string(to_string(*ack->refused));
    log_.event(Level::kError, "bundle.refused",
               {{"worker", options_.id.text()}, {"reason", to_string(*ack->refused)}});
    if (*ack->refused != identity::BundleRefusal::kOlderThanFloor) co_return false;
    co_await owner_.bundle_refused(ack->version);
  }
  co_return false;
}

Task<bool> WorkerLink::renew_lease(hop::Mux& mux) {
  frame::Lease request;
  request.duration_ms = static_cast<std::uint32_t>(timing_.lease_duration.count());
  request.now = clock_.now();
  auto answer = co_await mux.exchange(request, timer_.now() + timing_.handshake);
  const auto* ack = answer ? std::get_if<frame::LeaseAck>(&*answer) : nullptr;
  if (ack == nullptr) {
    why_down_ = "it does not renew its lease";
    mux.connection().close();
    co_return false;
  }
  if (clock_healthy_ && !ack->clock_healthy) {
    log_.event(
        Level::kWarning, "worker.clock_unhealthy",
        {{"worker", options_.id.text()}, {"offset_ms", std::to_string(ack->clock_offset_ms)}});
  }
  clock_healthy_ = ack->clock_healthy;
  clock_offset_ms_ = ack->clock_offset_ms;
  co_return true;
}

Task<CallResult<Bytes>> WorkerLink::call(policy::Operation operation, Bytes metadata,
                                         BootClock::duration limit) {
  if (!up_ || mux_ == nullptr) {
    CallFailure failure{true, frame::Outcome::kUnavailable, reason()};
    co_return std::unexpected(std::move(failure));
  }
  frame::Open open;
  open.request = random_id<frame::RequestId>(entropy_);
  open.operation = operation;
  open.deadline_ms = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(limit).count());
  open.metadata = std::move(metadata);
  const InFlight in_flight(*this);
  auto& mux = *mux_;
  auto end = co_await hop::call(mux, std::move(open), timer_.now() + limit);
  if (end.outcome == frame::Outcome::kOk) co_return std::move(end.result);
  const bool lost = mux.closed() || stopped_;
  CallFailure failure{lost || end.outcome == frame::Outcome::kDeadlineExceeded ||
                          end.outcome == frame::Outcome::kInterrupted,
                      end.outcome, std::move(end.message)};
  if (lost) failure.message = "worker " + options_.id.text() + ": the connection ended";
  co_return std::unexpected(std::move(failure));
}

Task<CallResult<frame::Payload>> WorkerLink::exchange(frame::Payload request,
                                                      BootClock::duration limit) {
  if (!up_ || mux_ == nullptr) {
    CallFailure failure{true, frame::Outcome::kUnavailable, reason()};
    co_return std::unexpected(std::move(failure));
  }
  const InFlight in_flight(*this);
  auto answer = co_await mux_->exchange(std::move(request), timer_.now() + limit);
  if (!answer) {
    CallFailure failure{true, frame::Outcome::kUnavailable,
                        "worker " + options_.id.text() + " did not answer"};
    co_return std::unexpected(std::move(failure));
  }
  co_return *std::move(answer);
}

void WorkerLink::tell(frame::SessionEnded ended) {
  if (mux_ == nullptr || mux_->closed()) return;
  mux_->connection().send(frame::Frame{0, ended});
}

Task<bool> WorkerLink::wait_up(MonoTime deadline) {
  while (!up_ && !stopped_ && timer_.now() < deadline) {
    if (co_await changed_.wait(timer_, deadline) == Notifier::Wake::kCancelled) break;
  }
  co_return up_ && !stopped_;
}

}  // namespace space::control_plane
