#include "services/node_api/http_call.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "services/node_api/records_json.h"

namespace space::node_api {

using frame::Outcome;

namespace {

constexpr std::size_t kMaxCredentialBytes = 256;

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

Failure invalid(std::string message) {
  return Failure{Outcome::kInvalidArgument, {}, std::move(message), 0};
}

Failure interrupted_stream(std::string_view reason) {
  return Failure{Outcome::kInterrupted, std::string(reason),
                 "the stream was interrupted: " + std::string(reason), 0};
}

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

bool is_credential(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) && text.size() <= kMaxCredentialBytes &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

Result<std::string> api_key_of(const HttpRequest& request) {
  const auto keys = count_headers(request.headers, "x-api-key");
  const auto bearers = count_headers(request.headers, "authorization");
  if (keys + bearers > 1) {
    return std::unexpected(
        invalid("more than one credential: send X-API-KEY or Authorization, once"));
  }
  std::string_view key;
  if (keys == 1) {
    key = *single_header(request.headers, "x-api-key");
  } else if (bearers == 1) {
    constexpr std::string_view kScheme = "Bearer ";
    const auto credential = *single_header(request.headers, "authorization");
    if (credential.starts_with(kScheme)) key = credential.substr(kScheme.size());
  }
  if (!is_credential(key, "e2b_")) {
    return std::unexpected(
        Failure{Outcome::kUnauthenticated, {}, "a valid API key is needed: X-API-KEY: e2b_...", 0});
  }
  return std::string(key);
}

Task<void> HttpCall::answer(unsigned status, Json body) {
  auto all = std::move(headers);
  all.push_back({"content-type", "application/json"});
  all.push_back({"cache-control", "no-store"});
  auto text = body.text();
  text += '\n';
  static_cast<void>(co_await exchange.respond(status, std::move(all), std::move(text)));
}

Task<void> HttpCall::fail(Failure failure) {
  const auto status = http_status(failure.outcome);
  if (status == 401) headers.push_back({"www-authenticate", "Bearer"});
  if (failure.retry_after_ms != 0) {
    headers.push_back({"retry-after", std::to_string((failure.retry_after_ms + 999) / 1000)});
  }
  if (status == 500) log_failure(failure);
  auto body = failure_body(failure);
  co_await answer(status, std::move(body));
}

void HttpCall::log_failure(const Failure& failure) {
  log_.event(Level::kError, "request.failed",
             {{"path", exchange.request().path},
              {"reason", failure.reason},
              {"message", failure.message}});
}

Task<bool> HttpCall::authorise(Result<std::string> credential) {
  if (!credential) {
    co_await fail(std::move(credential).error());
    co_return false;
  }
  auto authorised = co_await gateway_.authorise(std::move(*credential));
  if (!authorised) {
    co_await fail(std::move(authorised).error());
    co_return false;
  }
  caller = std::move(*authorised);
  co_return true;
}

Task<bool> HttpCall::name_sandbox(const std::string& id) {
  if (id.empty()) co_return true;
  auto parsed = identity::SandboxId::parse(id);
  if (!parsed) {
    co_await fail(no_such_sandbox());
    co_return false;
  }
  sandbox = std::move(*parsed);
  co_return true;
}

Task<bool> HttpCall::query_accepted() {
  const auto problem = query.error();
  if (!problem) co_return true;
  co_await fail(invalid(*problem));
  co_return false;
}

Task<bool> HttpCall::accepted(JsonFields& fields) {
  const auto problem = fields.error();
  if (!problem) co_return true;
  co_await fail(invalid(*problem));
  co_return false;
}

Task<std::optional<std::string>> HttpCall::whole_body() {
  const auto& request = exchange.request();
  std::string text;
  if (!request.has_body) co_return text;
  const Failure too_large{Outcome::kTooLarge, {}, "the body is larger than 1 MiB", 0};
  if (request.content_length.value_or(0) > kMaxJsonBytes) {
    co_await fail(too_large);
    co_return std::nullopt;
  }
  std::array<std::byte, 16 * 1024> buffer;
  for (;;) {
    const auto count = co_await exchange.read_body(buffer);
    if (!count) {
      if (count.error() == std::errc::bad_message) co_await fail(invalid("malformed body"));
      co_return std::nullopt;
    }
    if (*count == 0) co_return text;
    if (text.size() + *count > kMaxJsonBytes) {
      co_await fail(too_large);
      co_return std::nullopt;
    }
    text += as_text(ByteView(buffer).first(*count));
  }
}

Task<std::optional<Json>> HttpCall::parameters() {
  if (!co_await query_accepted()) co_return std::nullopt;
  const auto text = co_await whole_body();
  if (!text) co_return std::nullopt;
  if (text->empty()) co_return Json(Json::Object{});
  auto json = parse_json(*text);
  if (!json) {
    co_await fail(invalid("malformed JSON: " + json.error()));
    co_return std::nullopt;
  }
  co_return std::move(*json);
}

Task<bool> HttpCall::send_body(Admission& admission) {
  std::vector<std::byte> buffer(64 * 1024);
  while (!admission.over()) {
    const auto count = co_await exchange.read_body(buffer);
    if (!count) {
      admission.cancel();
      if (count.error() == std::errc::bad_message) co_await fail(invalid("malformed body"));
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

Task<void> HttpCall::download(Admission& admission, HttpHeaders content) {
  for (;;) {
    auto event = co_await admission.next();
    const auto* data = std::get_if<frame::Data>(&event);
    const auto* end = std::get_if<frame::End>(&event);
    const bool done = end != nullptr && end->outcome == Outcome::kOk;
    if (data == nullptr && !done) {
      if (!exchange.answered()) co_await fail(broken(event));
      co_return;
    }
    if (!exchange.answered()) {
      auto all = std::move(headers);
      std::ranges::move(content, std::back_inserter(all));
      if (!co_await exchange.begin(200, std::move(all))) co_return;
    }
    if (done) {
      static_cast<void>(co_await exchange.finish());
      co_return;
    }
    if (!co_await exchange.write(data->bytes)) co_return;
  }
}

void HttpCall::served_by(const identity::RouteIdentity& route, bool repaired) {
  // Of several operations in one request the last one is told.
  std::erase_if(headers,
                [](const HttpHeader& header) { return header.name.starts_with("x-space-"); });
  headers.push_back({"x-space-execution", execution_text(route)});
  if (repaired) headers.push_back({"x-space-repaired", "1"});
}

}  // namespace space::node_api
