#pragma once
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/wire/messages.h"
#include "ports/entropy.h"
#include "ports/log.h"
#include "ports/stream.h"
#include "ports/task_scope.h"
#include "services/hop/mux.h"

namespace space::control_plane {

namespace frame = wire::hop;

struct WorkerOptions {
  identity::WorkerId id;
  std::string control_address;  // the manager's listener for the control plane
  std::string endpoint;         // its listener for node-apis, as told to them
  std::uint32_t max_sandboxes = 64;
};

// Why a call to a worker did not succeed. `unknown`: the connection ended or no answer came in
// time, so the worker may have done it; otherwise the worker answered that it did not.
struct CallFailure {
  bool unknown = false;
  frame::Outcome outcome = frame::Outcome::kInternal;
  std::string message;
};
template <class T>
using CallResult = std::expected<T, CallFailure>;

// The control connection to one worker's manager, kept up with back-off, with its key bundle,
// worker lease and clock (P-6, P-15, P-2). Owned by one loop.
class WorkerLink {
 public:
  // What the link asks of its owner. Outlives the link.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The bundle to be installed now, its validity counted from now.
    virtual identity::KeyBundle current_bundle() = 0;
    // The receiver holds `version` already with other content, or a higher one: the next must
    // exceed it.
    virtual Task<void> bundle_refused(identity::BundleVersion version) = 0;
    // The link is up and its bundle is installed; awaited, then called again every lease interval.
    virtual Task<void> worker_seen(WorkerLink& link) = 0;
  };
  struct Timing {
    BootClock::duration lease_every = std::chrono::seconds(5);
    std::chrono::milliseconds lease_duration{15'000};
    BootClock::duration bundle_every = std::chrono::seconds(60);
    BootClock::duration first_retry = std::chrono::milliseconds(100);
    BootClock::duration last_retry = std::chrono::seconds(2);
    BootClock::duration handshake = std::chrono::seconds(5);
  };
  WorkerLink(Timer& timer, const WallClock& clock, Dialer& dialer, Entropy& entropy, Log& log,
             Owner& owner, WorkerOptions options, identity::BootNonce boot, std::string name,
             Timing timing);

  // Keeps the connection up until `stop()`.
  Task<void> run();
  void stop();

  const WorkerOptions& options() const { return options_; }
  // Connected, with a key bundle installed.
  bool up() const { return up_; }
  // Why it is not up, for people: "worker w1 is unreachable: ...".
  std::string reason() const;
  // The manager's last known boot; zero before the first connection.
  identity::BootNonce boot() const { return boot_of_worker_; }
  identity::BundleVersion bundle() const { return bundle_; }
  bool clock_healthy() const { return clock_healthy_; }
  std::int64_t clock_offset_ms() const { return clock_offset_ms_; }

  // One node operation; its result bytes. Fails at once when the link is not up.
  Task<CallResult<Bytes>> call(policy::Operation operation, Bytes metadata,
                               BootClock::duration limit);
  template <class Result, class Request>
  Task<CallResult<Result>> call_as(policy::Operation operation, Request request,
                                   BootClock::duration limit) {
    auto answer = co_await call(operation, wire::encode(request), limit);
    if (!answer) co_return std::unexpected(std::move(answer).error());
    auto result = wire::decode<Result>(*answer);
    if (!result) {
      CallFailure malformed{true, frame::Outcome::kInternal, "the worker's answer is malformed"};
      co_return std::unexpected(std::move(malformed));
    }
    co_return *std::move(result);
  }
  // INSTALL or RETIRE.
  Task<CallResult<frame::Payload>> exchange(frame::Payload request, BootClock::duration limit);
  // Says that a session is over; nothing when the link is down.
  void tell(frame::SessionEnded ended);
  // Completes when the link is up, true; false at the deadline or when stopped.
  Task<bool> wait_up(MonoTime deadline);

 private:
  Task<void> serve_connection(std::unique_ptr<Stream> stream);
  Task<void> keep(hop::Mux& mux);
  Task<bool> install_bundle(hop::Mux& mux);
  Task<bool> renew_lease(hop::Mux& mux);
  void down(std::string why);
  // The mux outlives every call on it: its connection waits for them.
  struct InFlight {
    explicit InFlight(WorkerLink& owner) : link(owner) { ++link.in_flight_; }
    ~InFlight() {
      --link.in_flight_;
      link.changed_.notify();
    }
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    WorkerLink& link;
  };

  Timer& timer_;
  const WallClock& clock_;
  Dialer& dialer_;
  Entropy& entropy_;
  Log& log_;
  Owner& owner_;
  WorkerOptions options_;
  identity::BootNonce boot_;
  std::string name_;
  Timing timing_;

  bool stopped_ = false;
  bool up_ = false;
  std::string why_down_ = "not connected yet";
  hop::Mux* mux_ = nullptr;  // while connected
  std::size_t in_flight_ = 0;
  identity::BootNonce boot_of_worker_;
  identity::BundleVersion bundle_;
  bool clock_healthy_ = true;
  std::int64_t clock_offset_ms_ = 0;
  Notifier changed_;
};

}  // namespace space::control_plane
