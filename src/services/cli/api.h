#pragma once
#include <boost/json/value.hpp>
#include <expected>
#include <optional>
#include <string>

#include "ports/http.h"
#include "services/cli/exit_codes.h"
#include "services/cli/terminal.h"

namespace space::cli {

struct Endpoint {
  std::string url;  // "http://HOST:PORT"
  std::string api_key;
};

// Everything a command works with; outlives it.
struct Context {
  HttpClient& http;
  Terminal& terminal;
  LocalFiles& files;
  Timer& timer;
  Endpoint endpoint;
  bool json = false;  // stdout carries JSON only
};

// Why a command did not succeed.
struct Failure {
  int exit_code = kFailed;
  std::string code;  // of the API, or our own: unreachable, interrupted, broken_answer, local_file
  std::string message;  // for people, with what to do
};
template <class T>
using Outcome = std::expected<T, Failure>;

// The longest answer that is kept in memory.
inline constexpr std::size_t kMaxAnswerBytes = 16U << 20;

struct Answer {
  boost::json::value body;  // null for an empty one
  HttpHeaders headers;
};

// One request with the credentials; the answer's head has arrived and is a success. `body` may be
// null and outlives the task.
Task<Outcome<std::unique_ptr<HttpResponse>>> request(Context& context, std::string method,
                                                     std::string target, HttpHeaders headers,
                                                     HttpBodySource* body);
// One request with a JSON body (unless null) and a JSON answer.
Task<Outcome<Answer>> call(Context& context, std::string method, std::string target,
                           boost::json::value body);
// The team's sandboxes, of all pages.
Task<Outcome<boost::json::array>> all_sandboxes(Context& context);
// The rest of `response`. `unknown` says what its breaking off means.
Task<Outcome<std::string>> read_all(HttpResponse& response, Failure broken);

// A body of bytes in memory.
class BytesSource final : public HttpBodySource {
 public:
  explicit BytesSource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::optional<std::uint64_t> size() const override { return bytes_.size(); }
  Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) override;

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

// Says why on stderr, and with --json as {"error":{code,message,exit_code}} on stdout. Returns the
// exit code.
int report(Context& context, const Failure& failure);
// Writes `document` as one line of JSON.
int print_json(Context& context, const boost::json::value& document);
int print(Context& context, std::string_view text);

// "/space/v1/sandboxes/ID" + `rest`.
std::string sandbox_target(std::string_view sandbox, std::string_view rest);

}  // namespace space::cli
