#include "services/node_api/space_api.h"

#include <map>
#include <span>
#include <utility>

#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/event_reader.h"
#include "services/node_api/http_call.h"
#include "services/node_api/records_json.h"
#include "services/node_api/routes.h"

namespace space::node_api {

using frame::Outcome;
using policy::Operation;

namespace {

constexpr std::uint64_t kMegabyte = 1U << 20;
constexpr std::uint64_t kMaxTimeoutSeconds = 86'400;

// The worker a request wishes for.
std::optional<identity::WorkerId> worker_wish(JsonFields& fields) {
  const auto name = fields.text("worker");
  if (name.empty()) return std::nullopt;
  auto worker = identity::WorkerId::parse(name);
  if (!worker) fields.refuse("worker", "is no worker's name");
  return worker;
}

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

template <class Record>
Json json_list(const std::vector<Record>& records) {
  Json::Array out;
  for (const auto& record : records) out.push_back(to_json(record));
  return out;
}

void append_line(std::string& out, const Json& line) {
  out += line.text();
  out += '\n';
}

}  // namespace

Json failure_json(const Failure& failure) {
  const bool aborted = failure.outcome == Outcome::kConflict && failure.retry_after_ms != 0;
  Json::Object out{{"code", aborted ? std::string_view("aborted") : to_string(failure.outcome)},
                   {"message", failure.message}};
  if (!failure.reason.empty()) out.emplace("reason", failure.reason);
  if (failure.retry_after_ms != 0) out.emplace("retry_after_ms", failure.retry_after_ms);
  return out;
}

class SpaceApi::Call final : public HttpCall {
 public:
  using HttpCall::HttpCall;
  std::uint32_t pid = 0;  // that the path names

  // A platform operation about the sandbox whose result is its record.
  template <class Request>
  Task<void> answer_info(Operation operation, Request request) {
    const auto info = co_await ask_sandbox<wire::SandboxInfo>(operation, std::move(request));
    if (info) co_await answer(200, to_json(*info));
  }
  // A request about one path, all of it in the query.
  template <class Request>
  Task<std::optional<Request>> path_request() {
    Request request;
    request.path = query.path();
    request.user = query.user();
    const auto none = co_await parameters();
    if (!none) co_return std::nullopt;
    co_return std::move(request);
  }

 private:
  Json failure_body(const Failure& failure) const override { return failure_json(failure); }
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
      {"GET", "sandboxes/{id}/capability", &SpaceApi::show_capability},
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

Task<void> SpaceApi::handle(HttpExchange& exchange) {
  Call call(gateway_, log_, exchange);
  const auto& request = exchange.request();
  const auto segments = wire::canonical_segments(request.path);
  auto pairs = wire::parse_query(request.query);
  if (!segments || !pairs) {
    co_await call.fail(invalid("malformed request target"));
    co_return;
  }
  Found<Entry> found;
  if (segments->size() > 2 && (*segments)[0] == "space" && (*segments)[1] == "v1") {
    const std::span rest(*segments);
    found = find_route(std::span(table()), request.method, rest.subspan(2));
  }
  if (found.entry == nullptr && !found.allowed.empty()) {
    call.headers.push_back({"allow", found.allowed});
    Json::Object body{{"code", "method_not_allowed"},
                      {"message", "this route takes " + found.allowed + ", not " + request.method}};
    co_await call.answer(405, std::move(body));
    co_return;
  }
  if (found.entry == nullptr) {
    co_await call.fail(Failure{Outcome::kNotFound, "no_such_route",
                               "no such route: " + request.method + " " + request.path, 0});
    co_return;
  }
  if (!found.entry->open_to_all && !co_await call.authorise(api_key_of(request))) co_return;
  if (!co_await call.name_sandbox(found.bound.sandbox)) co_return;
  if (!found.bound.pid.empty()) {
    const auto pid = parse_decimal(found.bound.pid);
    if (!pid || !std::in_range<std::uint32_t>(*pid)) {
      co_await call.fail(invalid("the process id must be a decimal number"));
      co_return;
    }
    call.pid = static_cast<std::uint32_t>(*pid);
  }
  call.query = Query(std::move(*pairs));
  co_await (this->*(found.entry->handler))(call);
}

// ---- platform ----

Task<void> SpaceApi::health(Call& call) {
  Json::Object body{{"status", "ok"}, {"control_plane", gateway_.control_connected()}};
  co_await call.answer(200, std::move(body));
}

Task<void> SpaceApi::status(Call& call) {
  const auto none = co_await call.parameters();
  if (!none) co_return;
  const auto result = co_await call.ask<wire::PlatformStatusResult>(Operation::kPlatformStatus,
                                                                    wire::PlatformStatusRequest{});
  if (!result) co_return;
  auto body = to_json(*result);
  body.object()->emplace("node_api", to_json(gateway_.counters()));
  co_await call.answer(200, std::move(body));
}

Task<void> SpaceApi::create_sandbox(Call& call) {
  const auto body = co_await call.parameters();
  if (!body) co_return;
  JsonFields fields(*body);
  wire::SandboxCreateRequest request;
  request.template_name = fields.required_text("template");
  request.timeout_s =
      static_cast<std::uint32_t>(fields.number("timeout_s", 1, kMaxTimeoutSeconds).value_or(300));
  request.metadata = fields.text_map("metadata");
  request.envs = fields.text_map("envs");
  request.worker = worker_wish(fields);
  request.cpu_millis =
      static_cast<std::uint32_t>(fields.number("cpu_millis", 1, 1'000'000).value_or(0));
  request.memory_bytes = fields.number("memory_mb", 1, 1U << 24).value_or(0) * kMegabyte;
  request.disk_bytes = fields.number("disk_mb", 1, 1U << 24).value_or(0) * kMegabyte;
  if (!co_await call.accepted(fields)) co_return;
  const auto info =
      co_await call.ask<wire::SandboxInfo>(Operation::kSandboxCreate, std::move(request));
  if (info) co_await call.answer(201, to_json(*info));
}

Task<void> SpaceApi::list_sandboxes(Call& call) {
  wire::SandboxListRequest request;
  request.cursor = call.query.text("cursor").value_or("");
  const auto none = co_await call.parameters();
  if (!none) co_return;
  const auto result =
      co_await call.ask<wire::SandboxListResult>(Operation::kSandboxList, std::move(request));
  if (!result) co_return;
  Json::Object body{{"sandboxes", json_list(result->sandboxes)}};
  if (!result->next_cursor.empty()) body.emplace("next_cursor", result->next_cursor);
  co_await call.answer(200, std::move(body));
}

Task<void> SpaceApi::get_sandbox(Call& call) {
  const auto none = co_await call.parameters();
  if (none) co_await call.answer_info(Operation::kSandboxGet, wire::SandboxRequest{});
}

Task<void> SpaceApi::kill_sandbox(Call& call) {
  const auto none = co_await call.parameters();
  if (none) co_await call.answer_info(Operation::kSandboxKill, wire::SandboxRequest{});
}

Task<void> SpaceApi::set_timeout(Call& call) {
  const auto body = co_await call.parameters();
  if (!body) co_return;
  JsonFields fields(*body);
  const auto timeout = fields.number("timeout_s", 1, kMaxTimeoutSeconds);
  if (!timeout) fields.refuse("timeout_s", "is needed");
  if (!co_await call.accepted(fields)) co_return;
  wire::SandboxTimeoutRequest request;
  request.timeout_s = static_cast<std::uint32_t>(*timeout);
  co_await call.answer_info(Operation::kSandboxSetTimeout, std::move(request));
}

Task<void> SpaceApi::pause_sandbox(Call& call) {
  const auto body = co_await call.parameters();
  if (!body) co_return;
  JsonFields fields(*body);
  if (!co_await call.accepted(fields)) co_return;
  co_await call.answer_info(Operation::kSandboxPause, wire::SandboxPauseRequest{});
}

Task<void> SpaceApi::resume_sandbox(Call& call) {
  const auto body = co_await call.parameters();
  if (!body) co_return;
  JsonFields fields(*body);
  wire::SandboxResumeRequest request;
  if (const auto timeout = fields.number("timeout_s", 1, kMaxTimeoutSeconds)) {
    request.timeout_s = static_cast<std::uint32_t>(*timeout);
  }
  request.worker = worker_wish(fields);
  if (!co_await call.accepted(fields)) co_return;
  const auto result = co_await call.ask_sandbox<wire::SandboxResumeResult>(
      Operation::kSandboxResume, std::move(request));
  if (result) co_await call.answer(200, to_json(result->info));
}

Task<void> SpaceApi::move_sandbox(Call& call) {
  const auto body = co_await call.parameters();
  if (!body) co_return;
  JsonFields fields(*body);
  wire::SandboxMoveRequest request;
  request.worker = worker_wish(fields);
  if (!co_await call.accepted(fields)) co_return;
  co_await call.answer_info(Operation::kSandboxMove, std::move(request));
}

Task<void> SpaceApi::sandbox_route(Call& call) {
  const auto none = co_await call.parameters();
  if (!none) co_return;
  const auto result = co_await call.ask_sandbox<wire::SandboxRouteResult>(Operation::kSandboxRoute,
                                                                          wire::SandboxRequest{});
  if (result) co_await call.answer(200, to_json(*result));
}

Task<void> SpaceApi::show_capability(Call& call) {
  const auto name = call.query.text("operation").value_or("file.read");
  const auto none = co_await call.parameters();
  if (!none) co_return;
  const auto* info = policy::find_operation(name);
  if (info == nullptr || info->scope != policy::Scope::kSandbox) {
    co_await call.fail(invalid("parameter \"operation\" names no operation on a sandbox"));
    co_return;
  }
  const auto claims = co_await gateway_.claims(call.caller, call.sandbox, info->operation);
  if (!claims) {
    co_await call.fail(claims.error());
    co_return;
  }
  co_await call.answer(200, to_json(*claims));
}

// ---- files ----

Task<void> SpaceApi::read_file(Call& call) {
  wire::FileReadRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  request.offset = call.query.number("offset", INT64_MAX).value_or(0);
  request.length = call.query.number("length", INT64_MAX);
  if (!co_await call.query_accepted()) co_return;
  const auto admission = co_await call.open(Operation::kFileRead, request);
  if (!admission) co_return;
  HttpHeaders content{{"content-type", "application/octet-stream"}, {"cache-control", "no-store"}};
  co_await call.download(*admission, std::move(content));
}

Task<void> SpaceApi::write_file(Call& call) {
  wire::FileWriteRequest request;
  request.path = call.query.path();
  request.user = call.query.user();
  request.mode = call.query.mode("mode");
  request.size = call.exchange.request().content_length;
  if (!call.exchange.request().has_body) request.size = 0;
  if (!co_await call.query_accepted()) co_return;
  const auto entry = co_await call.upload<wire::FileEntry>(Operation::kFileWrite, request);
  if (entry) co_await call.answer(201, to_json(*entry));
}

Task<void> SpaceApi::remove_file(Call& call) {
  const auto request = co_await call.path_request<wire::FileRemoveRequest>();
  if (!request) co_return;
  if (!co_await call.guest_call<wire::Nothing>(Operation::kFileRemove, *request)) co_return;
  co_await call.answer(200, Json(Json::Object{}));
}

Task<void> SpaceApi::stat_file(Call& call) {
  const auto request = co_await call.path_request<wire::FileStatRequest>();
  if (!request) co_return;
  const auto entry = co_await call.guest_call<wire::FileEntry>(Operation::kFileStat, *request);
  if (entry) co_await call.answer(200, to_json(*entry));
}

Task<void> SpaceApi::list_files(Call& call) {
  const auto depth = static_cast<std::uint32_t>(call.query.number("depth", 64).value_or(1));
  auto request = co_await call.path_request<wire::FileListRequest>();
  if (!request) co_return;
  request->depth = depth;
  const auto list = co_await call.guest_call<wire::FileListResult>(Operation::kFileList, *request);
  if (!list) co_return;
  Json::Object body{{"entries", json_list(list->entries)}, {"truncated", list->truncated}};
  co_await call.answer(200, std::move(body));
}

Task<void> SpaceApi::make_directory(Call& call) {
  const auto request = co_await call.path_request<wire::FileMakeDirRequest>();
  if (!request) co_return;
  const auto entry = co_await call.guest_call<wire::FileEntry>(Operation::kFileMakeDir, *request);
  if (entry) co_await call.answer(201, to_json(*entry));
}

// ---- processes ----

Task<void> SpaceApi::start_process(Call& call) {
  const auto body = co_await call.parameters();
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
  if (!co_await call.accepted(fields)) co_return;
  const auto admission = co_await call.open(Operation::kProcessStart, request);
  if (!admission) co_return;
  co_await stream_process(call, *admission);
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
        co_await call.fail(std::move(*failed));
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
  const auto none = co_await call.parameters();
  if (!none) co_return;
  const auto list = co_await call.guest_call<wire::ProcessListResult>(Operation::kProcessList,
                                                                      wire::ProcessListRequest{});
  if (!list) co_return;
  Json::Object body{{"processes", json_list(list->processes)}};
  co_await call.answer(200, std::move(body));
}

Task<void> SpaceApi::signal_process(Call& call) {
  const auto body = co_await call.parameters();
  if (!body) co_return;
  const auto* object = body->object();
  if (object == nullptr || object->size() != 1 || !object->contains("signal")) {
    co_await call.fail(invalid("the body must be {\"signal\": NAME or NUMBER}"));
    co_return;
  }
  const auto signal = signal_number(object->at("signal"));
  if (!signal) {
    co_await call.fail(invalid("field \"signal\" must be 1 to 31 or a name like \"SIGTERM\""));
    co_return;
  }
  const wire::ProcessSignalRequest request{call.pid, *signal};
  if (!co_await call.guest_call<wire::Nothing>(Operation::kProcessSignal, request)) co_return;
  co_await call.answer(200, Json(Json::Object{}));
}

Task<void> SpaceApi::process_input(Call& call) {
  wire::ProcessInputRequest request;
  request.pid = call.pid;
  request.close_after = call.query.flag("close");
  if (!co_await call.query_accepted()) co_return;
  const auto result =
      co_await call.upload<wire::ProcessInputResult>(Operation::kProcessInput, request);
  if (!result) co_return;
  Json::Object body{{"accepted", result->accepted}};
  co_await call.answer(200, std::move(body));
}

}  // namespace space::node_api
