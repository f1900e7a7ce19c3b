#include "services/node_api/sandbox_call.h"

#include <array>
#include <utility>

#include "core/wire/connect_frame.h"

namespace space::node_api {

using frame::Outcome;

namespace {

constexpr std::string_view kEnded = "sandbox_ended";  // the reason of a cut by a sandbox's end

unsigned plain_status(const Failure& failure) {
  const auto status = http_status(failure.outcome);
  return status == 503 ? 409 : status;
}

}  // namespace

std::string_view connect_code(const Failure& failure) {
  if (failure.reason == kEnded) return "unavailable";
  switch (failure.outcome) {
    case Outcome::kOk:
      break;
    case Outcome::kInvalidArgument:
    case Outcome::kIsDirectory:
    case Outcome::kNotDirectory:
    case Outcome::kTooLarge:
      return "invalid_argument";
    case Outcome::kUnauthenticated:
      return "unauthenticated";
    case Outcome::kPermissionDenied:
      return "permission_denied";
    case Outcome::kNotFound:
      return "not_found";
    case Outcome::kAlreadyExists:
      return "already_exists";
    case Outcome::kConflict:
      return failure.retry_after_ms != 0 ? "aborted" : "failed_precondition";
    case Outcome::kLimitReached:
    case Outcome::kNoSpace:
      return "resource_exhausted";
    case Outcome::kInternal:
      return "internal";
    case Outcome::kInterrupted:  // whether it was done is unknown
      return "unknown";
    case Outcome::kUnsupported:
      return "unimplemented";
    case Outcome::kUnavailable:  // nothing was done, and it may be tried again
      return "aborted";
    case Outcome::kDeadlineExceeded:
      return "deadline_exceeded";
  }
  std::unreachable();
}

unsigned connect_status(std::string_view code) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 11> kStatuses{{
      {"invalid_argument", 400},
      {"failed_precondition", 400},
      {"unauthenticated", 401},
      {"permission_denied", 403},
      {"not_found", 404},
      {"already_exists", 409},
      {"aborted", 409},
      {"resource_exhausted", 429},
      {"unimplemented", 501},
      {"unavailable", 503},
      {"deadline_exceeded", 504},
  }};
  for (const auto& [known, status] : kStatuses) {
    if (known == code) return status;
  }
  return 500;
}

std::string media_type(const HttpHeaders& headers) {
  auto value = single_header(headers, "content-type").value_or("");
  value = value.substr(0, value.find(';'));
  while (value.ends_with(' ')) value.remove_suffix(1);
  std::string out(value);
  for (auto& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

Json connect_error(const Failure& failure) {
  return Json::Object{{"code", connect_code(failure)}, {"message", failure.message}};
}

Json plain_error(const identity::SandboxId& sandbox, unsigned status, std::string message) {
  Json::Object out{{"message", std::move(message)}, {"code", status}};
  if (sandbox != identity::SandboxId{}) out.emplace("sandboxId", sandbox.text());
  return out;
}

Json SandboxCall::failure_body(const Failure& failure) const {
  if (face == Face::kPlain) return plain_error(sandbox, plain_status(failure), failure.message);
  return connect_error(failure);
}

Task<void> SandboxCall::fail_with(unsigned status, std::string message) {
  auto body = plain_error(sandbox, status, std::move(message));
  co_await answer(status, std::move(body));
}

Task<void> SandboxCall::fail(Failure failure) {
  failure = co_await explained(std::move(failure));
  const auto code = connect_code(failure);
  // A token ends with its sandbox. A unary call that its sandbox's end cut reads like the next one
  // will.
  const bool gone = failure.reason == kNoSuchSandbox || failure.reason == kNoSession ||
                    (failure.reason == kEnded && face != Face::kStream);
  if (gone) {
    co_await fail_with(kGoneStatus, std::string(kGoneMessage));
    co_return;
  }
  if (failure.outcome == Outcome::kInternal) log_failure(failure);
  if (face == Face::kStream) {
    auto all = std::move(headers);
    all.push_back({"content-type", std::string(kStreamType)});
    all.push_back({"cache-control", "no-store"});
    const Json end(Json::Object{{"error", connect_error(failure)}});
    std::string body;
    wire::append_connect_frame(body, wire::ConnectFlag::kEndOfStream, end.text());
    static_cast<void>(co_await exchange.respond(200, std::move(all), std::move(body)));
    co_return;
  }
  if (failure.retry_after_ms != 0) {
    headers.push_back({"retry-after", std::to_string((failure.retry_after_ms + 999) / 1000)});
  }
  const auto status = face == Face::kUnary ? connect_status(code) : plain_status(failure);
  auto body = failure_body(failure);
  co_await answer(status, std::move(body));
}

Task<Failure> SandboxCall::explained(Failure failure) {
  if (failure.reason == kPaused) failure.message = "the sandbox is paused: connect resumes it";
  if (failure.outcome != Outcome::kInterrupted || failure.reason == kEnded) co_return failure;
  wire::RouteResolveRequest request;
  request.sandbox = sandbox;
  const auto now = co_await gateway().ask<wire::RouteResolveResult>(
      caller, policy::Operation::kRouteResolve, std::move(request));
  if (!now && (now.error().outcome == Outcome::kNotFound ||
               now.error().outcome == Outcome::kUnauthenticated)) {
    failure.reason = kEnded;
    failure.message = "the sandbox was killed or reached its end of life meanwhile";
  } else if (!now && now.error().reason == kPaused) {
    failure.message =
        "the sandbox was paused meanwhile, the outcome is unknown: connect resumes it";
  } else {
    failure.message += "; the outcome is unknown";
  }
  co_return failure;
}

Task<std::optional<Json>> SandboxCall::message() {
  auto text = co_await whole_body();
  if (!text) co_return std::nullopt;
  if (face == Face::kStream) {
    wire::ConnectFrameReader reader;
    reader.feed(as_bytes(*text));
    auto frame = reader.next();
    if (!frame) {
      co_await fail(invalid(std::string(to_string(frame.error()))));
      co_return std::nullopt;
    }
    if (!*frame || (*frame)->flag != wire::ConnectFlag::kMessage || reader.buffered() > 0) {
      co_await fail(invalid("the body must be exactly one message in its envelope"));
      co_return std::nullopt;
    }
    text = std::move((*frame)->message);
  }
  auto json = parse_json(*text);
  if (!json) {
    co_await fail(invalid("malformed JSON: " + json.error()));
    co_return std::nullopt;
  }
  co_return *std::move(json);
}

}  // namespace space::node_api
