#pragma once
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/policy/operations.h"
#include "core/wire/messages.h"
#include "ports/clock.h"
#include "ports/entropy.h"
#include "ports/log.h"
#include "ports/stream.h"
#include "ports/task_scope.h"
#include "services/hop/mux.h"
#include "services/hop/peer.h"
#include "services/node_api/capability_cache.h"
#include "services/node_api/route_cache.h"
#include "services/node_api/session_cache.h"

namespace space::node_api {

namespace frame = wire::hop;

// Why an operation was not done, for the caller.
struct Failure {
  frame::Outcome outcome = frame::Outcome::kInternal;
  std::string reason;   // a closed word: "stale", "installing", "paused", ...; may be empty
  std::string message;  // for people
  std::uint32_t retry_after_ms =
      0;  // 0: no hint. With kConflict: "aborted", the same call may succeed later
};
template <class T>
using Result = std::expected<T, Failure>;

// The one answer about a sandbox of another team and about none (C023). Its reason is set here
// alone: nothing that a guest says reads like it.
inline constexpr std::string_view kNoSuchSandbox = "no_such_sandbox";
Failure no_such_sandbox();
// The reason of a sandbox that has to be resumed first.
inline constexpr std::string_view kPaused = "paused";
// The reason why the control plane knows no such credential, or no longer.
inline constexpr std::string_view kNoSession = "no_session";

// Who calls, for as long as its request lives: the credential, to be presented again when the
// session nears its end, and the session it was given (P-18). Shared by the tasks of one request.
struct Caller {
  std::string credential;
  Session session;
};
using CallerPtr = std::shared_ptr<Caller>;

struct Counters {
  std::uint64_t admitted = 0;
  std::uint64_t repairs = 0;   // refused openings that were rebuilt
  std::uint64_t look_ups = 0;  // of routes, at the control plane
  std::uint64_t mints = 0;
  std::uint64_t renewals = 0;
  std::uint64_t misroutes =
      0;  // ADMITTED of another identity than the capability's: never expected
  std::map<std::string, std::uint64_t, std::less<>> refusals;  // by reason
};

class Gateway;

// One admitted operation: the hop channel to the worker, whose lease is renewed while this lives.
class Admission {
 public:
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // The execution that serves: equal to the capability's (checked before any DATA).
  const identity::RouteIdentity& identity() const { return identity_; }
  bool repaired() const { return repaired_; }

  // The next DATA, END, RESET, REVOKED or Lost; TimedOut at `deadline`.
  Task<hop::ChannelEvent> next(std::optional<MonoTime> deadline = std::nullopt);
  // Sends bytes as the window allows; false when the operation is over. `bytes` outlives the task.
  Task<bool> write(ByteView bytes) { return channel_->write(bytes); }
  // No more bytes from this side.
  void end() { channel_->end(frame::End{}); }
  // Gives the operation up; a pending next() ends with Lost.
  void cancel();
  // The same for somebody who may outlive the admission.
  std::move_only_function<void()> canceller() const;
  bool over() const { return channel_->over(); }

 private:
  friend class Gateway;
  struct Renewal;
  Admission() = default;

  identity::RouteIdentity identity_;
  bool repaired_ = false;
  std::shared_ptr<hop::Channel> channel_;
  std::shared_ptr<Renewal> renewal_;
};

// The gateway without HTTP: sessions, routes, capabilities, connections to the control plane and
// the workers, admission and repair (P-16 to P-19). Owned by one loop; everything passed in
// outlives it.
class Gateway {
 public:
  struct Options {
    std::string control_address;
    std::string id = "node-api";
    // Who must be at the other end of a connection without certificates: the uid of the control
    // plane and of the managers. Absent: not checked (transports without credentials).
    std::optional<std::uint32_t> control_uid;
    std::optional<std::uint32_t> worker_uid;
  };
  Gateway(Dialer& dialer, Timer& timer, const WallClock& clock, Entropy& entropy, Log& log,
          Options options);
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;
  ~Gateway();

  // Begins to keep the connection to the control plane.
  void start();
  // Ends all connections and tasks. Nothing else may be called afterwards.
  Task<void> stop();
  bool control_connected() const;
  const Counters& counters() const { return counters_; }
  // The cached route of a sandbox, or null. Valid until the next turn.
  const Route* cached_route(const identity::SandboxId& sandbox) const {
    return routes_.peek(sandbox);
  }

  // The session of a credential, cached or freshly authorised. kUnauthenticated for an unknown one.
  Task<Result<CallerPtr>> authorise(std::string credential);

  // Opens an operation on a sandbox and returns once every later hop has admitted it; nothing of a
  // body may be read before (P-19). At most one rebuilt attempt after a RefreshRoute refusal
  // (RC-2). A sandbox of another team and none at all fail alike.
  Task<Result<std::unique_ptr<Admission>>> open(CallerPtr caller, identity::SandboxId sandbox,
                                                policy::Operation operation, Bytes metadata);

  // An operation whose answer is one record: opens it, sends no bytes, collects END or the DATA
  // before it (at most kMaxRecordBytes) within `limit` of its admission, 60 s at most. Repeated
  // once after a transport failure where the table allows.
  struct Answer {
    Bytes result;
    identity::RouteIdentity identity;
    bool repaired = false;
  };
  Task<Result<Answer>> call(CallerPtr caller, identity::SandboxId sandbox,
                            policy::Operation operation, Bytes metadata,
                            std::optional<BootClock::duration> limit = std::nullopt);

  // The claims of the capability with which this caller would open `operation` now, for people to
  // look at. The sealed bytes stay here: they are worth something to this node-api alone (P-1).
  Task<Result<identity::Claims>> claims(CallerPtr caller, identity::SandboxId sandbox,
                                        policy::Operation operation);

  // A platform operation of the control plane. Waits a bounded time for the connection. A record
  // that names a session the control plane does not know (any more) is sent once more with a
  // re-authorised one.
  template <class Answered, class Request>
  Task<Result<Answered>> ask(CallerPtr caller, policy::Operation operation, Request request) {
    for (bool again = false;; again = true) {
      request.session = caller->session.id;
      auto metadata = wire::encode(request);
      auto answer = co_await platform(operation, std::move(metadata));
      if (!answer && answer.error().outcome == frame::Outcome::kUnauthenticated && !again) {
        auto opened = co_await reauthorise(caller);
        if (!opened) co_return std::unexpected(std::move(opened).error());
        continue;
      }
      if (!answer) co_return std::unexpected(std::move(answer).error());
      auto decoded = wire::decode<Answered>(*answer);
      if (!decoded) co_return std::unexpected(malformed_answer(operation));
      co_return std::move(*decoded);
    }
  }

 private:
  struct Link;
  struct WorkerKey {
    identity::WorkerId worker;
    identity::BootNonce boot;
    std::string endpoint;
    auto operator<=>(const WorkerKey&) const = default;
  };
  template <class T>
  struct Flight {
    std::optional<Result<T>> result;
    identity::SessionId session;  // of the caller that leads
    Notifier done;
  };
  struct Refused {
    identity::RouteIdentity identity;
    identity::Attempt attempt;
  };
  struct Waiting;  // the bounded wait of one opening

  static Failure malformed_answer(policy::Operation operation);

  Task<void> keep_control();
  Task<IoResult<std::shared_ptr<Link>>> connect(std::string address, frame::Role peer,
                                                hop::ExpectedPeer expected, MonoTime deadline);
  Task<Result<Bytes>> platform(policy::Operation operation, Bytes metadata);
  Task<Result<std::shared_ptr<Link>>> control(MonoTime deadline);
  Task<Result<void>> reauthorise(CallerPtr caller);

  Task<Result<Route>> resolve(CallerPtr caller, identity::SandboxId sandbox,
                              std::optional<Refused> refused);
  Task<Result<Route>> look_up(CallerPtr caller, identity::SandboxId sandbox);
  Task<Result<Bytes>> capability(CallerPtr caller, CapabilityKey key);
  static CapabilityKey control_key(const Caller& caller, const Route& route,
                                   const policy::OperationInfo& operation);

  Task<Result<std::shared_ptr<Link>>> worker(Route route);
  Task<Result<std::shared_ptr<Link>>> dial_worker(identity::WorkerId worker, std::string endpoint);
  Task<void> serve_worker(std::shared_ptr<Link> link, WorkerKey key);

  Task<bool> wait_more(Waiting& waiting, std::uint32_t hint_ms);
  Failure refusal(const frame::Refused& refused);
  std::unique_ptr<Admission> admit(const CallerPtr& caller, std::shared_ptr<hop::Channel> channel,
                                   const CapabilityKey& key, const frame::Admitted& admitted);
  void arm(const std::shared_ptr<Admission::Renewal>& renewal);
  Task<void> renew(std::shared_ptr<Admission::Renewal> renewal);

  Dialer& dialer_;
  Timer& timer_;
  const WallClock& clock_;
  Entropy& entropy_;
  Log& log_;
  Options options_;
  identity::BootNonce boot_;

  SessionCache sessions_;
  RouteCache routes_;
  CapabilityCache capabilities_;
  Counters counters_;

  std::shared_ptr<Link> control_;
  Notifier control_changed_;
  std::map<WorkerKey, std::shared_ptr<Link>> workers_;
  std::map<identity::SandboxId, std::shared_ptr<Flight<Route>>> look_ups_;
  std::map<std::pair<identity::WorkerId, std::string>,
           std::shared_ptr<Flight<std::shared_ptr<Link>>>>
      dials_;
  bool stopping_ = false;
  TaskScope tasks_;
};

}  // namespace space::node_api
