#include "services/node_api/space_api.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/event_reader.h"
#include "services/node_api/records_json.h"

namespace space::node_api {

using frame::Outcome;
using policy::Operation;

namespace {

constexpr std::uint64_t kMegabyte = 1U << 20;
constexpr std::uint64_t kMaxTimeoutSeconds = 86'400;
constexpr std::size_t kMaxCredentialBytes = 256;

Failure invalid(std::string message) {
  return Failure{Outcome::kInvalidArgument, {}, std::move(message), 0};
}

Failure interrupted_stream(std::string_view reason) {
  return Failure{Outcome::kInterrupted, std::string(reason),
                 "the stream was interrupted: " + std::string(reason), 0};
}

// Why a stream ended that had not ended by itself.
Failure broken(const hop::ChannelEvent& event) {
  if (const auto* end = std::get_if<frame::End>(&event)) {
    return Failure{
        end->outcome == Outcome::kOk ? Outcome::kInterrupted : end->outcome, {}, end->message, 0};
  }
  if (const auto* revoked = std::get_if<frame::Revoked>(&event)) {
    return interrupted_stream(to_string(revoked->reason));
  }
  if (const auto* reset = std::get_if<frame::Reset>(&event)) {
    return interrupted_stream(to_string(reset->code));
  }
  return interrupted_stream("connection_lost");
}

// The caller's credential: X-API-KEY, or Authorization: Bearer; one of them, once (P-31).
std::expected<std::string, Failure> credential_of(const HttpRequest& request) {
  const auto keys = count_headers(request.headers, "x-api-key");
  const auto bearers = count_headers(request.headers, "authorization");
  if (keys + bearers > 1) {
    return std::unexpected(
        invalid("more than one credential: send X-API-KEY or Authorization, once"));
  }
  const Failure missing{
      Outcome::kUnauthenticated, {}, "a valid API key is needed: X-API-KEY: e2b_...", 0};
  std::string_view credential;
  if (keys == 1) {
    credential = *single_header(request.headers, "x-api-key");
  } else if (bearers == 1) {
    constexpr std::string_view kScheme = "Bearer ";
    credential = *single_header(request.headers, "authorization");
    if (!credential.starts_with(kScheme)) return std::unexpected(missing);
    credential.remove_prefix(kScheme.size());
  }
  if (!credential.starts_with("e2b_") || credential.size() > kMaxCredentialBytes) {
    return std::unexpected(missing);
  }
  for (const char c : credential) {
    if (c <= ' ' || c > '~') return std::unexpected(missing);
  }
  return std::string(credential);
}

// Takes the parameters of a query one by one; what is left over or wrong is an error.
class Query {
 public:
  explicit Query(std::multimap<std::string, std::string> pairs) : pairs_(std::move(pairs)) {}

  std::optional<std::string> text(const std::string& name) {
    const auto [first, last] = pairs_.equal_range(name);
    if (first == last) return std::nullopt;
    if (std::next(first) != last) fail(name, "is given twice");
    auto value = first->second;
    pairs_.erase(first, last);
    return value;
  }
  std::string path() {
    auto value = text("path").value_or("");
    if (!wire::is_guest_path(value)) fail("path", "is needed: 1 to 4096 bytes, no NUL");
    return value;
  }
  std::string user() {
    auto value = text("user").value_or("");
    if (value.find(':') != std::string::npos) fail("user", "must not contain ':'");
    return value;
  }
  std::optional<std::uint64_t> number(const std::string& name, std::uint64_t max) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    const auto number = parse_decimal(*value);
    if (!number || *number > max) {
      fail(name, "must be a decimal number up to " + std::to_string(max));
      return std::nullopt;
    }
    return number;
  }
  bool flag(const std::string& name) {
    const auto value = text(name);
    if (!value || *value == "false") return false;
    if (*value != "true") fail(name, "must be true or false");
    return true;
  }
  // Permission bits in octal.
  std::optional<std::uint32_t> mode(const std::string& name) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::uint32_t bits = 0;
    const bool octal = !value->empty() && value->size() <= 5 &&
                       std::ranges::all_of(*value, [](char c) { return c >= '0' && c <= '7'; });
    if (octal) {
      for (const char c : *value) bits = bits * 8 + static_cast<std::uint32_t>(c - '0');
    }
    if (!octal || bits > 07777) {
      fail(name, "must be permission bits in octal, up to 7777");
      return std::nullopt;
    }
    return bits;
  }
  std::optional<std::string> error() {
    if (!error_ && !pairs_.empty()) fail(pairs_.begin()->first, "is unknown");
    return error_;
  }

 private:
  void fail(const std::string& name, const std::string& problem) {
    if (!error_) error_ = "parameter " + Json(name).text() + " " + problem;
  }
  std::multimap<std::string, std::string> pairs_;
  std::optional<std::string> error_;
};

std::optional<std::int32_t> signal_number(const Json& value) {
  static const std::map<std::string, std::int32_t, std::less<>> kNames{
      {"SIGHUP", 1},   {"SIGINT", 2},   {"SIGQUIT", 3},  {"SIGKILL", 9}, {"SIGUSR1", 10},
      {"SIGUSR2", 12}, {"SIGTERM", 15}, {"SIGCONT", 18}, {"SIGSTOP", 19}};
  if (const auto* name = value.string()) {
    const auto at = kNames.find(*name);
    return at == kNames.end() ? std::nullopt : std::optional(at->second);
  }
  const auto number = value.integer<std::int32_t>();
  return number && *number >= 1 && *number <= 31 ? number : std::nullopt;
}

void append_line(std::string& out, const Json& line) {
  out += line.text();
  out += '\n';
}

}  // namespace

unsigned http_status(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return 200;
    case Outcome::kInvalidArgument:
    case Outcome::kIsDirectory:
    case Outcome::kNotDirectory:
      return 400;
    case Outcome::kUnauthenticated:
      return 401;
    case Outcome::kPermissionDenied:
      return 403;
    case Outcome::kNotFound:
      return 404;
    case Outcome::kAlreadyExists:
    case Outcome::kConflict:
      return 409;
    case Outcome::kTooLarge:
      return 413;
    case Outcome::kLimitReached:
      return 429;
    case Outcome::kInternal:
    case Outcome::kInterrupted:
      return 500;
    case Outcome::kUnsupported:
      return 501;
    case Outcome::kUnavailable:
      return 503;
    case Outcome::kDeadlineExceeded:
      return 504;
    case Outcome::kNoSpace:
      return 507;
  }
  std::unreachable();
}

Json failure_json(const Failure& failure) {
  const bool aborted = failure.outcome == Outcome::kConflict && failure.retry_after_ms != 0;
  Json::Object out{{"code", aborted ? std::string_view("aborted") : to_string(failure.outcome)},
                   {"message", failure.message}};
  if (!failure.reason.empty()) out.emplace("reason", failure.reason);
  if (failure.retry_after_ms != 0) out.emplace("retry_after_ms", failure.retry_after_ms);
  return out;
}

// One request on its way through a route's handler.
struct SpaceApi::Call {
  HttpExchange& exchange;
  CallerPtr caller;
  identity::SandboxId sandbox;
  std::uint32_t pid = 0;
  Query query;
  HttpHeaders headers;  // of the answer

  void served_by(const identity::RouteIdentity& route, bool repaired) {
    headers.push_back({"x-space-execution", execution_text(route)});
    if (repaired) headers.push_back({"x-space-repaired", "1"});
  }
};

struct SpaceApi::Entry {
  std::string_view method;
  std::string_view pattern;  // segments after /space/v1; {id} a sandbox, {pid} a process
  Task<void> (SpaceApi::*handler)(Call&);
  bool open_to_all = false;
};

const std::vector<SpaceApi::Entry>& SpaceApi::table() {
  static const std::vector<Entry> kTable{
      {"GET", "health", &SpaceApi::health, true},
      {"GET", "status", &SpaceApi::status},
      {"POST", "sandboxes", &SpaceApi::create_sandbox},
      {"GET", "sandboxes", &SpaceApi::list_sandboxes},
      {"GET", "sandboxes/{id}", &SpaceApi::get_sandbox},
      {"DELETE", "sandboxes/{id}", &SpaceApi::kill_sandbox},
      {"POST", "sandboxes/{id}/timeout", &SpaceApi::set_timeout},
      {"POST", "sandboxes/{id}/pause", &SpaceApi::pause_sandbox},
      {"POST", "sandboxes/{id}/resume", &SpaceApi::resume_sandbox},
      {"POST", "sandboxes/{id}/move", &SpaceApi::move_sandbox},
      {"GET", "sandboxes/{id}/route", &SpaceApi::sandbox_route},
      {"GET", "sandboxes/{id}/files", &SpaceApi::read_file},
      {"PUT", "sandboxes/{id}/files", &SpaceApi::write_file},
      {"DELETE", "sandboxes/{id}/files", &SpaceApi::remove_file},
      {"GET", "sandboxes/{id}/files/stat", &SpaceApi::stat_file},
      {"GET", "sandboxes/{id}/files/list", &SpaceApi::list_files},
      {"POST", "sandboxes/{id}/directories", &SpaceApi::make_directory},
      {"POST", "sandboxes/{id}/processes", &SpaceApi::start_process},
      {"GET", "sandboxes/{id}/processes", &SpaceApi::list_processes},
      {"POST", "sandboxes/{id}/processes/{pid}/signal", &SpaceApi::signal_process},
      {"POST", "sandboxes/{id}/processes/{pid}/stdin", &SpaceApi::process_input},
  };
  return kTable;
}

namespace {

// What a path binds of a pattern's variables; nullopt when it is another path.
struct Bound {
  std::string sandbox;
  std::string pid;
};
std::optional<Bound> match(std::string_view pattern, std::span<const std::string> segments) {
  Bound bound;
  for (const auto& segment : segments) {
    if (pattern.empty()) return std::nullopt;
    const auto slash = pattern.find('/');
    const auto part = pattern.substr(0, slash);
    pattern.remove_prefix(slash == std::string_view::npos ? pattern.size() : slash + 1);
    if (part == "{id}") {
      bound.sandbox = segment;
    } else if (part == "{pid}") {
      bound.pid = segment;
    } else if (part != segment) {
      return std::nullopt;
    }
  }
  if (!pattern.empty()) return std::nullopt;
  return bound;
}

}  // namespace

Task<void> SpaceApi::handle(HttpExchange& exchange) {
  co_await route(exchange);
  exchange.on_gone({});
}

Task<void> SpaceApi::route(HttpExchange& exchange) {
  const auto& request = exchange.request();
  Call call{exchange, nullptr, {}, 0, Query({}), {}};
  const auto segments = wire::canonical_segments(request.path);
  auto pairs = wire::parse_query(request.query);
  if (!segments || !pairs) {
    co_await fail(call, invalid("malformed request target"));
    co_return;
  }
  const Entry* found = nullptr;
  Bound bound;
  std::string allowed;
  if (segments->size() > 2 && (*segments)[0] == "space" && (*segments)[1] == "v1") {
    for (const auto& entry : table()) {
      auto matched = match(entry.pattern, std::span(*segments).subspan(2));
      if (!matched) continue;
      if (entry.method == request.method) {
        found = &entry;
        bound = std::move(*matched);
        break;
      }
      allowed += (allowed.empty() ? "" : ", ") + std::string(entry.method);
    }
  }
  if (found == nullptr && !allowed.empty()) {
    call.headers.push_back({"allow", allowed});
    Json::Object body{{"code", "method_not_allowed"},
                      {"message", "this route takes " + allowed + ", not " + request.method}};
    co_await answer(call, 405, std::move(body));
    co_return;
  }
  if (found == nullptr) {
    co_await fail(call, Failure{Outcome::kNotFound, "no_such_route",
                                "no such route: " + request.method + " " + request.path, 0});
    co_return;
  }
  if (!found->open_to_all) {
    auto credential = credential_of(request);
    if (!credential) {
      co_await fail(call, std::move(credential).error());
      co_return;
    }
    auto caller = co_await gateway_.authorise(std::move(*credential));
    if (!caller) {
      co_await fail(call, std::move(caller).error());
      co_return;
    }
    call.caller = std::move(*caller);
  }
  if (!bound.sandbox.empty()) {
    auto sandbox = identity::SandboxId::parse(bound.sandbox);
    if (!sandbox) {  // the answer of an unknown one (C023)
      co_await fail(call, Failure{Outcome::kNotFound, {}, "no such sandbox", 0});
      co_return;
    }
    call.sandbox = std::move(*sandbox);
  }
  if (!bound.pid.empty()) {
    const auto pid = parse_decimal(bound.pid);
    if (!pid || !std::in_range<std::uint32_t>(*pid)) {
      co_await fail(call, invalid("the process id must be a decimal number"));
      co_return;
    }
    call.pid = static_cast<std::uint32_t>(*pid);
  }
  call.query = Query(std::move(*pairs));
  co_await (this->*(found->handler))(call);
}

Task<void> SpaceApi::answer(Call& call, unsigned status, Json body) {
  auto headers = std::move(call.headers);
  headers.push_back({"content-type", "application/json"});
  headers.push_back({"cache-control", "no-store"});
  auto text = body.text();
  text += '\n';
  static_cast<void>(co_await call.exchange.respond(status, std::move(headers), std::move(text)));
}

Task<void> SpaceApi::fail(Call& call, Failure failure) {
  const auto status = http_status(failure.outcome);
  if (status == 401) call.headers.push_back({"www-authenticate", "Bearer"});
  if (failure.retry_after_ms != 0) {
    call.headers.push_back({"retry-after", std::to_string((failure.retry_after_ms + 999) / 1000)});
  }
  if (status == 500) {
    log_.event(Level::kError, "request.failed",
               {{"path", call.exchange.request().path},
                {"reason", failure.reason},
                {"message", failure.message}});
  }
  auto body = failure_json(failure);
  co_await answer(call, status, std::move(body));
}

Task<std::optional<Json>> SpaceApi::parameters(Call& call) {
  if (const auto problem = call.query.error()) {
    co_await fail(call, invalid(*problem));
    co_return std::nullopt;
  }
  const auto& request = call.exchange.request();
  if (!request.has_body) co_return Json(Json::Object{});
  const Failure too_large{Outcome::kTooLarge, {}, "the body is larger than 1 MiB", 0};
  if (request.content_length.value_or(0) > kMaxJsonBytes) {
    co_await fail(call, too_large);
    co_return std::nullopt;
  }
  std::string text;
  std::array<std::byte, 16 * 1024> buffer;
  for (;;) {
    const auto count = co_await call.exchange.read_body(buffer);
    if (!count) {
      if (count.error() == std::errc::bad_message) co_await fail(call, invalid("malformed body"));
      co_return std::nullopt;
    }
    if (*count == 0) break;
    if (text.size() + *count > kMaxJsonBytes) {
      co_await fail(call, too_large);
      co_return std::nullopt;
    }
    text += as_text(ByteView(buffer).first(*count));
  }
  if (text.empty()) co_return Json(Json::Object{});
  auto json = parse_json(text);
  if (!json) {
    co_await fail(call, invalid("malformed JSON: " + json.error()));
    co_return std::nullopt;
  }
  co_return std::move(*json);
}

Task<bool> SpaceApi::accepted(Call& call, JsonFields& fields) {
  const auto problem = fields.error();
  if (!problem) co_return true;
  co_await fail(call, invalid(*problem));
  co_return false;
}

// ---- platform ----

Task<void> SpaceApi::health(Call& call) {
  Json::Object body{{"status", "ok"}, {"control_plane", gateway_.control_connected()}};
  co_await answer(call, 200, std::move(body));
}

Task<void> SpaceApi::status(Call& call) {
  const auto none = co_await parameters(call);
  if (!none) co_return;
  auto result = co_await gateway_.ask<wire::PlatformStatusResult>(
      call.caller, Operation::kPlatformStatus, wire::PlatformStatusRequest{});
  if (!result) {
    co_await fail(call, std::move(result).error());
    co_return;
  }
  auto body = to_json(*result);
  body.object()->emplace("node_api", to_json(gateway_.counters()));
  co_await answer(call, 200, std::move(body));
}

Task<void> SpaceApi::create_sandbox(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  JsonFields fields(*body);
  wire::SandboxCreateRequest request;
  request.template_name = fields.required_text("template");
  request.timeout_s =
      static_cast<std::uint32_t>(fields.number("timeout_s", 1, kMaxTimeoutSeconds).value_or(300));
  request.metadata = fields.text_map("metadata");
  request.envs = fields.text_map("envs");
  const auto worker = fields.text("worker");
  request.cpu_millis =
      static_cast<std::uint32_t>(fields.number("cpu_millis", 1, 1'000'000).value_or(0));
  request.memory_bytes = fields.number("memory_mb", 1, 1U << 24).value_or(0) * kMegabyte;
  request.disk_bytes = fields.number("disk_mb", 1, 1U << 24).value_or(0) * kMegabyte;
  if (!co_await accepted(call, fields)) co_return;
  if (!worker.empty() && !(request.worker = identity::WorkerId::parse(worker))) {
    co_await fail(call, invalid("field \"worker\" is no worker's name"));
    co_return;
  }
  auto info = co_await gateway_.ask<wire::SandboxInfo>(call.caller, Operation::kSandboxCreate,
                                                       std::move(request));
  if (!info) {
    co_await fail(call, std::move(info).error());
    co_return;
  }
  auto out = to_json(*info);
  co_await answer(call, 201, std::move(out));
}

Task<void> SpaceApi::list_sandboxes(Call& call) {
  const auto none = co_await parameters(call);
  if (!none) co_return;
  auto result = co_await gateway_.ask<wire::SandboxListResult>(call.caller, Operation::kSandboxList,
                                                               wire::SandboxListRequest{});
  if (!result) {
    co_await fail(call, std::move(result).error());
    co_return;
  }
  Json::Array sandboxes;
  for (const auto& info : result->sandboxes) sandboxes.push_back(to_json(info));
  Json::Object body{{"sandboxes", std::move(sandboxes)}};
  co_await answer(call, 200, std::move(body));
}

template <class Request>
Task<void> SpaceApi::sandbox_operation(Call& call, Operation operation, Request request) {
  request.sandbox = call.sandbox;
  auto info = co_await gateway_.ask<wire::SandboxInfo>(call.caller, operation, std::move(request));
  if (!info) {
    auto failed = std::move(info).error();
    // One answer for another team's sandbox and for none (C023).
    if (failed.outcome == Outcome::kNotFound || failed.outcome == Outcome::kPermissionDenied) {
      failed = Failure{Outcome::kNotFound, {}, "no such sandbox", 0};
    }
    co_await fail(call, std::move(failed));
    co_return;
  }
  auto body = to_json(*info);
  co_await answer(call, 200, std::move(body));
}

Task<void> SpaceApi::get_sandbox(Call& call) {
  const auto none = co_await parameters(call);
  if (none) co_await sandbox_operation(call, Operation::kSandboxGet, wire::SandboxRequest{});
}

Task<void> SpaceApi::kill_sandbox(Call& call) {
  const auto none = co_await parameters(call);
  if (none) co_await sandbox_operation(call, Operation::kSandboxKill, wire::SandboxRequest{});
}

Task<void> SpaceApi::set_timeout(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  JsonFields fields(*body);
  const auto timeout = fields.number("timeout_s", 1, kMaxTimeoutSeconds);
  if (!co_await accepted(call, fields)) co_return;
  if (!timeout) {
    co_await fail(call, invalid("field \"timeout_s\" is needed"));
    co_return;
  }
  wire::SandboxTimeoutRequest request;
  request.timeout_s = static_cast<std::uint32_t>(*timeout);
  co_await sandbox_operation(call, Operation::kSandboxSetTimeout, std::move(request));
}

Task<void> SpaceApi::pause_sandbox(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  JsonFields fields(*body);
  if (!co_await accepted(call, fields)) co_return;
  co_await sandbox_operation(call, Operation::kSandboxPause, wire::SandboxPauseRequest{});
}

Task<void> SpaceApi::resume_sandbox(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  JsonFields fields(*body);
  wire::SandboxResumeRequest request;
  if (const auto timeout = fields.number("timeout_s", 1, kMaxTimeoutSeconds)) {
    request.timeout_s = static_cast<std::uint32_t>(*timeout);
  }
  const auto worker = fields.text("worker");
  if (!co_await accepted(call, fields)) co_return;
  if (!worker.empty() && !(request.worker = identity::WorkerId::parse(worker))) {
    co_await fail(call, invalid("field \"worker\" is no worker's name"));
    co_return;
  }
  co_await sandbox_operation(call, Operation::kSandboxResume, std::move(request));
}

Task<void> SpaceApi::move_sandbox(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  JsonFields fields(*body);
  wire::SandboxMoveRequest request;
  const auto worker = fields.text("worker");
  if (!co_await accepted(call, fields)) co_return;
  if (!worker.empty() && !(request.worker = identity::WorkerId::parse(worker))) {
    co_await fail(call, invalid("field \"worker\" is no worker's name"));
    co_return;
  }
  co_await sandbox_operation(call, Operation::kSandboxMove, std::move(request));
}

Task<void> SpaceApi::sandbox_route(Call& call) {
  const auto none = co_await parameters(call);
  if (!none) co_return;
  wire::SandboxRequest request;
  request.sandbox = call.sandbox;
  auto result = co_await gateway_.ask<wire::SandboxRouteResult>(
      call.caller, Operation::kSandboxRoute, std::move(request));
  if (!result) {
    auto failed = std::move(result).error();
    if (failed.outcome == Outcome::kPermissionDenied || failed.outcome == Outcome::kNotFound) {
      failed = Failure{Outcome::kNotFound, {}, "no such sandbox", 0};
    }
    co_await fail(call, std::move(failed));
    co_return;
  }
  auto body = to_json(*result);
  co_await answer(call, 200, std::move(body));
}

// ---- files ----

template <class Request>
Task<std::optional<Gateway::Answer>> SpaceApi::guest_call(Call& call, Operation operation,
                                                          const Request& request) {
  auto metadata = wire::encode(request);
  auto result = co_await gateway_.call(call.caller, call.sandbox, operation, std::move(metadata));
  if (!result) {
    co_await fail(call, std::move(result).error());
    co_return std::nullopt;
  }
  call.served_by(result->identity, result->repaired);
  co_return std::move(*result);
}

Task<void> SpaceApi::read_file(Call& call) {
  wire::FileReadRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  request.offset = call.query.number("offset", INT64_MAX).value_or(0);
  request.length = call.query.number("length", INT64_MAX);
  if (const auto problem = call.query.error()) {
    co_await fail(call, invalid(*problem));
    co_return;
  }
  const auto metadata = wire::encode(request);
  auto admitted = co_await gateway_.open(call.caller, call.sandbox, Operation::kFileRead, metadata);
  if (!admitted) {
    co_await fail(call, std::move(admitted).error());
    co_return;
  }
  auto& admission = **admitted;
  call.served_by(admission.identity(), admission.repaired());
  call.exchange.on_gone([&admission] { admission.cancel(); });
  for (;;) {
    auto event = co_await admission.next();
    const auto* data = std::get_if<frame::Data>(&event);
    const auto* end = std::get_if<frame::End>(&event);
    const bool done = end != nullptr && end->outcome == Outcome::kOk;
    if (data == nullptr && !done) {
      // After the head, the body breaks off: never a clean end that was not one (C048).
      if (!call.exchange.answered()) co_await fail(call, broken(event));
      break;
    }
    if (!call.exchange.answered()) {
      call.headers.push_back({"content-type", "application/octet-stream"});
      call.headers.push_back({"cache-control", "no-store"});
      auto headers = std::move(call.headers);
      if (!co_await call.exchange.begin(200, std::move(headers))) break;
    }
    if (done) {
      static_cast<void>(co_await call.exchange.finish());
      break;
    }
    if (!co_await call.exchange.write(data->bytes)) break;
  }
  call.exchange.on_gone({});
}

// Moves the request's body to the worker, then END. False when the client broke off or sent a
// malformed body; the operation is given up then, and the request answered where it can be.
Task<bool> SpaceApi::upload(Call& call, Admission& admission) {
  std::vector<std::byte> buffer(64 * 1024);
  while (!admission.over()) {
    const auto count = co_await call.exchange.read_body(buffer);
    if (!count) {
      admission.cancel();
      if (count.error() == std::errc::bad_message) co_await fail(call, invalid("malformed body"));
      co_return false;
    }
    if (*count == 0) {
      admission.end();
      co_return true;
    }
    // Once the worker has ended the operation, its outcome tells why.
    if (!co_await admission.write(ByteView(buffer).first(*count))) break;
  }
  co_return true;
}

// How an upload ended. A client that leaves meanwhile gives it up.
Task<hop::ChannelEvent> SpaceApi::outcome(Call& call, Admission& admission) {
  call.exchange.on_gone([&admission] { admission.cancel(); });
  auto event = co_await admission.next();
  call.exchange.on_gone({});
  co_return event;
}

Task<void> SpaceApi::write_file(Call& call) {
  wire::FileWriteRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  request.mode = call.query.mode("mode");
  request.size = call.exchange.request().content_length;
  if (!call.exchange.request().has_body) request.size = 0;
  if (const auto problem = call.query.error()) {
    co_await fail(call, invalid(*problem));
    co_return;
  }
  auto metadata = wire::encode(request);
  auto admitted =
      co_await gateway_.open(call.caller, call.sandbox, Operation::kFileWrite, std::move(metadata));
  if (!admitted) {
    co_await fail(call, std::move(admitted).error());
    co_return;
  }
  auto& admission = **admitted;
  call.served_by(admission.identity(), admission.repaired());
  if (!co_await upload(call, admission)) co_return;
  const auto event = co_await outcome(call, admission);
  const auto* end = std::get_if<frame::End>(&event);
  if (end == nullptr || end->outcome != Outcome::kOk) {
    co_await fail(call, broken(event));
    co_return;
  }
  const auto entry = wire::decode<wire::FileEntry>(end->result);
  if (!entry) {
    co_await fail(call, interrupted_stream("malformed_answer"));
    co_return;
  }
  auto body = to_json(*entry);
  co_await answer(call, 201, std::move(body));
}

Task<void> SpaceApi::remove_file(Call& call) {
  wire::FileRemoveRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  const auto none = co_await parameters(call);
  if (!none) co_return;
  if (!co_await guest_call(call, Operation::kFileRemove, request)) co_return;
  co_await answer(call, 200, Json(Json::Object{}));
}

Task<void> SpaceApi::stat_file(Call& call) {
  wire::FileStatRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  const auto none = co_await parameters(call);
  if (!none) co_return;
  const auto result = co_await guest_call(call, Operation::kFileStat, request);
  if (!result) co_return;
  const auto entry = wire::decode<wire::FileEntry>(result->result);
  if (!entry) {
    co_await fail(call, interrupted_stream("malformed_answer"));
    co_return;
  }
  auto body = to_json(*entry);
  co_await answer(call, 200, std::move(body));
}

Task<void> SpaceApi::list_files(Call& call) {
  wire::FileListRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  request.depth = static_cast<std::uint32_t>(call.query.number("depth", 64).value_or(1));
  const auto none = co_await parameters(call);
  if (!none) co_return;
  const auto result = co_await guest_call(call, Operation::kFileList, request);
  if (!result) co_return;
  const auto list = wire::decode<wire::FileListResult>(result->result);
  if (!list) {
    co_await fail(call, interrupted_stream("malformed_answer"));
    co_return;
  }
  Json::Array entries;
  for (const auto& entry : list->entries) entries.push_back(to_json(entry));
  Json::Object body{{"entries", std::move(entries)}, {"truncated", list->truncated}};
  co_await answer(call, 200, std::move(body));
}

Task<void> SpaceApi::make_directory(Call& call) {
  wire::FileMakeDirRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  const auto none = co_await parameters(call);
  if (!none) co_return;
  const auto result = co_await guest_call(call, Operation::kFileMakeDir, request);
  if (!result) co_return;
  const auto entry = wire::decode<wire::FileEntry>(result->result);
  if (!entry) {
    co_await fail(call, interrupted_stream("malformed_answer"));
    co_return;
  }
  auto body = to_json(*entry);
  co_await answer(call, 201, std::move(body));
}

// ---- processes ----

Task<void> SpaceApi::start_process(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  JsonFields fields(*body);
  wire::ProcessStartRequest request;
  request.spec.command = fields.required_text("command");
  request.spec.arguments = fields.text_list("arguments");
  request.spec.envs = fields.text_map("envs");
  request.spec.cwd = fields.text("cwd");
  request.spec.user = fields.text("user");
  request.spec.tag = fields.text("tag");
  request.spec.stdin_open = fields.flag("stdin");
  request.timeout_ms =
      static_cast<std::uint32_t>(fields.number("timeout_ms", 1, UINT32_MAX).value_or(0));
  if (!co_await accepted(call, fields)) co_return;
  auto metadata = wire::encode(request);
  auto admitted = co_await gateway_.open(call.caller, call.sandbox, Operation::kProcessStart,
                                         std::move(metadata));
  if (!admitted) {
    co_await fail(call, std::move(admitted).error());
    co_return;
  }
  auto& admission = **admitted;
  call.served_by(admission.identity(), admission.repaired());
  call.exchange.on_gone([&admission] { admission.cancel(); });
  co_await stream_process(call, admission);
  call.exchange.on_gone({});
}

// Lines of JSON until the exit event. A stream that ends otherwise gets an error line and then
// breaks off, so that it can't be read as a clean exit (C048).
Task<void> SpaceApi::stream_process(Call& call, Admission& admission) {
  EventReader events;
  bool exited = false;
  for (;;) {
    auto event = co_await admission.next();
    const auto* data = std::get_if<frame::Data>(&event);
    std::string lines;
    std::optional<Failure> failed;
    const auto* end = std::get_if<frame::End>(&event);
    const bool done = end != nullptr && end->outcome == Outcome::kOk && exited;
    if (data != nullptr) {
      events.feed(data->bytes);
      while (auto next = events.next()) {
        if (exited) break;
        exited = std::holds_alternative<wire::ProcessExited>(next->event);
        append_line(lines, to_json(*next));
      }
      if (events.bad()) failed = interrupted_stream("malformed_events");
    } else if (!done) {
      failed = broken(event);
    }
    if (!call.exchange.answered()) {
      if (failed) {
        co_await fail(call, std::move(*failed));
        co_return;
      }
      call.headers.push_back({"content-type", "application/x-ndjson"});
      call.headers.push_back({"cache-control", "no-store"});
      auto headers = std::move(call.headers);
      if (!co_await call.exchange.begin(200, std::move(headers))) co_return;
    }
    if (failed) append_line(lines, Json(Json::Object{{"error", failure_json(*failed)}}));
    if (!lines.empty() && !co_await call.exchange.write(as_bytes(lines))) co_return;
    if (done) static_cast<void>(co_await call.exchange.finish());
    if (done || failed) co_return;
  }
}

Task<void> SpaceApi::list_processes(Call& call) {
  const auto none = co_await parameters(call);
  if (!none) co_return;
  const auto result =
      co_await guest_call(call, Operation::kProcessList, wire::ProcessListRequest{});
  if (!result) co_return;
  const auto list = wire::decode<wire::ProcessListResult>(result->result);
  if (!list) {
    co_await fail(call, interrupted_stream("malformed_answer"));
    co_return;
  }
  Json::Array processes;
  for (const auto& process : list->processes) processes.push_back(to_json(process));
  Json::Object body{{"processes", std::move(processes)}};
  co_await answer(call, 200, std::move(body));
}

Task<void> SpaceApi::signal_process(Call& call) {
  const auto body = co_await parameters(call);
  if (!body) co_return;
  const auto* object = body->object();
  if (object == nullptr || object->size() != 1 || !object->contains("signal")) {
    co_await fail(call, invalid("the body must be {\"signal\": NAME or NUMBER}"));
    co_return;
  }
  const auto signal = signal_number(object->at("signal"));
  if (!signal) {
    co_await fail(call, invalid("field \"signal\" must be 1 to 31 or a name like \"SIGTERM\""));
    co_return;
  }
  const wire::ProcessSignalRequest request{call.pid, *signal};
  if (!co_await guest_call(call, Operation::kProcessSignal, request)) co_return;
  co_await answer(call, 200, Json(Json::Object{}));
}

Task<void> SpaceApi::process_input(Call& call) {
  wire::ProcessInputRequest request;
  request.pid = call.pid;
  request.close_after = call.query.flag("close");
  if (const auto problem = call.query.error()) {
    co_await fail(call, invalid(*problem));
    co_return;
  }
  auto metadata = wire::encode(request);
  auto admitted = co_await gateway_.open(call.caller, call.sandbox, Operation::kProcessInput,
                                         std::move(metadata));
  if (!admitted) {
    co_await fail(call, std::move(admitted).error());
    co_return;
  }
  auto& admission = **admitted;
  call.served_by(admission.identity(), admission.repaired());
  if (!co_await upload(call, admission)) co_return;
  const auto event = co_await outcome(call, admission);
  const auto* end = std::get_if<frame::End>(&event);
  if (end == nullptr || end->outcome != Outcome::kOk) {
    co_await fail(call, broken(event));
    co_return;
  }
  const auto result = wire::decode<wire::ProcessInputResult>(end->result);
  if (!result) {
    co_await fail(call, interrupted_stream("malformed_answer"));
    co_return;
  }
  Json::Object body{{"accepted", result->accepted}};
  co_await answer(call, 200, std::move(body));
}

}  // namespace space::node_api
