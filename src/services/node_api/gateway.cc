#include "services/node_api/gateway.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/result.h"

namespace space::node_api {
namespace {

using frame::Outcome;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr BootClock::duration kControlWait = seconds(2);     // for the control plane's connection
constexpr BootClock::duration kConnectTime = seconds(5);     // dial and handshake
constexpr BootClock::duration kAdmissionTime = seconds(15);  // OPEN to ADMITTED
constexpr BootClock::duration kUnaryTime = seconds(60);      // ADMITTED to the whole answer
constexpr BootClock::duration kInstallWait = seconds(2);     // P-9
constexpr BootClock::duration kFirstPause = milliseconds(25);
constexpr BootClock::duration kLastPause = milliseconds(400);
constexpr BootClock::duration kShortCall = seconds(10);
constexpr BootClock::duration kLifecycleCall = seconds(150);
constexpr milliseconds kRenewBefore{25'000};  // less than a cached capability must have left
constexpr BootClock::duration kRenewRetry = seconds(5);
constexpr std::uint32_t kRetryHintMs = 500;

Failure failure(Outcome outcome, std::string_view reason, std::string message,
                std::uint32_t retry_after_ms = 0) {
  return Failure{outcome, std::string(reason), std::move(message), retry_after_ms};
}

// What a lifecycle step or a minting says about a sandbox that the caller may not know: one answer
// for another team's and for none (C023).
Failure about_sandbox(Failure given) {
  if (given.outcome == Outcome::kNotFound || given.outcome == Outcome::kPermissionDenied) {
    return no_such_sandbox();
  }
  return given;
}

// What the control plane answered.
Failure from_control(policy::Operation operation, frame::End end) {
  auto failed = failure(end.outcome, "", std::move(end.message));
  if (end.outcome == Outcome::kUnauthenticated) failed.reason = kNoSession;
  // In transition, or something it needs is away: the same call may succeed soon (C009). A create
  // that goes on by itself is no call to be made twice.
  if (end.outcome == Outcome::kUnavailable && operation != policy::Operation::kSandboxCreate) {
    failed.retry_after_ms = kRetryHintMs;
  }
  if (end.outcome == Outcome::kConflict && failed.message == "paused") {
    failed.reason = kPaused;
    failed.message = "the sandbox is paused";
  }
  return failed;
}

BootClock::duration time_limit(policy::Operation operation) {
  using enum policy::Operation;
  switch (operation) {
    case kSandboxCreate:
    case kSandboxKill:
    case kSandboxPause:
    case kSandboxResume:
    case kSandboxMove:
      return kLifecycleCall;
    case kSessionOpen:
    case kSandboxList:
    case kSandboxGet:
    case kSandboxSetTimeout:
    case kSandboxRoute:
    case kRouteResolve:
    case kCapabilityMint:
    case kPlatformStatus:
    case kFileRead:
    case kFileWrite:
    case kFileStat:
    case kFileList:
    case kFileRemove:
    case kFileMakeDir:
    case kFileMove:
    case kProcessStart:
    case kProcessList:
    case kProcessSignal:
    case kProcessInput:
    case kNodeStart:
    case kNodeFreeze:
    case kNodeThaw:
    case kNodePublish:
    case kNodeDestroy:
    case kNodeStatus:
      return kShortCall;
  }
  std::unreachable();
}

// Whether an operation may be sent again when its transport failed (RC-5).
bool may_replay(policy::Replay replay, frame::Forwarded forwarded) {
  return forwarded == frame::Forwarded::kNone || replay == policy::Replay::kIdempotent;
}

Failure interrupted(const policy::OperationInfo& info, frame::Forwarded forwarded) {
  if (forwarded == frame::Forwarded::kNone || info.replay == policy::Replay::kIdempotent) {
    return failure(Outcome::kUnavailable, "connection_lost",
                   "the connection to the worker ended; nothing was done", kRetryHintMs);
  }
  return failure(Outcome::kInterrupted, "outcome_unknown",
                 "the connection to the worker ended; whether the operation was done is unknown");
}

}  // namespace

Failure no_such_sandbox() { return failure(Outcome::kNotFound, kNoSuchSandbox, "no such sandbox"); }

// One connection with its endpoint. Kept by its serving task and by whoever is about to open on it.
struct Gateway::Link {
  Link(std::unique_ptr<Stream> stream, Timer& timer, hop::Connection::Options options)
      : connection(std::move(stream), timer, std::move(options)), mux(connection, timer) {}
  hop::Connection connection;
  hop::Mux mux;
};

struct Gateway::Waiting {
  std::optional<MonoTime> until;  // set by the first wait
  BootClock::duration pause = kFirstPause;
};

struct Admission::Renewal {
  std::weak_ptr<hop::Channel> channel;
  CallerPtr caller;
  CapabilityKey key;
  WallTime expires_at;  // of the capability that the lease rests on
  std::unique_ptr<Timer::Alarm> alarm;
};

Admission::~Admission() {
  if (renewal_) renewal_->alarm.reset();
}

Task<hop::ChannelEvent> Admission::next(std::optional<MonoTime> deadline) {
  for (;;) {
    auto event = co_await channel_->next(deadline);
    // A refused renewal shows itself as REVOKED at the lease's deadline.
    if (std::holds_alternative<frame::Renewed>(event)) continue;
    if (std::holds_alternative<frame::Consumed>(event)) continue;
    co_return event;
  }
}

void Admission::cancel() { channel_->reset(frame::ResetCode::kCancelled); }

std::move_only_function<void()> Admission::canceller() const {
  return [weak = std::weak_ptr(channel_)] {
    if (const auto channel = weak.lock()) channel->reset(frame::ResetCode::kCancelled);
  };
}

Gateway::Gateway(Dialer& dialer, Timer& timer, const WallClock& clock, Entropy& entropy, Log& log,
                 Options options)
    : dialer_(dialer),
      timer_(timer),
      clock_(clock),
      entropy_(entropy),
      log_(log),
      options_(std::move(options)),
      boot_(random_id<identity::BootNonce>(entropy)),
      tasks_(timer) {}

Gateway::~Gateway() = default;

void Gateway::start() { tasks_.spawn("node_api.control", keep_control()); }

Task<void> Gateway::stop() {
  stopping_ = true;
  if (control_) control_->connection.close();
  for (const auto& [key, link] : workers_) link->connection.close();
  control_changed_.notify();
  co_await tasks_.stop();
}

bool Gateway::control_connected() const { return control_ && !control_->connection.closed(); }

Failure Gateway::malformed_answer(policy::Operation operation) {
  return failure(Outcome::kInternal, "malformed_answer",
                 "malformed answer to " + std::string(policy::info(operation).name));
}

// ---- connections ----

Task<IoResult<std::shared_ptr<Gateway::Link>>> Gateway::connect(std::string address,
                                                                frame::Role peer,
                                                                hop::ExpectedPeer expected,
                                                                MonoTime deadline) {
  auto stream = co_await dialer_.dial(std::move(address), deadline);
  if (!stream) co_return std::unexpected(stream.error());
  if (!hop::is(**stream, expected)) {
    log_.event(Level::kAlarm, "peer.unexpected",
               {{"expected", to_string(expected.role)}, {"peer", hop::describe_peer(**stream)}});
    co_return io_error(std::errc::permission_denied);
  }
  hop::Connection::Options options{.self = frame::Role::kNodeApi,
                                   .peer = peer,
                                   .dialled = true,
                                   .id = options_.id,
                                   .boot = boot_};
  auto link = std::make_shared<Link>(std::move(*stream), timer_, std::move(options));
  const auto hello = co_await link->connection.handshake(deadline);
  if (!hello) co_return std::unexpected(hello.error());
  co_return link;
}

Task<void> Gateway::keep_control() {
  auto pause = kFirstPause;
  bool told = false;
  while (!stopping_) {
    hop::ExpectedPeer expected{identity::PeerRole::kControlPlane, {}, {}, options_.control_uid};
    auto link = co_await connect(options_.control_address, frame::Role::kControlPlane,
                                 std::move(expected), timer_.now() + kConnectTime);
    if (!link) {
      if (!told) {
        log_.event(Level::kWarning, "control.unreachable", {{"error", link.error().message()}});
        told = true;
      }
      if (!co_await sleep_for(timer_, pause)) co_return;
      pause = std::min(pause * 2, BootClock::duration(seconds(2)));
      continue;
    }
    if (stopping_) co_return;
    pause = kFirstPause;
    told = false;
    log_.event(Level::kInfo, "control.connected", {{"peer", (*link)->connection.peer().peer_id}});
    (*link)->mux.on_request([this](frame::StreamId, frame::Payload payload) {
      if (const auto* ended = std::get_if<frame::SessionEnded>(&payload)) {
        sessions_.erase_session(ended->session);
        capabilities_.erase_session(ended->session);
      }
    });
    control_ = *link;
    control_changed_.notify();
    co_await (*link)->mux.run();
    control_.reset();
    log_.event(Level::kWarning, "control.disconnected", {});
  }
}

Task<Result<std::shared_ptr<Gateway::Link>>> Gateway::control(MonoTime deadline) {
  while (!control_connected()) {
    const auto wake = co_await control_changed_.wait(timer_, deadline);
    if (wake != Notifier::Wake::kNotified || stopping_) {
      co_return std::unexpected(failure(Outcome::kUnavailable, "control_plane_down",
                                        "the control plane can't be reached", kRetryHintMs));
    }
  }
  co_return control_;
}

Task<Result<Bytes>> Gateway::platform(policy::Operation operation, Bytes metadata) {
  const auto& info = policy::info(operation);
  for (bool again = false;; again = true) {
    auto link = co_await control(timer_.now() + kControlWait);
    if (!link) co_return std::unexpected(std::move(link).error());
    if (!(*link)->connection.rules().may_open()) {
      co_return std::unexpected(failure(Outcome::kLimitReached, "overloaded",
                                        "too many calls wait for the control plane", kRetryHintMs));
    }
    frame::Open open;
    open.request = random_id<frame::RequestId>(entropy_);
    open.operation = operation;
    open.metadata = metadata;
    auto end =
        co_await hop::call((*link)->mux, std::move(open), timer_.now() + time_limit(operation));
    if (end.outcome == Outcome::kOk) co_return std::move(end.result);
    if (end.outcome == Outcome::kUnavailable && (*link)->connection.closed()) {
      if (info.replay == policy::Replay::kIdempotent && !again) continue;
      co_return std::unexpected(failure(Outcome::kInterrupted, "control_plane_down",
                                        "the control plane went away; whether " +
                                            std::string(info.name) + " was done is unknown"));
    }
    co_return std::unexpected(from_control(operation, std::move(end)));
  }
}

Task<Result<std::shared_ptr<Gateway::Link>>> Gateway::worker(Route route) {
  const WorkerKey wanted{route.identity.worker, route.worker_boot, route.endpoint};
  if (const auto at = workers_.find(wanted);
      at != workers_.end() && !at->second->connection.closed()) {
    co_return at->second;
  }
  const auto name = std::pair(route.identity.worker, route.endpoint);
  if (const auto at = dials_.find(name); at != dials_.end()) {
    const auto flight = at->second;
    const auto deadline = timer_.now() + kConnectTime;
    while (!flight->result) {
      if (co_await flight->done.wait(timer_, deadline) != Notifier::Wake::kNotified) {
        co_return std::unexpected(failure(Outcome::kUnavailable, "worker_unreachable",
                                          "the worker can't be reached", kRetryHintMs));
      }
    }
    co_return *flight->result;
  }
  auto flight = std::make_shared<Flight<std::shared_ptr<Link>>>();
  dials_.emplace(name, flight);
  auto dialled = co_await dial_worker(route.identity.worker, route.endpoint);
  dials_.erase(name);
  flight->result = dialled;
  flight->done.notify();
  if (dialled) routes_.learn_boot(route.identity, (*dialled)->connection.peer().boot);
  co_return dialled;
}

Task<Result<std::shared_ptr<Gateway::Link>>> Gateway::dial_worker(identity::WorkerId worker,
                                                                  std::string endpoint) {
  hop::ExpectedPeer expected{identity::PeerRole::kWorker, worker.text(), {}, options_.worker_uid};
  auto link = co_await connect(endpoint, frame::Role::kManager, std::move(expected),
                               timer_.now() + kConnectTime);
  if (!link || stopping_) {
    log_.event(Level::kWarning, "worker.unreachable",
               {{"worker", worker.text()},
                {"error", link ? std::string("stopping") : link.error().message()}});
    co_return std::unexpected(failure(Outcome::kUnavailable, "worker_unreachable",
                                      "the worker can't be reached", kRetryHintMs));
  }
  // The address only locates; the peer itself says which worker and which run of it this is (ID-3,
  // C001).
  const auto& hello = (*link)->connection.peer();
  if (hello.peer_id != worker.text()) {
    log_.event(Level::kAlarm, "worker.wrong_peer",
               {{"worker", worker.text()}, {"peer", hello.peer_id}});
    (*link)->connection.close();
    co_return std::unexpected(failure(Outcome::kUnavailable, "worker_unreachable",
                                      "another worker answers at this worker's address"));
  }
  WorkerKey key{std::move(worker), hello.boot, std::move(endpoint)};
  workers_.insert_or_assign(key, *link);
  tasks_.spawn("node_api.worker", serve_worker(*link, std::move(key)));
  co_return *link;
}

Task<void> Gateway::serve_worker(std::shared_ptr<Link> link, WorkerKey key) {
  co_await link->mux.run();
  if (const auto at = workers_.find(key); at != workers_.end() && at->second == link) {
    workers_.erase(at);
  }
}

// ---- sessions ----

Task<Result<CallerPtr>> Gateway::authorise(std::string credential) {
  auto caller = std::make_shared<Caller>();
  caller->credential = std::move(credential);
  if (const auto* session = sessions_.find(caller->credential, clock_.now())) {
    caller->session = *session;
    co_return caller;
  }
  auto opened = co_await reauthorise(caller);
  if (!opened) co_return std::unexpected(std::move(opened).error());
  co_return caller;
}

Task<Result<void>> Gateway::reauthorise(CallerPtr caller) {
  const wire::SessionOpenRequest request{caller->credential};
  auto metadata = wire::encode(request);
  auto answer = co_await platform(policy::Operation::kSessionOpen, std::move(metadata));
  // A token whose sandbox is gone is not found.
  if (!answer) co_return std::unexpected(about_sandbox(std::move(answer).error()));
  const auto opened = wire::decode<wire::SessionOpenResult>(*answer);
  if (!opened) co_return std::unexpected(malformed_answer(policy::Operation::kSessionOpen));
  caller->session = Session{opened->session, opened->team, opened->expires_at, opened->sandbox};
  sessions_.insert(caller->credential, caller->session);
  co_return Result<void>{};
}

// ---- routes and capabilities ----

Task<Result<Route>> Gateway::look_up(CallerPtr caller, identity::SandboxId sandbox) {
  ++counters_.look_ups;
  wire::RouteResolveRequest request;
  request.sandbox = sandbox;
  auto answer = co_await ask<wire::RouteResolveResult>(caller, policy::Operation::kRouteResolve,
                                                       std::move(request));
  if (!answer) co_return std::unexpected(about_sandbox(std::move(answer).error()));
  if (answer->route.sandbox != sandbox) {
    co_return std::unexpected(malformed_answer(policy::Operation::kRouteResolve));
  }
  Route route{std::move(answer->route), identity::Attempt{answer->attempt},
              std::move(answer->endpoint), answer->worker_boot};
  if (!routes_.insert(route)) {
    // Something newer became known meanwhile.
    if (const auto* newer = routes_.find(sandbox)) co_return *newer;
  }
  co_return route;
}

Task<Result<Route>> Gateway::resolve(CallerPtr caller, identity::SandboxId sandbox,
                                     std::optional<Refused> refused) {
  const auto was_refused = [&refused](const Route& route) {
    return refused && refused->identity == route.identity && refused->attempt == route.attempt;
  };
  // A look-up that was joined may have begun before the refusal, or failed for the other caller's
  // rights alone; then this caller makes its own. Two rounds of joining at most.
  for (int joined = 0;;) {
    if (const auto* cached = routes_.find(sandbox); cached != nullptr && !was_refused(*cached)) {
      co_return *cached;
    }
    if (const auto at = look_ups_.find(sandbox); at != look_ups_.end() && joined < 2) {
      const auto flight = at->second;
      ++joined;
      while (!flight->result) {
        const auto wake = co_await flight->done.wait(timer_);
        if (wake == Notifier::Wake::kCancelled) {
          co_return std::unexpected(failure(Outcome::kUnavailable, "stopping", "shutting down"));
        }
      }
      const bool final =
          *flight->result ? !was_refused(**flight->result) : flight->session == caller->session.id;
      if (final) co_return *flight->result;
      continue;
    }
    auto flight = std::make_shared<Flight<Route>>();
    flight->session = caller->session.id;
    look_ups_.insert_or_assign(sandbox, flight);
    flight->result = co_await look_up(caller, sandbox);
    flight->session = caller->session.id;
    if (const auto at = look_ups_.find(sandbox); at != look_ups_.end() && at->second == flight) {
      look_ups_.erase(at);
    }
    flight->done.notify();
    if (*flight->result && was_refused(**flight->result)) {
      co_return std::unexpected(failure(Outcome::kUnavailable, "route_refused",
                                        "the selected worker refuses this sandbox's execution",
                                        kRetryHintMs));
    }
    co_return *flight->result;
  }
}

Task<Result<Bytes>> Gateway::capability(CallerPtr caller, CapabilityKey key) {
  if (const auto* cached = capabilities_.find(key, clock_.now())) co_return cached->sealed;
  ++counters_.mints;
  wire::CapabilityMintRequest request;
  request.route = key.route;
  request.attempt = key.attempt.value;
  request.purpose = key.purpose;
  request.access = key.access;
  request.port = key.port;
  request.protocol = key.protocol;
  auto minted = co_await ask<wire::CapabilityMintResult>(caller, policy::Operation::kCapabilityMint,
                                                         std::move(request));
  if (!minted) co_return std::unexpected(about_sandbox(std::move(minted).error()));
  key.session = caller->session.id;
  CachedCapability kept{std::move(minted->sealed), minted->expires_at};
  auto sealed = kept.sealed;
  capabilities_.insert(key, std::move(kept));
  co_return sealed;
}

CapabilityKey Gateway::control_key(const Caller& caller, const Route& route,
                                   const policy::OperationInfo& operation) {
  CapabilityKey key;
  key.session = caller.session.id;
  key.route = route.identity;
  key.attempt = route.attempt;
  key.access = operation.access;
  return key;
}

Task<Result<identity::Claims>> Gateway::claims(CallerPtr caller, identity::SandboxId sandbox,
                                               policy::Operation operation) {
  auto route = co_await resolve(caller, sandbox, std::nullopt);
  if (!route) co_return std::unexpected(std::move(route).error());
  auto key = control_key(*caller, *route, policy::info(operation));
  const auto sealed = co_await capability(caller, std::move(key));
  if (!sealed) co_return std::unexpected(sealed.error());
  std::optional<identity::Claims> claims;
  if (sealed->size() > identity::kSignatureBytes) {
    claims = identity::decode_claims(
        ByteView(*sealed).first(sealed->size() - identity::kSignatureBytes));
  }
  if (!claims) co_return std::unexpected(malformed_answer(policy::Operation::kCapabilityMint));
  co_return std::move(*claims);
}

// ---- admission ----

// Pauses before the same opening is tried again; false once the time of P-9 is used up.
Task<bool> Gateway::wait_more(Waiting& waiting, std::uint32_t hint_ms) {
  const auto now = timer_.now();
  if (!waiting.until) waiting.until = now + kInstallWait;
  if (now >= *waiting.until) co_return false;
  auto pause = waiting.pause;
  if (hint_ms != 0) pause = std::max(pause, BootClock::duration(milliseconds(hint_ms)));
  waiting.pause = std::min(waiting.pause * 2, kLastPause);
  co_return co_await sleep_until(timer_, std::min(now + pause, *waiting.until));
}

Failure Gateway::refusal(const frame::Refused& refused) {
  return std::visit(
      Overload{
          [](const frame::Refresh& r) {
            const auto reason = to_string(r.reason);
            if (r.reason == identity::RefreshReason::kNotYet) {
              return failure(Outcome::kConflict, reason, "the execution is still being installed",
                             kRetryHintMs);
            }
            return failure(Outcome::kUnavailable, reason,
                           "the worker refused the route: " + std::string(reason), kRetryHintMs);
          },
          [](const frame::Denied& d) {
            const auto reason = to_string(d.reason);
            // The receiver's own state, not the caller's right.
            if (d.reason == identity::DenyReason::kNoBundle ||
                d.reason == identity::DenyReason::kClockUnhealthy) {
              return failure(Outcome::kUnavailable, reason, "unavailable: " + std::string(reason),
                             kRetryHintMs);
            }
            return failure(Outcome::kPermissionDenied, reason, "denied: " + std::string(reason));
          },
          [](const frame::Unavailable& u) {
            using enum frame::UnavailableReason;
            const auto reason = to_string(u.reason);
            const auto hint = u.retry_after_ms != 0 ? u.retry_after_ms : kRetryHintMs;
            switch (u.reason) {
              case kInstalling:
                return failure(Outcome::kConflict, reason, "the execution is still being installed",
                               hint);
              case kDraining:
                return failure(Outcome::kConflict, reason, "the sandbox is being paused or moved",
                               hint);
              case kOverloaded:
                return failure(Outcome::kLimitReached, reason, "the worker is overloaded", hint);
              case kNoSuchOperation:
                return failure(Outcome::kUnsupported, reason, "the worker can't do this");
              case kNoBridge:
              case kFenced:
              case kInternal:
                return failure(Outcome::kUnavailable, reason,
                               "the worker can't serve this sandbox now: " + std::string(reason),
                               hint);
            }
            std::unreachable();
          },
      },
      refused.verdict);
}

Task<Result<std::unique_ptr<Admission>>> Gateway::open(CallerPtr caller,
                                                       identity::SandboxId sandbox,
                                                       policy::Operation operation,
                                                       Bytes metadata) {
  using Opened = Result<std::unique_ptr<Admission>>;
  const auto& info = policy::info(operation);
  if (metadata.size() > frame::kMaxMetadataBytes) {
    co_return std::unexpected(
        failure(Outcome::kTooLarge, "", "the request's parameters are larger than 16 KiB"));
  }
  const auto request = random_id<frame::RequestId>(entropy_);
  std::uint8_t attempt = 0;
  std::optional<Refused> refused;
  Waiting waiting;
  bool resent = false;    // after a transport failure
  bool reminted = false;  // after the control plane had selected another execution meanwhile
  for (;;) {
    auto route = co_await resolve(caller, sandbox, refused);
    if (!route) co_return std::unexpected(std::move(route).error());
    auto key = control_key(*caller, *route, info);
    auto sealed = co_await capability(caller, key);
    if (!sealed) {
      if (sealed.error().outcome == Outcome::kConflict) {
        routes_.evict(route->identity, route->attempt);
        if (!std::exchange(reminted, true)) continue;
        if (sealed.error().retry_after_ms == 0) sealed.error().retry_after_ms = kRetryHintMs;
      }
      co_return std::unexpected(std::move(sealed).error());
    }
    key.session = caller->session.id;
    auto link = co_await worker(*route);
    if (!link) {
      // Nothing was sent. The worker may be gone for good, so what is selected now is asked again.
      routes_.evict(route->identity, route->attempt);
      if (co_await wait_more(waiting, 0)) continue;
      co_return std::unexpected(std::move(link).error());
    }
    auto& connection = (*link)->connection;
    if (connection.closed()) {
      if (co_await wait_more(waiting, 0)) continue;
      co_return std::unexpected(interrupted(info, frame::Forwarded::kNone));
    }
    if (!connection.rules().may_open()) {
      co_return std::unexpected(failure(Outcome::kLimitReached, "overloaded",
                                        "too many operations on this worker", kRetryHintMs));
    }
    frame::Open open;
    open.request = request;
    open.attempt = attempt;
    open.operation = operation;
    open.sandbox = sandbox;
    open.authority = frame::Capability{std::move(*sealed)};
    open.metadata = metadata;
    auto channel = (*link)->mux.open(std::move(open));
    auto event = co_await channel->next(timer_.now() + kAdmissionTime);

    if (const auto* admitted = std::get_if<frame::Admitted>(&event)) {
      if (admitted->route != route->identity) {
        ++counters_.misroutes;
        log_.event(Level::kAlarm, "admission.wrong_identity",
                   {{"sandbox", sandbox.text()},
                    {"worker", route->identity.worker.text()},
                    {"wanted_generation", route->identity.generation.value},
                    {"admitted_generation", admitted->route.generation.value}});
        connection.close(hop::CloseCause::kProtocol);
        co_return std::unexpected(
            failure(Outcome::kInternal, "wrong_identity", "the worker admitted another execution"));
      }
      ++counters_.admitted;
      auto admission = admit(caller, std::move(channel), key, *admitted);
      admission->repaired_ = attempt == 1;
      co_return Opened(std::move(admission));
    }
    if (const auto* verdict = std::get_if<frame::Refused>(&event)) {
      auto failed = refusal(*verdict);
      ++counters_.refusals[failed.reason];
      if (const auto* refresh = std::get_if<frame::Refresh>(&verdict->verdict)) {
        if (refresh->reason == identity::RefreshReason::kNotYet) {
          if (co_await wait_more(waiting, 0)) continue;
          co_return std::unexpected(std::move(failed));
        }
        routes_.evict(route->identity, route->attempt);
        if (!info.repairable || attempt == 1) co_return std::unexpected(std::move(failed));
        ++counters_.repairs;
        log_.event(Level::kInfo, "route.repair",
                   {{"sandbox", sandbox.text()},
                    {"generation", route->identity.generation.value},
                    {"worker", route->identity.worker.text()},
                    {"reason", failed.reason}});
        refused = Refused{route->identity, route->attempt};
        attempt = 1;
        continue;
      }
      if (std::holds_alternative<frame::Denied>(verdict->verdict)) {
        capabilities_.erase(key);
        co_return std::unexpected(std::move(failed));
      }
      const auto& unavailable = std::get<frame::Unavailable>(verdict->verdict);
      if (unavailable.reason == frame::UnavailableReason::kInstalling &&
          co_await wait_more(waiting, unavailable.retry_after_ms)) {
        continue;
      }
      co_return std::unexpected(std::move(failed));
    }
    if (std::holds_alternative<hop::TimedOut>(event)) {
      channel->reset(frame::ResetCode::kDeadline);
      co_return std::unexpected(
          failure(Outcome::kDeadlineExceeded, "admission", "the worker did not answer in time"));
    }
    const auto* reset = std::get_if<frame::Reset>(&event);
    const auto forwarded = reset != nullptr ? reset->forwarded : frame::Forwarded::kUnknown;
    if (stopping_ || !may_replay(info.replay, forwarded) || std::exchange(resent, true)) {
      co_return std::unexpected(interrupted(info, forwarded));
    }
    if (!co_await wait_more(waiting, 0)) co_return std::unexpected(interrupted(info, forwarded));
  }
}

Task<Result<Gateway::Answer>> Gateway::call(CallerPtr caller, identity::SandboxId sandbox,
                                            policy::Operation operation, Bytes metadata,
                                            std::optional<BootClock::duration> limit) {
  const auto& info = policy::info(operation);
  for (bool again = false;; again = true) {
    auto admission = co_await open(caller, sandbox, operation, metadata);
    if (!admission) co_return std::unexpected(std::move(admission).error());
    Answer answer;
    answer.identity = (*admission)->identity();
    answer.repaired = (*admission)->repaired();
    const auto deadline = timer_.now() + std::min(limit.value_or(kUnaryTime), kUnaryTime);
    for (bool going = true; going;) {
      auto event = co_await (*admission)->next(deadline);
      if (std::holds_alternative<hop::TimedOut>(event)) {
        (*admission)->cancel();
        co_return std::unexpected(failure(Outcome::kDeadlineExceeded, "guest",
                                          "the sandbox did not answer in time; whether it was "
                                          "done is unknown"));
      }
      if (const auto* data = std::get_if<frame::Data>(&event)) {
        if (answer.result.size() + data->bytes.size() > frame::kMaxRecordBytes) {
          (*admission)->cancel();
          co_return std::unexpected(
              failure(Outcome::kTooLarge, "", "the answer is larger than 1 MiB"));
        }
        answer.result.insert(answer.result.end(), data->bytes.begin(), data->bytes.end());
        continue;
      }
      if (auto* end = std::get_if<frame::End>(&event)) {
        if (end->outcome != Outcome::kOk) {
          co_return std::unexpected(failure(end->outcome, "", std::move(end->message)));
        }
        if (answer.result.empty()) answer.result = std::move(end->result);
        co_return answer;
      }
      const auto* reset = std::get_if<frame::Reset>(&event);
      const auto forwarded = reset != nullptr ? reset->forwarded : frame::Forwarded::kUnknown;
      if (again || stopping_ || !may_replay(info.replay, forwarded)) {
        co_return std::unexpected(interrupted(info, forwarded));
      }
      going = false;
    }
  }
}

std::unique_ptr<Admission> Gateway::admit(const CallerPtr& caller,
                                          std::shared_ptr<hop::Channel> channel,
                                          const CapabilityKey& key,
                                          const frame::Admitted& admitted) {
  auto renewal = std::make_shared<Admission::Renewal>();
  renewal->channel = channel;
  renewal->caller = caller;
  renewal->key = key;
  renewal->expires_at = admitted.lease_deadline;
  arm(renewal);
  std::unique_ptr<Admission> admission(new Admission);
  admission->identity_ = admitted.route;
  admission->channel_ = std::move(channel);
  admission->renewal_ = std::move(renewal);
  return admission;
}

// ---- renewal (P-11) ----

void Gateway::arm(const std::shared_ptr<Admission::Renewal>& renewal) {
  const auto left = renewal->expires_at - clock_.now() - kRenewBefore;
  const auto at = timer_.now() + std::max<BootClock::duration>(left, kRenewRetry);
  renewal->alarm = timer_.at(at, [this, weak = std::weak_ptr(renewal)] {
    const auto alive = weak.lock();
    if (alive && !stopping_) tasks_.spawn("node_api.renew", renew(alive));
  });
}

// Renews with a fresh capability of the same session, route and access. While the caller is there
// its session is extended by presenting its own credential again, which repair never does (P-18).
Task<void> Gateway::renew(std::shared_ptr<Admission::Renewal> renewal) {
  if (renewal->channel.expired()) co_return;
  const auto& caller = renewal->caller;
  if (caller->session.expires_at - clock_.now() < kSessionRefreshBefore) {
    static_cast<void>(co_await reauthorise(caller));
  }
  auto sealed = co_await capability(caller, renewal->key);
  const auto channel = renewal->channel.lock();
  if (!channel || channel->over()) co_return;
  if (sealed) {
    frame::Renew renew{frame::Capability{std::move(*sealed)}};
    channel->send(std::move(renew));
    ++counters_.renewals;
    const auto* kept = capabilities_.find(renewal->key, clock_.now());
    renewal->expires_at = kept != nullptr ? kept->expires_at : clock_.now() + kRenewBefore;
  }
  arm(renewal);
}

}  // namespace space::node_api
