#include "services/node_api/control_api.h"

#include <span>
#include <utility>

#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/e2b.h"
#include "services/node_api/http_call.h"
#include "services/node_api/routes.h"

namespace space::node_api {

using frame::Outcome;
using policy::Operation;

namespace {

constexpr std::uint32_t kDefaultTimeout = 15;  // of POST /sandboxes
constexpr std::uint32_t kDefaultTimeoutV2 = 300;
constexpr std::uint32_t kRetryMs = 1'000;

// The domain as this client reaches it: with the port of its Host.
std::string reached(const std::string& domain, const HttpRequest& request) {
  const auto host = single_header(request.headers, "host").value_or("");
  const auto colon = host.rfind(':');
  if (domain.empty() || colon == std::string_view::npos) return domain;
  const auto port = host.substr(colon + 1);
  return parse_decimal(port) ? domain + ":" + std::string(port) : domain;
}

std::string route_name(const HttpRequest& request) { return request.method + " " + request.path; }

}  // namespace

class ControlApi::Call final : public HttpCall {
 public:
  using HttpCall::HttpCall;
  std::string domain;  // for the answer

  // `kUnavailable` says that nothing was done and that later it may be; after an expired deadline
  // nobody knows, and an SDK must not ask again by itself.
  Task<void> fail(Failure failure) override {
    if (failure.outcome == Outcome::kUnavailable && failure.retry_after_ms == 0) {
      failure.retry_after_ms = kRetryMs;
    }
    if (failure.outcome == Outcome::kDeadlineExceeded) headers.push_back({"should-retry", "false"});
    co_await HttpCall::fail(std::move(failure));
  }
  // The path is unknown, or known with other methods only (C106).
  Task<void> no_route(std::string allowed) {
    const auto& request = exchange.request();
    std::string message = "no such route: " + route_name(request);
    if (!allowed.empty()) message += " (this path takes " + allowed + ")";
    message += "; SPACE speaks the E2B API of " + std::string(e2b::kSupportedSdks);
    const unsigned status = allowed.empty() ? 404 : 405;
    if (!allowed.empty()) headers.push_back({"allow", std::move(allowed)});
    co_await answer(status, error_body(status, std::move(message), "no_such_route"));
  }
  Task<void> answer_nothing() {
    static_cast<void>(co_await exchange.respond(204, std::move(headers), {}));
  }
  // The request's body through one of the readers of e2b.h.
  template <class T>
  Task<std::optional<T>> read(Result<T> (*reader)(const Json&)) {
    const auto body = co_await parameters();
    if (!body) co_return std::nullopt;
    auto result = reader(*body);
    if (!result) {
      co_await fail(std::move(result).error());
      co_return std::nullopt;
    }
    co_return *std::move(result);
  }
  Task<bool> read(Result<void> (*reader)(const Json&)) {
    const auto body = co_await parameters();
    if (!body) co_return false;
    auto result = reader(*body);
    if (result) co_return true;
    co_await fail(std::move(result).error());
    co_return false;
  }

  // The sandbox, resumed where it was paused.
  Task<std::optional<wire::SandboxResumeResult>> run(std::optional<std::uint32_t> timeout_s) {
    wire::SandboxResumeRequest request;
    request.timeout_s = timeout_s;
    return ask_sandbox<wire::SandboxResumeResult>(Operation::kSandboxResume, std::move(request));
  }
  Task<std::optional<wire::SandboxInfo>> info() {
    return ask_sandbox<wire::SandboxInfo>(Operation::kSandboxGet, wire::SandboxRequest{});
  }

 private:
  static Json error_body(unsigned status, std::string message, std::string_view error_code) {
    return Json::Object{
        {"code", status}, {"message", std::move(message)}, {"error_code", error_code}};
  }
  Json failure_body(const Failure& failure) const override {
    const std::string_view word =
        failure.reason.empty() ? to_string(failure.outcome) : failure.reason;
    return error_body(http_status(failure.outcome), failure.message, word);
  }
};

struct ControlApi::Entry {
  std::string_view method;
  std::string_view pattern;
  Task<void> (ControlApi::*handler)(Call&) = nullptr;  // null: not supported
};

const std::vector<ControlApi::Entry>& ControlApi::table() {
  static const std::vector<Entry> kTable{
      {"POST", "sandboxes", &ControlApi::create},
      {"POST", "v2/sandboxes", &ControlApi::create_v2},
      {"GET", "sandboxes", &ControlApi::list},
      {"GET", "v2/sandboxes", &ControlApi::list_v2},
      {"GET", "sandboxes/metrics"},
      {"GET", "sandboxes/{id}", &ControlApi::get},
      {"DELETE", "sandboxes/{id}", &ControlApi::kill},
      {"POST", "sandboxes/{id}/timeout", &ControlApi::set_timeout},
      {"POST", "sandboxes/{id}/refreshes", &ControlApi::refresh},
      {"POST", "sandboxes/{id}/connect", &ControlApi::connect},
      {"POST", "v2/sandboxes/{id}/connect", &ControlApi::connect},
      {"POST", "sandboxes/{id}/resume", &ControlApi::resume},
      {"POST", "sandboxes/{id}/pause", &ControlApi::pause},
      {"POST", "sandboxes/{id}/fork"},
      {"POST", "sandboxes/{id}/snapshots"},
      {"PUT", "sandboxes/{id}/network"},
      {"GET", "sandboxes/{id}/metrics"},
      {"GET", "sandboxes/{id}/logs"},
      {"GET", "v2/sandboxes/{id}/logs"},
      {"GET", "snapshots"},
      {"GET", "default-templates"},
      {"GET", "templates"},
      {"GET", "v2/templates"},
      {"POST", "templates"},
      {"POST", "v2/templates"},
      {"POST", "v3/templates"},
      {"POST", "templates/tags"},
      {"DELETE", "templates/tags"},
      {"GET", "templates/aliases/*"},
      {"GET", "templates/*"},
      {"POST", "templates/*"},
      {"PATCH", "templates/*"},
      {"PATCH", "v2/templates/*"},
      {"DELETE", "templates/*"},
      {"GET", "templates/*/tags"},
      {"GET", "templates/*/tags/count"},
      {"GET", "templates/*/tags/exists"},
      {"GET", "templates/*/tags/groups"},
      {"GET", "templates/*/tags/*/assignments"},
      {"GET", "templates/*/files/*"},
      {"POST", "templates/*/builds/*"},
      {"POST", "v2/templates/*/builds/*"},
      {"GET", "templates/*/builds/*/status"},
      {"GET", "templates/*/builds/*/logs"},
      {"GET", "teams"},
      {"GET", "teams/*/metrics"},
      {"GET", "teams/*/metrics/max"},
      {"GET", "api-keys"},
      {"POST", "api-keys"},
      {"PATCH", "api-keys/*"},
      {"DELETE", "api-keys/*"},
      {"POST", "access-tokens"},
      {"DELETE", "access-tokens/*"},
      {"GET", "volumes"},
      {"POST", "volumes"},
      {"GET", "volumes/*"},
      {"DELETE", "volumes/*"},
      {"GET", "volumecontent/*/path"},
      {"PATCH", "volumecontent/*/path"},
      {"DELETE", "volumecontent/*/path"},
      {"GET", "volumecontent/*/dir"},
      {"POST", "volumecontent/*/dir"},
      {"GET", "volumecontent/*/file"},
      {"PUT", "volumecontent/*/file"},
      {"GET", "secrets"},
      {"POST", "secrets"},
      {"GET", "secrets/*"},
      {"POST", "secrets/*"},
      {"DELETE", "secrets/*"},
  };
  return kTable;
}

Task<void> ControlApi::handle(HttpExchange& exchange) {
  Call call(gateway_, log_, exchange);
  const auto& request = exchange.request();
  call.domain = reached(domain_, request);
  const auto segments = wire::canonical_segments(request.path);
  auto pairs = wire::parse_query(request.query);
  if (!segments || !pairs) {
    co_await call.fail(invalid("malformed request target"));
    co_return;
  }
  auto found = find_route(std::span(table()), request.method, *segments);
  if (found.entry == nullptr) {
    co_await call.no_route(found.allowed);
    co_return;
  }
  if (found.entry->handler == nullptr) {
    co_await call.fail(e2b::unsupported("unsupported_route", route_name(request)));
    co_return;
  }
  if (!co_await call.authorise(api_key_of(request))) co_return;
  if (!co_await call.name_sandbox(found.bound.sandbox)) co_return;
  call.query = Query(std::move(*pairs));
  co_await (this->*(found.entry->handler))(call);
}

Task<void> ControlApi::create(Call& call) { co_await create_with(call, kDefaultTimeout); }

Task<void> ControlApi::create_v2(Call& call) { co_await create_with(call, kDefaultTimeoutV2); }

Task<void> ControlApi::create_with(Call& call, std::uint32_t default_timeout_s) {
  if (count_headers(call.exchange.request().headers, "idempotency-key") != 0) {
    co_await call.fail(e2b::unsupported("unsupported_header", "header \"Idempotency-Key\""));
    co_return;
  }
  const auto body = co_await call.parameters();
  if (!body) co_return;
  auto request = e2b::read_create(*body, default_timeout_s);
  if (!request) {
    co_await call.fail(std::move(request).error());
    co_return;
  }
  const auto info =
      co_await call.ask<wire::SandboxInfo>(Operation::kSandboxCreate, std::move(*request));
  if (info) co_await call.answer(201, e2b::sandbox(*info, call.domain));
}

Task<void> ControlApi::list(Call& call) { co_await list_with(call, e2b::read_running_list); }

Task<void> ControlApi::list_v2(Call& call) { co_await list_with(call, e2b::read_list); }

Task<void> ControlApi::list_with(Call& call, Result<wire::SandboxListRequest> (*reader)(Query&)) {
  auto request = reader(call.query);
  if (!request) {
    co_await call.fail(std::move(request).error());
    co_return;
  }
  if (!co_await call.read(e2b::read_nothing)) co_return;
  const bool paged = request->limit != 0;
  const auto result =
      co_await call.ask<wire::SandboxListResult>(Operation::kSandboxList, std::move(*request));
  if (!result) co_return;
  if (!paged && !result->next_cursor.empty()) {
    co_await call.fail(Failure{Outcome::kTooLarge, "too_many_sandboxes",
                               "too many sandboxes for one answer; page through them with GET "
                               "/v2/sandboxes",
                               0});
    co_return;
  }
  Json::Array sandboxes;
  for (const auto& info : result->sandboxes) sandboxes.push_back(e2b::listed_sandbox(info));
  if (!result->next_cursor.empty()) {
    call.headers.push_back({"x-next-token", result->next_cursor});
  }
  call.headers.push_back({"x-total-running", std::to_string(result->total_running)});
  co_await call.answer(200, std::move(sandboxes));
}

Task<void> ControlApi::get(Call& call) {
  if (!co_await call.read(e2b::read_nothing)) co_return;
  const auto info = co_await call.info();
  if (!info) co_return;
  if (!e2b::state_text(info->state)) {
    co_await call.fail(no_such_sandbox());
    co_return;
  }
  co_await call.answer(200, e2b::sandbox_detail(*info, call.domain));
}

Task<void> ControlApi::kill(Call& call) {
  if (!co_await call.read(e2b::read_nothing)) co_return;
  // A sandbox that is gone is none: the kill alone would answer for it, too.
  if (!co_await call.info()) {
    co_return;
  }
  if (!co_await call.ask_sandbox<wire::SandboxInfo>(Operation::kSandboxKill,
                                                    wire::SandboxRequest{})) {
    co_return;
  }
  co_await call.answer_nothing();
}

Task<void> ControlApi::set_timeout(Call& call) {
  const auto seconds = co_await call.read(e2b::read_timeout);
  if (seconds) co_await set_deadline(call, *seconds, false);
}

Task<void> ControlApi::refresh(Call& call) {
  const auto seconds = co_await call.read(e2b::read_refresh);
  if (seconds) co_await set_deadline(call, *seconds, true);
}

Task<void> ControlApi::set_deadline(Call& call, std::uint32_t timeout_s, bool only_extend) {
  wire::SandboxTimeoutRequest request;
  request.timeout_s = timeout_s;
  request.only_extend = only_extend;
  if (co_await call.ask_sandbox<wire::SandboxInfo>(Operation::kSandboxSetTimeout,
                                                   std::move(request))) {
    co_await call.answer_nothing();
  }
}

Task<void> ControlApi::connect(Call& call) {
  const auto asked = co_await call.read(e2b::read_connect);
  if (!asked) co_return;
  const auto result = co_await call.run(asked->timeout_s);
  if (result)
    co_await call.answer(result->resumed ? 201 : 200, e2b::sandbox(result->info, call.domain));
}

Task<void> ControlApi::resume(Call& call) {
  const auto asked = co_await call.read(e2b::read_resume);
  if (!asked) co_return;
  if (asked->auto_pause) {
    const auto info = co_await call.info();
    if (!info) co_return;
    const bool pauses = info->on_timeout == wire::TimeoutAction::kPause;
    if (pauses != *asked->auto_pause) {
      co_await call.fail(
          e2b::unsupported("unsupported_field", "field \"autoPause\" that changes the sandbox's"));
      co_return;
    }
  }
  const auto result = co_await call.run(asked->timeout_s);
  if (result) co_await call.answer(201, e2b::sandbox(result->info, call.domain));
}

Task<void> ControlApi::pause(Call& call) {
  if (!co_await call.read(e2b::read_pause)) co_return;
  if (co_await call.ask_sandbox<wire::SandboxInfo>(Operation::kSandboxPause,
                                                   wire::SandboxPauseRequest{})) {
    co_await call.answer_nothing();
  }
}

}  // namespace space::node_api
