#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/node_api/http_call.h"

namespace space::node_api {

// How a call of the sandbox API is answered: plain HTTP (/health, /files), or Connect's two forms.
enum class Face : std::uint8_t { kPlain, kUnary, kStream };

inline constexpr std::string_view kUnaryType = "application/json";
inline constexpr std::string_view kStreamType = "application/connect+json";

// The snake_case code of a Connect error, and the HTTP status that goes with it on a unary call.
std::string_view connect_code(const Failure& failure);
unsigned connect_status(std::string_view code);
// The media type of a Content-Type header, in lower case and without parameters.
std::string media_type(const HttpHeaders& headers);

// {"code", "message"}: a unary call's error, and the "error" of an end-of-stream message.
Json connect_error(const Failure& failure);
// {"sandboxId", "message", "code": status}; without the id when the request named none.
Json plain_error(const identity::SandboxId& sandbox, unsigned status, std::string message);

// The answer about a sandbox that is gone, on every face: killed, expired, unknown, another's, or
// named with a token that is not its own. The same bytes but for the id (C023).
inline constexpr unsigned kGoneStatus = 502;
inline constexpr std::string_view kGoneMessage = "The sandbox was not found";

// One request to the sandbox API. Its failures read so that the SDKs tell their users the truth
// (E2B.md 1.4, P-9, C111): they take 502, 503, 429 and `unavailable` for "the sandbox is gone", so
// only a sandbox that is gone gets 502, and only a stream cut by its sandbox's end gets
// `unavailable`. Other refusals of a stream are 200 with an end-of-stream error, whose text
// survives.
class SandboxCall final : public HttpCall {
 public:
  using HttpCall::HttpCall;

  Face face = Face::kPlain;
  std::string user;  // whose rights apply; empty: the sandbox's default

  Task<void> fail(Failure failure) override;
  Task<void> fail_with(unsigned status, std::string message);
  // What became of an operation that was cut: the end of its sandbox, a pause, or something in
  // between. Other failures stay as they are.
  Task<Failure> explained(Failure failure);
  // The request's message, which must be an object; a stream's is the only one in its body.
  Task<std::optional<Json>> message();
  // The value, unless it is a failure.
  template <class T>
  Task<std::optional<T>> accept(Result<T> result) {
    if (result) co_return *std::move(result);
    co_await fail(std::move(result).error());
    co_return std::nullopt;
  }

 protected:
  Json failure_body(const Failure& failure) const override;
};

}  // namespace space::node_api
