#include "services/control_plane/control_plane.h"

#include <algorithm>
#include <set>

#include "base/result.h"
#include "core/identity/capability.h"
#include "core/identity/sha256.h"
#include "ports/runtime.h"
#include "services/hop/peer.h"

namespace space::control_plane {

using fleet::ExecutionState;
using fleet::OperationKind;
using fleet::Refusal;
using fleet::Snapshot;
using frame::Outcome;
using identity::WorkerId;
using policy::Operation;
using wire::SandboxState;

namespace {

constexpr std::size_t kMaxCredentialBytes = 256;
constexpr std::string_view kAccessTokenPrefix = "sat_";
constexpr std::chrono::hours kTombstoneLifetime{24};
constexpr std::chrono::seconds kRetryUnfinished{30};
constexpr std::chrono::seconds kCreationPatience{
    300};  // a creation that has not served by then is ended
constexpr int kResumeRounds = 4;
constexpr std::uint32_t kMaxListLimit = 100;
// What a list's answer holds beside its sandboxes.
constexpr std::size_t kListOverhead = 1024;
constexpr auto kStatusLimit = std::chrono::seconds(3);

std::unexpected<Refusal> refuse(Outcome outcome, std::string message) {
  return std::unexpected(Refusal{outcome, std::move(message)});
}
std::unexpected<Refusal> not_found() { return refuse(Outcome::kNotFound, "no such sandbox"); }
std::unexpected<Refusal> no_session() {
  return refuse(Outcome::kUnauthenticated, "the session is unknown or over");
}
std::unexpected<Refusal> no_store() {
  return refuse(Outcome::kUnavailable, "the control store does not answer");
}

CredentialHash hash_of(std::string_view credential) {
  return *CredentialHash::from(identity::sha256(as_bytes(credential)));
}

// `sat_` and 64 lower-case hexadecimal digits.
bool is_access_token(std::string_view text) {
  return text.starts_with(kAccessTokenPrefix) &&
         CredentialHash::parse(text.substr(kAccessTokenPrefix.size())).has_value();
}

bool covers(const SessionRow& session, const fleet::Sandbox& sandbox) {
  return sandbox.team == session.team && (!session.sandbox || *session.sandbox == sandbox.id);
}

std::string in_transition(SandboxState state) {
  return "the sandbox is " + std::string(wire::to_string(state));
}

const fleet::Execution* newest(const Snapshot& snapshot) {
  for (auto it = snapshot.executions.rbegin(); it != snapshot.executions.rend(); ++it) {
    if (it->state != ExecutionState::kDiscarding) return &*it;
  }
  return nullptr;
}

wire::SandboxInfo to_info(const Snapshot& snapshot) {
  const auto& sandbox = snapshot.sandbox;
  wire::SandboxInfo info;
  info.sandbox = sandbox.id;
  info.state = sandbox.state;
  info.template_name = sandbox.template_name;
  info.metadata = sandbox.metadata;
  info.started_at = sandbox.started_at;
  info.ends_at = sandbox.ends_at;
  info.cpu_millis = sandbox.cpu_millis;
  info.memory_bytes = sandbox.memory_bytes;
  info.disk_bytes = sandbox.disk_bytes;
  info.generation = sandbox.generation;
  info.state_reason = sandbox.reason;
  info.on_timeout = sandbox.on_timeout;
  if (const auto* execution = newest(snapshot)) {
    info.generation = execution->route.generation;
    info.worker = execution->route.worker;
  }
  return info;
}

bool valid_template(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

// The value asked for, or the default for 0; nullopt outside the range.
template <class Int>
std::optional<Int> limited(Int asked, Int fallback, Int least, Int most) {
  const auto value = asked == 0 ? fallback : asked;
  if (value < least || value > most) return std::nullopt;
  return value;
}

std::size_t size_of(const std::map<std::string, std::string>& pairs) {
  std::size_t size = 0;
  for (const auto& [key, value] : pairs) size += key.size() + value.size() + 8;
  return size;
}
bool valid_timeout(std::uint32_t seconds) { return seconds >= 1 && seconds <= kMaxTimeoutSeconds; }

}  // namespace

ControlPlane::ControlPlane(ControlStore& store, Dialer& dialer, Timer& timer,
                           const WallClock& clock, Entropy& entropy, const Signer& signer, Log& log,
                           Options options, FaultPoints& faults)
    : store_(store),
      timer_(timer),
      clock_(clock),
      entropy_(entropy),
      signer_(signer),
      log_(log),
      options_(std::move(options)),
      cursors_(options_.access_key.reveal()),
      boot_(random_id<identity::BootNonce>(entropy)),
      tasks_(timer),
      driver_(
          store, timer, clock, entropy, log, tasks_,
          [this](const WorkerId& worker) { return link(worker); }, faults, options_.limits) {
  WorkerLink::Owner& owner = *this;
  for (const auto& worker : options_.workers) {
    links_.push_back(std::make_unique<WorkerLink>(timer, clock, dialer, entropy, log, owner, worker,
                                                  boot_, options_.owner.text(), options_.timing));
  }
}

ControlPlane::~ControlPlane() = default;

WorkerLink* ControlPlane::link(const WorkerId& worker) {
  for (const auto& candidate : links_) {
    if (candidate->options().id == worker) return candidate.get();
  }
  return nullptr;
}

// ---- start and stop ----

Task<std::expected<void, std::string>> ControlPlane::prepare_bundle() {
  const auto now = clock_.now();
  const identity::BundleKey ours{
      signer_.key_id(), identity::KeyState::kActive, signer_.public_key(), {}};
  auto stored = co_await store_.load_bundle();
  if (!stored && stored.error().error != StoreError::kNotFound) {
    co_return std::unexpected("control store: " + stored.error().detail);
  }
  if (!stored) {
    bundle_.version = {1};
    bundle_.issuer = options_.issuer;
    bundle_.keys = {ours};
  } else {
    bundle_ = *std::move(stored);
    if (bundle_.issuer != options_.issuer) {
      co_return std::unexpected("the control store belongs to issuer '" + bundle_.issuer.text() +
                                "'");
    }
    auto keys = bundle_.keys;
    const auto at = std::ranges::find(keys, ours.id, &identity::BundleKey::id);
    if (at != keys.end() && (at->key != ours.key || at->state == identity::KeyState::kRetired ||
                             at->state == identity::KeyState::kCompromised)) {
      co_return std::unexpected("signing key " + std::to_string(ours.id.value) +
                                " was retired, or its id belongs to another key");
    }
    if (at == keys.end()) {
      keys.push_back(ours);
    } else {
      at->state = identity::KeyState::kActive;
    }
    for (auto& key : keys) {
      if (key.id == ours.id || key.state != identity::KeyState::kActive) continue;
      key.state = identity::KeyState::kRetired;
      key.retired_until = now + identity::kCapabilityLifetime + identity::kMaxClockTolerance;
    }
    std::erase_if(keys, [now](const identity::BundleKey& key) {
      return key.state == identity::KeyState::kRetired && key.retired_until < now;
    });
    std::ranges::sort(keys, {}, &identity::BundleKey::id);
    if (keys != bundle_.keys) {
      ++bundle_.version.value;
      bundle_.keys = std::move(keys);
    }
  }
  bundle_.valid_until = now + identity::kBundleValidity;
  const auto saved = co_await store_.save_bundle(bundle_);
  if (!saved) co_return std::unexpected("control store: " + saved.error().detail);
  co_return std::expected<void, std::string>{};
}

// Sandboxes whose token another key made get the one of this key.
Task<std::expected<void, std::string>> ControlPlane::prepare_access() {
  const auto executions = co_await store_.executions();
  if (!executions) co_return std::unexpected("control store: " + executions.error().detail);
  std::set<identity::SandboxId> sandboxes;
  for (const auto& execution : *executions) sandboxes.insert(execution.route.sandbox);
  for (const auto& sandbox : sandboxes) {
    const auto access = hash_of(access_token(sandbox));
    Driver::Change change = [&access](Snapshot& now) {
      return std::exchange(now.sandbox.access, access) != access;
    };
    if (co_await driver_.change(sandbox, std::move(change))) {
      log_.event(Level::kWarning, "sandbox.new_access_token", {{"sandbox", sandbox.text()}});
    }
  }
  co_return std::expected<void, std::string>{};
}

Task<std::expected<void, std::string>> ControlPlane::start() {
  auto prepared = co_await prepare_bundle();
  if (prepared) prepared = co_await prepare_access();
  if (!prepared) co_return prepared;
  for (const auto& worker : links_) tasks_.spawn("control.worker", worker->run());
  tasks_.spawn("control.tick", tick());
  const auto ready = timer_.now() + options_.start_patience;
  for (const auto& worker : links_) co_await worker->wait_up(ready);
  co_await driver_.kick_unfinished();
  log_.event(Level::kInfo, "control.started",
             {{"bundle", bundle_.version.value}, {"workers", links_.size()}});
  co_return prepared;
}

Task<void> ControlPlane::stop() {
  stopping_ = true;
  driver_.stop();
  for (const auto& worker : links_) worker->stop();
  for (auto* connection : node_apis_) connection->close();
  stopping_changed_.notify();
  co_await tasks_.stop();
}

// ---- workers ----

identity::KeyBundle ControlPlane::current_bundle() {
  auto bundle = bundle_;
  bundle.valid_until = clock_.now() + identity::kBundleValidity;
  return bundle;
}

Task<void> ControlPlane::bundle_refused(identity::BundleVersion version) {
  // A receiver knows a higher version: this store is older than it, after a restore. Go past it.
  auto bundle = bundle_;
  bundle.version.value = std::max(bundle.version.value, version.value) + 1;
  bundle.valid_until = clock_.now() + identity::kBundleValidity;
  if (const auto saved = co_await store_.save_bundle(bundle); !saved) {
    log_.event(Level::kError, "store.failed", {{"detail", saved.error().detail}});
    co_return;
  }
  bundle_ = std::move(bundle);
}

Task<void> ControlPlane::worker_seen(WorkerLink& worker) {
  auto& seen = seen_[worker.options().id];
  const bool fresh = !seen.up || seen.boot != worker.boot();
  const bool changed = seen.boot != worker.boot() || seen.bundle != worker.bundle();
  seen.up = true;
  seen.boot = worker.boot();
  seen.bundle = worker.bundle();
  if (changed) {
    WorkerRow row{worker.options().id, worker.boot(), worker.bundle(), clock_.now()};
    if (const auto saved = co_await store_.save_worker(std::move(row)); !saved) {
      log_.event(Level::kError, "store.failed", {{"detail", saved.error().detail}});
    }
  }
  if (fresh) co_await driver_.kick_unfinished();
  co_await check_serving(worker);
}

// Compares what the worker serves with what is selected: an execution it lost is shown as lost
// (C008).
Task<void> ControlPlane::check_serving(WorkerLink& worker) {
  const auto expected = co_await store_.executions();
  if (!expected) co_return;
  const auto status = co_await worker.call_as<wire::NodeStatusResult>(
      Operation::kNodeStatus, wire::NodeStatusRequest{}, kStatusLimit);
  if (!status) co_return;
  auto& seen = seen_[worker.options().id];
  seen.runtime = status->runtime;
  seen.evidence = status->evidence;
  for (const auto& execution : *expected) {
    if (execution.state != ExecutionState::kInstalled ||
        execution.route.worker != worker.options().id) {
      continue;
    }
    const auto at = std::ranges::find(status->sandboxes, execution.route.sandbox,
                                      &wire::NodeSandboxStatus::sandbox);
    const bool there = at != status->sandboxes.end() && at->installed == execution.route;
    std::string lost;
    if (!there) {
      lost = "worker " + worker.options().id.text() + " has no record of this execution";
    } else if (!at->serving) {
      lost = at->reason;
      if (lost.empty()) continue;  // being proved again
    }
    const auto before = co_await store_.load(execution.route.sandbox);
    const auto wanted = lost.empty() ? SandboxState::kRunning : SandboxState::kLost;
    const auto from = lost.empty() ? SandboxState::kLost : SandboxState::kRunning;
    if (!before || before->sandbox.state != from) continue;
    Driver::Change change = [&](Snapshot& now) {
      const auto* current = fleet::find(now, execution.route.generation);
      if (now.sandbox.operation || now.sandbox.state != from || current == nullptr ||
          *current != execution) {
        return false;
      }
      now.sandbox.state = wanted;
      now.sandbox.reason = lost;
      return true;
    };
    if (co_await driver_.change(execution.route.sandbox, std::move(change))) {
      log_.event(lost.empty() ? Level::kInfo : Level::kError,
                 lost.empty() ? "sandbox.found" : "sandbox.lost",
                 {{"sandbox", execution.route.sandbox.text()},
                  {"generation", execution.route.generation.value},
                  {"reason", lost}});
    }
  }
}

Task<void> ControlPlane::end_lives(WallTime now) {
  const auto expired = co_await store_.expired(now);
  if (!expired) co_return;
  for (const auto& sandbox : *expired) {
    if (!co_await driver_.begin_timeout(sandbox, new_operation(OperationKind::kKill))) continue;
    log_.event(Level::kInfo, "sandbox.expired", {{"sandbox", sandbox.text()}});
  }
}

Task<void> ControlPlane::tick() {
  std::optional<MonoTime> purge_due;
  auto retry_due = timer_.now() + kRetryUnfinished;
  while (!stopping_) {
    for (const auto& worker : links_) {
      if (!worker->up()) seen_[worker->options().id].up = false;
    }
    const auto now = clock_.now();
    co_await end_lives(now);
    if (const auto ended = co_await store_.end_sessions(now)) {
      for (const auto& session : *ended) {
        log_.event(Level::kInfo, "session.ended", {{"session", session.text()}});
        for (const auto& worker : links_) worker->tell({session});
        for (auto* connection : node_apis_) {
          connection->send(frame::Frame{0, frame::SessionEnded{session}});
        }
      }
    }
    // What a worker could not do at the time, a clean-up above all, is tried again.
    if (retry_due <= timer_.now()) {
      retry_due = timer_.now() + kRetryUnfinished;
      co_await driver_.kick_unfinished();
    }
    if (!purge_due || *purge_due <= timer_.now()) {
      purge_due = timer_.now() + std::chrono::hours(1);
      co_await store_.purge(now - kTombstoneLifetime);
    }
    if (stopping_) break;
    const auto until = timer_.now() + options_.tick;
    if (co_await stopping_changed_.wait(timer_, until) == Notifier::Wake::kCancelled) break;
  }
}

// ---- node-apis ----

Task<void> ControlPlane::serve(Listener& listener) {
  while (!stopping_) {
    auto stream = co_await listener.accept();
    if (stopping_) break;
    if (!stream) {
      if (stream.error() == std::errc::operation_canceled) break;
      log_.event(Level::kWarning, "accept.failed", {{"reason", stream.error().message()}});
      if (!co_await sleep_for(timer_, std::chrono::milliseconds(100))) break;
      continue;
    }
    if (node_apis_.size() >= kMaxNodeApiConnections) {
      log_.event(Level::kWarning, "node_api.too_many", {});
      continue;
    }
    tasks_.spawn("control.node_api", serve_node_api(*std::move(stream)));
  }
}

Task<void> ControlPlane::serve_node_api(std::unique_ptr<Stream> stream) {
  const auto holder = hop::holder_at(*stream, options_.holders);
  if (!holder) {
    log_.event(Level::kAlarm, "node_api.unknown_peer", {{"peer", hop::describe_peer(*stream)}});
    co_return;
  }
  hop::Connection::Options connection_options;
  connection_options.self = frame::Role::kControlPlane;
  connection_options.peer = frame::Role::kNodeApi;
  connection_options.id = options_.owner.text();
  connection_options.boot = boot_;
  hop::Connection connection(std::move(stream), timer_, std::move(connection_options));
  const auto at = node_apis_.insert(node_apis_.end(), &connection);
  const auto hello = co_await connection.handshake(timer_.now() + std::chrono::seconds(5));
  if (hello && !stopping_) {
    hop::Mux mux(connection, timer_);
    const auto holder_id = *holder;
    mux.on_open([this, holder_id](std::shared_ptr<hop::Channel> channel, frame::Open open) {
      tasks_.spawn("control.answer", answer(std::move(channel), std::move(open), holder_id));
    });
    co_await mux.run();
  }
  node_apis_.erase(at);
}

Task<void> ControlPlane::answer(std::shared_ptr<hop::Channel> channel, frame::Open open,
                                identity::HolderId holder) {
  if (policy::info(open.operation).scope != policy::Scope::kPlatform) {
    channel->send(
        frame::Refused{frame::Unavailable{frame::UnavailableReason::kNoSuchOperation, 0}});
    co_return;
  }
  channel->send(frame::Opened{});
  auto result = co_await handle(open.operation, std::move(open.metadata), holder);
  frame::End end;
  if (!result) {
    end.outcome = result.error().outcome;
    end.message = result.error().message.substr(0, 1024);
  } else if (result->size() <= frame::kMaxMetadataBytes) {
    end.result = *std::move(result);
  } else if (result->size() > frame::kMaxRecordBytes) {
    end.outcome = Outcome::kTooLarge;
    end.message = "the answer is larger than 1 MiB";
  } else if (!co_await channel->write(*result)) {
    co_return;
  }
  channel->end(std::move(end));
}

template <class Request>
Task<ControlPlane::Answer> ControlPlane::with_session(
    Bytes metadata, identity::HolderId holder,
    Task<Answer> (ControlPlane::*handler)(Request, SessionRow), Serves serves) {
  auto request = wire::decode<Request>(metadata);
  if (!request) co_return refuse(Outcome::kInvalidArgument, "malformed request record");
  auto session = co_await store_.live_session(request->session, clock_.now());
  if (!session) {
    if (session.error().error == StoreError::kFailed) co_return no_store();
    co_return no_session();
  }
  if (session->holder != holder) co_return no_session();
  if (session->sandbox && serves == Serves::kTeams) {
    co_return refuse(Outcome::kPermissionDenied, "an access token does not open this");
  }
  co_return co_await (this->*handler)(*std::move(request), *std::move(session));
}

Task<ControlPlane::Answer> ControlPlane::handle(Operation operation, Bytes metadata,
                                                identity::HolderId holder) {
  switch (operation) {
    case Operation::kSessionOpen: {
      auto request = wire::decode<wire::SessionOpenRequest>(metadata);
      if (!request) co_return refuse(Outcome::kInvalidArgument, "malformed request record");
      co_return co_await on_session_open(*std::move(request), holder);
    }
    case Operation::kCapabilityMint: {
      auto request = wire::decode<wire::CapabilityMintRequest>(metadata);
      if (!request) co_return refuse(Outcome::kInvalidArgument, "malformed request record");
      co_return co_await on_mint(*std::move(request), holder);
    }
    case Operation::kSandboxCreate:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_create);
    case Operation::kSandboxList:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_list);
    case Operation::kSandboxGet:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_get);
    case Operation::kSandboxKill:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_kill);
    case Operation::kSandboxSetTimeout:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_set_timeout);
    case Operation::kSandboxPause:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_pause);
    case Operation::kSandboxResume:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_resume);
    case Operation::kSandboxMove:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_move);
    case Operation::kSandboxRoute:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_route);
    case Operation::kRouteResolve:
      co_return co_await with_session(std::move(metadata), holder, &ControlPlane::on_resolve,
                                      Serves::kTeamsAndSandboxes);
    case Operation::kPlatformStatus:
      co_return co_await with_session(std::move(metadata), holder,
                                      &ControlPlane::on_platform_status);
    case Operation::kFileRead:
    case Operation::kFileWrite:
    case Operation::kFileStat:
    case Operation::kFileList:
    case Operation::kFileRemove:
    case Operation::kFileMakeDir:
    case Operation::kFileMove:
    case Operation::kProcessStart:
    case Operation::kProcessList:
    case Operation::kProcessSignal:
    case Operation::kProcessInput:
    case Operation::kNodeStart:
    case Operation::kNodeFreeze:
    case Operation::kNodeThaw:
    case Operation::kNodePublish:
    case Operation::kNodeDestroy:
    case Operation::kNodeStatus:
      break;
  }
  co_return refuse(Outcome::kUnsupported, "not an operation of the platform");
}

// ---- helpers of the operations ----

fleet::Operation ControlPlane::new_operation(OperationKind kind) {
  fleet::Operation operation;
  operation.id = random_id<identity::OperationId>(entropy_);
  operation.kind = kind;
  operation.owner = options_.owner;
  operation.begun_at = clock_.now();
  return operation;
}

Task<ControlPlane::Found> ControlPlane::load(identity::SandboxId sandbox, SessionRow session) {
  auto snapshot = co_await store_.load(sandbox);
  if (!snapshot) {
    if (snapshot.error().error == StoreError::kFailed) co_return no_store();
    co_return not_found();
  }
  if (!covers(session, snapshot->sandbox)) co_return not_found();
  co_return *std::move(snapshot);
}

std::string ControlPlane::access_token(const identity::SandboxId& sandbox) const {
  const auto mac = identity::hmac_sha256(options_.access_key.reveal(), as_bytes(sandbox.text()));
  return std::string(kAccessTokenPrefix) + to_hex(mac);
}

wire::SandboxInfo ControlPlane::full_info(const Snapshot& snapshot) const {
  auto info = to_info(snapshot);
  info.access_token = access_token(info.sandbox);
  return info;
}

Task<ControlPlane::Answer> ControlPlane::info_of(identity::SandboxId sandbox, SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(sandbox, std::move(session)));
  co_return wire::encode(full_info(snapshot));
}

// The answer of an operation that leads to `wanted`: another operation, a kill above all, may have
// taken its place meanwhile, and then it did not do what was asked.
Task<ControlPlane::Answer> ControlPlane::info_in(identity::SandboxId sandbox, SessionRow session,
                                                 SandboxState wanted) {
  SPACE_CO_TRY(const auto snapshot, co_await load(sandbox, std::move(session)));
  if (snapshot.sandbox.state != wanted) {
    co_return refuse(Outcome::kUnavailable, "another operation took its place; the sandbox is " +
                                                std::string(to_string(snapshot.sandbox.state)));
  }
  co_return wire::encode(full_info(snapshot));
}

OperationResult ControlPlane::need_worker(const WorkerId& worker) {
  const auto* found = link(worker);
  if (found == nullptr) {
    return refuse(Outcome::kUnavailable, "worker " + worker.text() + " is not configured");
  }
  if (!found->up()) return refuse(Outcome::kUnavailable, found->reason());
  return {};
}

Task<std::expected<WorkerId, Refusal>> ControlPlane::choose_worker(std::optional<WorkerId> wish,
                                                                   std::optional<WorkerId> except) {
  if (wish && link(*wish) == nullptr) {
    co_return refuse(Outcome::kInvalidArgument, "there is no worker " + wish->text());
  }
  if (wish) {
    if (auto reachable = need_worker(*wish); !reachable) {
      co_return std::unexpected(std::move(reachable).error());
    }
  }
  const auto executions = co_await store_.executions();
  if (!executions) co_return no_store();
  std::vector<fleet::Candidate> candidates;
  std::string reasons;
  for (const auto& worker : links_) {
    fleet::Candidate candidate;
    candidate.worker = worker->options().id;
    candidate.usable = worker->up() && worker->clock_healthy();
    candidate.max_sandboxes = worker->options().max_sandboxes;
    std::set<identity::SandboxId> there;
    for (const auto& execution : *executions) {
      if (execution.route.worker == candidate.worker) there.insert(execution.route.sandbox);
    }
    candidate.sandboxes = static_cast<std::uint32_t>(there.size());
    if (!worker->up()) {
      reasons += "; " + worker->reason();
    } else if (!worker->clock_healthy()) {
      reasons += "; the clock of worker " + candidate.worker.text() + " is wrong";
    } else if (candidate.sandboxes >= candidate.max_sandboxes) {
      reasons += "; worker " + candidate.worker.text() + " is full";
    }
    candidates.push_back(std::move(candidate));
  }
  const auto chosen = fleet::place(candidates, wish, except);
  if (!chosen) co_return refuse(Outcome::kUnavailable, "no worker can take the sandbox" + reasons);
  co_return *chosen;
}

// ---- the operations ----

Task<ControlPlane::Answer> ControlPlane::on_session_open(wire::SessionOpenRequest request,
                                                         identity::HolderId holder) {
  const auto& credential = request.api_key;
  const auto unknown = [&credential] {
    return is_access_token(credential)
               ? not_found()
               : refuse(Outcome::kUnauthenticated, "the API key is not valid");
  };
  if (credential.empty() || credential.size() > kMaxCredentialBytes) co_return unknown();
  const auto now = clock_.now();
  auto session = co_await store_.open_session(hash_of(credential), holder,
                                              random_id<identity::SessionId>(entropy_), now,
                                              now + kSessionLifetime);
  if (!session) {
    if (session.error().error == StoreError::kFailed) co_return no_store();
    co_return unknown();
  }
  wire::SessionOpenResult result;
  result.session = session->id;
  result.team = session->team;
  result.expires_at = session->expires_at;
  result.sandbox = session->sandbox;
  co_return wire::encode(result);
}

Task<ControlPlane::Answer> ControlPlane::on_create(wire::SandboxCreateRequest request,
                                                   SessionRow session) {
  if (!valid_template(request.template_name)) {
    co_return refuse(Outcome::kInvalidArgument, "the template name is not valid");
  }
  if (!valid_timeout(request.timeout_s)) {
    co_return refuse(Outcome::kInvalidArgument, "the timeout must be 1 to 86400 seconds");
  }
  if (size_of(request.metadata) + size_of(request.envs) > kMaxVariableBytes) {
    co_return refuse(Outcome::kTooLarge,
                     "metadata and environment are larger than 12 KiB together");
  }
  const SandboxSpec defaults;
  const auto cpu = limited<std::uint32_t>(request.cpu_millis, defaults.cpu_millis, 10, 64'000);
  const auto memory = limited<std::uint64_t>(request.memory_bytes, defaults.memory_bytes,
                                             std::uint64_t{16} << 20, std::uint64_t{1} << 40);
  const auto disk = limited<std::uint64_t>(request.disk_bytes, defaults.disk_bytes,
                                           std::uint64_t{16} << 20, std::uint64_t{16} << 40);
  if (!cpu || !memory || !disk) {
    co_return refuse(Outcome::kInvalidArgument, "cpu, memory or disk is out of range");
  }
  SPACE_CO_TRY(const auto worker, co_await choose_worker(request.worker, std::nullopt));
  std::array<std::byte, 13> random{};  // 104 bits; the name takes 100 of them
  entropy_.fill(random);
  fleet::Sandbox sandbox;
  sandbox.id = *identity::SandboxId::parse(to_base32(random).substr(0, 20));
  sandbox.team = session.team;
  sandbox.access = hash_of(access_token(sandbox.id));
  sandbox.template_name = std::move(request.template_name);
  sandbox.metadata = std::move(request.metadata);
  sandbox.envs = std::move(request.envs);
  sandbox.cpu_millis = *cpu;
  sandbox.memory_bytes = *memory;
  sandbox.disk_bytes = *disk;
  sandbox.max_processes = defaults.max_processes;
  sandbox.started_at = clock_.now();
  sandbox.on_timeout = request.on_timeout;
  sandbox.ends_at =
      sandbox.started_at + std::chrono::seconds(request.timeout_s) + kCreationPatience;
  auto operation = new_operation(OperationKind::kCreate);
  operation.target = worker;
  operation.timeout_s = request.timeout_s;
  Snapshot snapshot{std::move(sandbox), {}};
  if (auto begun = fleet::begin(snapshot, std::move(operation)); !begun) {
    co_return std::unexpected(std::move(begun).error());
  }
  const auto id = snapshot.sandbox.id;
  auto done = co_await driver_.create(std::move(snapshot.sandbox));
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return co_await info_in(id, session, SandboxState::kRunning);
}

Task<ControlPlane::Answer> ControlPlane::on_list(wire::SandboxListRequest request,
                                                 SessionRow session) {
  if (request.limit > kMaxListLimit) {
    co_return refuse(Outcome::kInvalidArgument, "the limit must be 1 to 100");
  }
  fleet::Filter filter{session.team,
                       std::move(request.states),
                       std::move(request.metadata),
                       std::move(request.template_name),
                       request.started_after,
                       request.newest_first};
  std::ranges::sort(filter.states);
  std::optional<fleet::Position> after;
  if (!request.cursor.empty()) {
    after = cursors_.open(filter, request.cursor);
    if (!after) co_return refuse(Outcome::kInvalidArgument, "the page token is not of this list");
  }
  const auto limit = request.limit == 0 ? kMaxListScan : request.limit;
  const auto page = co_await store_.list(filter, after, limit);
  const auto counts = co_await store_.count(session.team);
  if (!page || !counts) co_return no_store();
  wire::SandboxListResult result;
  result.total_running = counts->running;
  auto next = page->next;
  auto room = frame::kMaxRecordBytes - kListOverhead;
  for (const auto& snapshot : page->sandboxes) {
    auto info = to_info(snapshot);
    const auto size = wire::encode(info).size();
    if (size > room) {
      const auto& last = result.sandboxes.back();  // one always fits
      next = fleet::Position{last.started_at, last.sandbox};
      break;
    }
    room -= size;
    result.sandboxes.push_back(std::move(info));
  }
  if (next) result.next_cursor = cursors_.seal(filter, *next);
  co_return wire::encode(result);
}

Task<ControlPlane::Answer> ControlPlane::on_get(wire::SandboxRequest request, SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  if (snapshot.sandbox.state == SandboxState::kKilled) co_return not_found();
  co_return wire::encode(full_info(snapshot));
}

Task<ControlPlane::Answer> ControlPlane::on_kill(wire::SandboxRequest request, SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  const auto& sandbox = snapshot.sandbox;
  OperationResult done;
  if (sandbox.state == SandboxState::kKilling && sandbox.operation) {
    done = co_await driver_.join(sandbox.id, sandbox.operation->id);
  } else if (sandbox.state != SandboxState::kKilled) {
    done = co_await driver_.run(sandbox.id, new_operation(OperationKind::kKill));
  }
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return co_await info_of(request.sandbox, session);
}

Task<ControlPlane::Answer> ControlPlane::on_set_timeout(wire::SandboxTimeoutRequest request,
                                                        SessionRow session) {
  if (!valid_timeout(request.timeout_s)) {
    co_return refuse(Outcome::kInvalidArgument, "the timeout must be 1 to 86400 seconds");
  }
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  const auto ends_at = clock_.now() + std::chrono::seconds(request.timeout_s);
  SandboxState state = snapshot.sandbox.state;
  bool later_already = false;
  Driver::Change change = [&](Snapshot& now) {
    state = now.sandbox.state;
    later_already = request.only_extend && now.sandbox.ends_at >= ends_at;
    if (state != SandboxState::kRunning || later_already) return false;
    now.sandbox.ends_at = ends_at;
    return true;
  };
  const bool written = co_await driver_.change(request.sandbox, std::move(change));
  if (state == SandboxState::kKilled || state == SandboxState::kKilling) co_return not_found();
  if (state == SandboxState::kPaused) co_return refuse(Outcome::kConflict, "paused");
  if (state != SandboxState::kRunning) {
    co_return refuse(Outcome::kUnavailable, in_transition(state));
  }
  if (!written && !later_already) co_return no_store();
  co_return co_await info_of(request.sandbox, session);
}

Task<ControlPlane::Answer> ControlPlane::on_pause(wire::SandboxPauseRequest request,
                                                  SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  const auto& sandbox = snapshot.sandbox;
  if (sandbox.state == SandboxState::kKilled || sandbox.state == SandboxState::kKilling) {
    co_return not_found();
  }
  OperationResult done;
  if (sandbox.state == SandboxState::kPausing && sandbox.operation) {
    done = co_await driver_.join(sandbox.id, sandbox.operation->id);
  } else {
    if (const auto* execution = fleet::serving(snapshot)) {
      done = need_worker(execution->route.worker);
    }
    if (done) done = co_await driver_.run(sandbox.id, new_operation(OperationKind::kPause));
  }
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return co_await info_in(request.sandbox, session, SandboxState::kPaused);
}

Task<ControlPlane::Answer> ControlPlane::on_resume(wire::SandboxResumeRequest request,
                                                   SessionRow session) {
  if (request.timeout_s && !valid_timeout(*request.timeout_s)) {
    co_return refuse(Outcome::kInvalidArgument, "the timeout must be 1 to 86400 seconds");
  }
  wire::SandboxResumeResult result;
  for (int round = 0; round < kResumeRounds; ++round) {
    SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
    const auto& sandbox = snapshot.sandbox;
    OperationResult done;
    switch (sandbox.state) {
      case SandboxState::kRunning: {
        if (request.timeout_s) {
          // Only ever later (C091).
          const auto asked = clock_.now() + std::chrono::seconds(*request.timeout_s);
          Driver::Change extend = [asked](Snapshot& now) {
            if (now.sandbox.state != SandboxState::kRunning || now.sandbox.ends_at >= asked) {
              return false;
            }
            now.sandbox.ends_at = asked;
            return true;
          };
          co_await driver_.change(request.sandbox, std::move(extend));
        }
        SPACE_CO_TRY(const auto now, co_await load(request.sandbox, session));
        result.info = full_info(now);
        co_return wire::encode(result);
      }
      case SandboxState::kResuming:
        result.resumed = true;
        [[fallthrough]];
      case SandboxState::kCreating:
      case SandboxState::kPausing:
      case SandboxState::kMoving:
        if (!sandbox.operation)
          co_return refuse(Outcome::kUnavailable, in_transition(sandbox.state));
        done = co_await driver_.join(sandbox.id, sandbox.operation->id);
        break;
      case SandboxState::kPaused: {
        const auto* parked = fleet::parked(snapshot);
        if (parked == nullptr) co_return refuse(Outcome::kUnavailable, "nothing is parked");
        result.resumed = true;
        auto operation = new_operation(OperationKind::kResume);
        operation.timeout_s = request.timeout_s.value_or(kDefaultTimeoutSeconds);
        operation.target = request.worker.value_or(parked->route.worker);
        if (operation.target != parked->route.worker) {
          SPACE_CO_TRY(operation.target, co_await choose_worker(request.worker, std::nullopt));
          if (sandbox.artifact.empty()) done = need_worker(parked->route.worker);
        } else {
          done = need_worker(*operation.target);
        }
        if (!done) {
          done.error().message += "; it holds the sandbox's files";
          co_return std::unexpected(std::move(done).error());
        }
        const auto ours = operation.id;
        done = co_await driver_.run(sandbox.id, std::move(operation));
        if (!done) {
          // Somebody else's resume began first: join it (C009).
          SPACE_CO_TRY(const auto now, co_await load(request.sandbox, session));
          const auto& current = now.sandbox.operation;
          if (now.sandbox.state == SandboxState::kRunning ||
              (now.sandbox.state == SandboxState::kResuming && current && current->id != ours)) {
            done = OperationResult{};
          }
        }
        break;
      }
      case SandboxState::kKilling:
      case SandboxState::kKilled:
        co_return not_found();
      case SandboxState::kFailed:
      case SandboxState::kLost:
        co_return refuse(Outcome::kUnavailable,
                         in_transition(sandbox.state) + ": " + sandbox.reason);
    }
    if (!done) co_return std::unexpected(std::move(done).error());
  }
  co_return refuse(Outcome::kUnavailable, "the sandbox keeps changing its state; ask again");
}

Task<ControlPlane::Answer> ControlPlane::on_move(wire::SandboxMoveRequest request,
                                                 SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  const auto& sandbox = snapshot.sandbox;
  if (sandbox.state == SandboxState::kKilled || sandbox.state == SandboxState::kKilling) {
    co_return not_found();
  }
  const auto* execution = newest(snapshot);
  if (execution == nullptr) {
    co_return refuse(Outcome::kUnavailable, in_transition(sandbox.state));
  }
  const auto from = execution->route.worker;
  if (request.worker == from) {
    co_return refuse(Outcome::kConflict, "the sandbox is on worker " + from.text());
  }
  auto operation = new_operation(OperationKind::kMove);
  if (sandbox.state == SandboxState::kPaused) {
    operation.timeout_s = sandbox.left_s > 0 ? sandbox.left_s : kDefaultTimeoutSeconds;
  }
  auto done = need_worker(from);
  if (!done) co_return std::unexpected(std::move(done).error());
  SPACE_CO_TRY(operation.target, co_await choose_worker(request.worker, from));
  done = co_await driver_.run(sandbox.id, std::move(operation));
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return co_await info_in(request.sandbox, session, SandboxState::kRunning);
}

Task<ControlPlane::Answer> ControlPlane::on_route(wire::SandboxRequest request,
                                                  SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  if (snapshot.sandbox.state == SandboxState::kKilled) co_return not_found();
  wire::SandboxRouteResult result;
  if (const auto* execution = fleet::serving(snapshot)) {
    result.selected = execution->route;
    result.attempt = execution->attempt.value;
    if (const auto* worker = link(execution->route.worker)) {
      result.endpoint = worker->options().endpoint;
    }
  }
  for (const auto& worker : links_) {
    wire::InstalledAt at;
    at.worker = worker->options().id;
    wire::NodeStatusRequest status_request;
    status_request.sandbox = request.sandbox;
    const auto status = co_await worker->call_as<wire::NodeStatusResult>(
        Operation::kNodeStatus, std::move(status_request), kStatusLimit);
    at.reachable = status.has_value();
    if (status) {
      for (const auto& there : status->sandboxes) {
        if (there.sandbox != request.sandbox) continue;
        at.route = there.installed;
        at.attempt = there.attempt;
        at.epoch = there.epoch;
        at.floor = there.floor;
        at.leases = there.leases;
      }
    }
    result.receivers.push_back(std::move(at));
  }
  co_return wire::encode(result);
}

Task<ControlPlane::Answer> ControlPlane::on_resolve(wire::RouteResolveRequest request,
                                                    SessionRow session) {
  SPACE_CO_TRY(const auto snapshot, co_await load(request.sandbox, session));
  const auto& sandbox = snapshot.sandbox;
  if (sandbox.state == SandboxState::kKilled || sandbox.state == SandboxState::kKilling) {
    co_return not_found();
  }
  if (sandbox.state == SandboxState::kPaused) co_return refuse(Outcome::kConflict, "paused");
  const auto* execution = fleet::serving(snapshot);
  const auto* worker = execution != nullptr ? link(execution->route.worker) : nullptr;
  if (worker == nullptr) {
    co_return refuse(
        Outcome::kUnavailable,
        in_transition(sandbox.state) + (sandbox.reason.empty() ? "" : ": " + sandbox.reason));
  }
  wire::RouteResolveResult result;
  result.route = execution->route;
  result.attempt = execution->attempt.value;
  result.endpoint = worker->options().endpoint;
  result.worker_boot = worker->boot();
  co_return wire::encode(result);
}

Task<ControlPlane::Answer> ControlPlane::on_mint(wire::CapabilityMintRequest request,
                                                 identity::HolderId holder) {
  const auto now = clock_.now();
  const auto view = co_await store_.mint_view(request.session, request.route.sandbox, now);
  if (!view) co_return no_store();
  if (!view->session || view->session->holder != holder) co_return no_session();
  if (!view->snapshot || !covers(*view->session, view->snapshot->sandbox) ||
      view->snapshot->sandbox.state == SandboxState::kKilled) {
    co_return not_found();
  }
  // Current, installed, acknowledged and not retiring (P-3).
  const auto* execution = fleet::serving(*view->snapshot);
  if (execution == nullptr || execution->route != request.route ||
      execution->attempt.value != request.attempt) {
    co_return refuse(Outcome::kConflict, "this is not the current execution; resolve again");
  }
  const auto* worker = link(execution->route.worker);
  if (worker == nullptr || (worker->up() && worker->bundle() < bundle_.version)) {
    co_return refuse(Outcome::kUnavailable,
                     "the worker does not verify with our keys");  // TR-2, P-6
  }
  identity::Claims claims;
  claims.key = signer_.key_id();
  claims.issuer = options_.issuer;
  claims.purpose = request.purpose;
  claims.route = execution->route;
  claims.attempt = execution->attempt;
  claims.access = request.access;
  claims.port = request.port;
  claims.protocol = request.protocol;
  claims.session = view->session->id;
  claims.holder = holder;
  claims.issued_at = now;
  claims.expires_at = now + identity::kCapabilityLifetime;
  claims.id = random_id<identity::CapabilityId>(entropy_);
  if (!identity::well_formed(claims)) {
    co_return refuse(Outcome::kInvalidArgument, "purpose, access, port and protocol do not fit");
  }
  const auto bytes = identity::encode_claims(claims);
  const auto signature = signer_.sign(identity::signature_message(bytes));
  wire::CapabilityMintResult result;
  result.sealed = identity::seal(bytes, signature).bytes;
  result.expires_at = claims.expires_at;
  co_return wire::encode(result);
}

Task<ControlPlane::Answer> ControlPlane::on_platform_status(wire::PlatformStatusRequest,
                                                            SessionRow session) {
  const auto executions = co_await store_.executions();
  const auto counts = co_await store_.count(session.team);
  if (!executions || !counts) co_return no_store();
  wire::PlatformStatusResult result;
  result.running = counts->running;
  result.paused = counts->paused;
  for (const auto& worker : links_) {
    wire::WorkerInfo info;
    info.worker = worker->options().id;
    info.reachable = worker->up();
    info.reason = worker->reason();
    std::set<identity::SandboxId> there;
    for (const auto& execution : *executions) {
      if (execution.route.worker == info.worker) there.insert(execution.route.sandbox);
    }
    info.sandboxes = static_cast<std::uint32_t>(there.size());
    info.bundle_version = worker->bundle().value;
    info.clock_healthy = worker->clock_healthy();
    info.clock_offset_ms = worker->clock_offset_ms();
    if (const auto at = seen_.find(info.worker); at != seen_.end()) {
      info.runtime = at->second.runtime;
      info.evidence = at->second.evidence;
    }
    result.workers.push_back(std::move(info));
  }
  co_return wire::encode(result);
}

Task<StoreResult<std::string>> ControlPlane::create_api_key(ControlStore& store, Entropy& entropy,
                                                            identity::TeamId team, WallTime now) {
  std::array<std::byte, 20> random{};
  entropy.fill(random);
  auto key = "e2b_" + to_hex(random);
  ApiKeyRow row{hash_of(key), std::move(team), now, std::nullopt};
  const auto added = co_await store.add_api_key(std::move(row));
  if (!added) co_return std::unexpected(added.error());
  co_return key;
}

}  // namespace space::control_plane
