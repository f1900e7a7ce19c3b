#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ports/http.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"
#include "services/node_api/query.h"

// What every HTTP face of the gateway needs to answer one request.
namespace space::node_api {

// The HTTP status of an outcome: one table for every route (docs/api.md).
unsigned http_status(frame::Outcome outcome);

Failure invalid(std::string message);
Failure interrupted_stream(std::string_view reason);
// Why a stream ended that had not ended by itself.
Failure broken(const hop::ChannelEvent& event);

// The caller's API key: X-API-KEY, or Authorization: Bearer; one of them, once (P-31).
Result<std::string> api_key_of(const HttpRequest& request);
// Whether `text` can be a credential of the kind that begins with `prefix`: 1..256 printable bytes.
bool is_credential(std::string_view text, std::string_view prefix);

// One request on its way through a face. A step that returns false or nullopt has answered the
// request, or there is nobody left to answer. Used by one task; lives as long as the exchange's
// handling.
class HttpCall {
 public:
  // All outlive the call.
  HttpCall(Gateway& gateway, Log& log, HttpExchange& exchange)
      : exchange(exchange), gateway_(gateway), log_(log) {}
  virtual ~HttpCall() = default;
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

  HttpExchange& exchange;
  CallerPtr caller;             // once authorised
  identity::SandboxId sandbox;  // that the request names
  Query query;
  HttpHeaders headers;                       // of the answer
  std::optional<BootClock::duration> limit;  // of a guest_call, where the client set one

  Task<void> answer(unsigned status, Json body);
  // Answers with the failure in the form of the face.
  virtual Task<void> fail(Failure failure);

  Task<bool> authorise(Result<std::string> credential);
  // Sets the sandbox that a path names, if it names one: what can be no id is as unknown as any.
  Task<bool> name_sandbox(const std::string& id);
  // Whether the query was read without error, to its end.
  Task<bool> query_accepted();
  Task<bool> accepted(JsonFields& fields);
  // The request's whole body, at most kMaxJsonBytes: kTooLarge beyond.
  Task<std::optional<std::string>> whole_body();
  // The JSON value of the request's body; `{}` for none. The query must be used up
  // (query_accepted).
  Task<std::optional<Json>> parameters();

  // A platform operation.
  template <class Answered, class Request>
  Task<std::optional<Answered>> ask(policy::Operation operation, Request request) {
    auto result = co_await gateway_.ask<Answered>(caller, operation, std::move(request));
    if (!result) {
      co_await fail(std::move(result).error());
      co_return std::nullopt;
    }
    co_return std::move(*result);
  }
  // The same about `sandbox`; nothing tells another team's sandbox from none (C023).
  template <class Answered, class Request>
  Task<std::optional<Answered>> ask_sandbox(policy::Operation operation, Request request) {
    request.sandbox = sandbox;
    auto result = co_await gateway_.ask<Answered>(caller, operation, std::move(request));
    if (!result) {
      const auto outcome = result.error().outcome;
      const bool none =
          outcome == frame::Outcome::kNotFound || outcome == frame::Outcome::kPermissionDenied;
      co_await fail(none ? no_such_sandbox() : std::move(result).error());
      co_return std::nullopt;
    }
    co_return std::move(*result);
  }

  // An operation in the sandbox that ends with one record.
  template <class Answered, class Request>
  Task<std::optional<Answered>> guest_call(policy::Operation operation, const Request& request) {
    auto metadata = wire::encode(request);
    auto result = co_await gateway_.call(caller, sandbox, operation, std::move(metadata), limit);
    if (!result) {
      co_await fail(std::move(result).error());
      co_return std::nullopt;
    }
    served_by(result->identity, result->repaired);
    co_return co_await decoded<Answered>(result->result);
  }
  // Opens an operation in the sandbox, which a client that leaves gives up; null after a failure.
  template <class Request>
  Task<std::unique_ptr<Admission>> open(policy::Operation operation, const Request& request) {
    auto metadata = wire::encode(request);
    auto admitted = co_await gateway_.open(caller, sandbox, operation, std::move(metadata));
    if (!admitted) {
      co_await fail(std::move(admitted).error());
      co_return nullptr;
    }
    served_by((*admitted)->identity(), (*admitted)->repaired());
    exchange.on_gone((*admitted)->canceller());
    co_return std::move(*admitted);
  }
  // Moves the request's body to the worker, then END. False when the client broke off or sent a
  // malformed body; the operation is given up then.
  Task<bool> send_body(Admission& admission);
  // The record an operation ends with, all bytes sent.
  template <class Answered>
  Task<std::optional<Answered>> outcome_record(Admission& admission) {
    const auto event = co_await admission.next();
    const auto* end = std::get_if<frame::End>(&event);
    if (end == nullptr || end->outcome != frame::Outcome::kOk) {
      co_await fail(broken(event));
      co_return std::nullopt;
    }
    co_return co_await decoded<Answered>(end->result);
  }
  // An operation that takes the request's body and ends with one record.
  template <class Answered, class Request>
  Task<std::optional<Answered>> upload(policy::Operation operation, const Request& request) {
    const auto admission = co_await open(operation, request);
    if (!admission || !co_await send_body(*admission)) co_return std::nullopt;
    co_return co_await outcome_record<Answered>(*admission);
  }
  // Answers 200 with the operation's bytes, which `content` describes. A failure before the first
  // of them is an honest status; after it the body breaks off, never a clean end that was not one
  // (C048).
  Task<void> download(Admission& admission, HttpHeaders content);

 protected:
  // The body that tells of a failure in the form of the face.
  virtual Json failure_body(const Failure& failure) const = 0;
  Gateway& gateway() { return gateway_; }
  void log_failure(const Failure& failure);

 private:
  void served_by(const identity::RouteIdentity& route, bool repaired);
  template <class Answered>
  Task<std::optional<Answered>> decoded(const Bytes& record) {
    auto result = wire::decode<Answered>(record);
    if (!result) co_await fail(interrupted_stream("malformed_answer"));
    co_return std::move(result);
  }

  Gateway& gateway_;
  Log& log_;
};

}  // namespace space::node_api
