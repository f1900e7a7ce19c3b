#include "services/cli/api.h"

#include <boost/json.hpp>
#include <cstring>

#include "base/text.h"
#include "services/cli/text.h"

namespace space::cli {
namespace {

bool changes_something(const std::string& method) { return method != "GET" && method != "HEAD"; }

Failure unreachable(const Context& context, const std::string& method, std::error_code error) {
  const bool refused =
      error == std::errc::connection_refused || error == std::errc::no_such_file_or_directory ||
      error == std::errc::host_unreachable || error == std::errc::network_unreachable;
  if (refused || !changes_something(method)) {
    return {.exit_code = kFailed,
            .code = "unreachable",
            .message = context.endpoint.url + " cannot be reached (" + error.message() +
                       "); is the platform up? `space status` shows it, `space up` starts it"};
  }
  return {.exit_code = kOutcomeUnknown,
          .code = "outcome_unknown",
          .message = "the connection to " + context.endpoint.url + " failed (" + error.message() +
                     ") before the answer came; the request may have been carried out"};
}

// `served`: an execution of the sandbox answered, so what was not found is something inside it.
Failure refused(unsigned status, const std::string& body, bool served) {
  boost::system::error_code error;
  const boost::json::value document = boost::json::parse(body, error);
  Failure failure{.exit_code = kFailed,
                  .code = error ? "" : text_of(document, "code"),
                  .message = error ? "" : printable(text_of(document, "message"))};
  if (failure.code.empty()) failure.code = "http_" + std::to_string(status);
  if (failure.message.empty()) failure.message = "the API answered " + std::to_string(status);
  if (status == 401) {
    failure.message +=
        "; the API key comes from SPACE_API_KEY or the cli.toml that `space up` writes";
  }
  if (failure.code == "not_found" && !served) failure.exit_code = kNoSandbox;
  if (failure.code == "interrupted" || failure.code == "deadline_exceeded") {
    failure.exit_code = kOutcomeUnknown;
  }
  return failure;
}

}  // namespace

Task<IoResult<std::size_t>> BytesSource::read(std::span<std::byte> buffer) {
  const std::size_t count = std::min(buffer.size(), bytes_.size() - at_);
  std::memcpy(buffer.data(), bytes_.data() + at_, count);
  at_ += count;
  co_return count;
}

Task<Outcome<std::string>> read_all(HttpResponse& response, Failure broken) {
  std::string text;
  std::array<std::byte, 16'384> buffer{};
  for (;;) {
    const auto count = co_await response.read(buffer);
    if (!count) co_return std::unexpected(std::move(broken));
    if (*count == 0) co_return text;
    if (text.size() + *count > kMaxAnswerBytes) {
      co_return std::unexpected(Failure{.exit_code = kFailed,
                                        .code = "too_large",
                                        .message = "the answer is larger than 16 MiB"});
    }
    text += as_text(ByteView(buffer).first(*count));
  }
}

Task<Outcome<std::unique_ptr<HttpResponse>>> request(Context& context, std::string method,
                                                     std::string target, HttpHeaders headers,
                                                     HttpBodySource* body) {
  HttpClientRequest out;
  out.method = method;
  out.base = context.endpoint.url;
  out.target = std::move(target);
  out.headers = std::move(headers);
  out.headers.push_back({"x-api-key", context.endpoint.api_key});
  auto response = co_await context.http.send(std::move(out), body);
  if (!response) co_return std::unexpected(unreachable(context, method, response.error()));
  const unsigned status = (*response)->head().status;
  if (status >= 200 && status < 300) co_return std::move(*response);
  const bool served = single_header((*response)->head().headers, "x-space-execution").has_value();
  Failure broken = refused(status, "", served);
  auto text = co_await read_all(**response, std::move(broken));
  if (!text) co_return std::unexpected(std::move(text).error());
  co_return std::unexpected(refused(status, *text, served));
}

Task<Outcome<Answer>> call(Context& context, std::string method, std::string target,
                           boost::json::value body) {
  std::optional<BytesSource> source;
  HttpHeaders headers;
  if (!body.is_null()) {
    source.emplace(boost::json::serialize(body));
    headers.push_back({"content-type", "application/json"});
  }
  Failure broken{.exit_code = changes_something(method) ? kOutcomeUnknown : kFailed,
                 .code = "broken_answer",
                 .message = "the answer of the API broke off"};
  auto response = co_await request(context, method, std::move(target), std::move(headers),
                                   source ? &*source : nullptr);
  if (!response) co_return std::unexpected(std::move(response).error());
  Answer answer;
  answer.headers = (*response)->head().headers;
  auto text = co_await read_all(**response, broken);
  if (!text) co_return std::unexpected(std::move(text).error());
  if (!text->empty()) {
    boost::system::error_code error;
    answer.body = boost::json::parse(*text, error);
    if (error) {
      broken.message = "the answer of the API is not JSON: " + error.message();
      co_return std::unexpected(std::move(broken));
    }
  }
  co_return answer;
}

int print(Context& context, std::string_view text) {
  if (context.terminal.out(text)) return kOk;
  context.terminal.err("space: stdout was closed by its reader\n");
  return kFailed;
}

int print_json(Context& context, const boost::json::value& document) {
  return print(context, boost::json::serialize(document) + "\n");
}

int report(Context& context, const Failure& failure) {
  context.terminal.err("space: " + failure.message + "\n");
  if (context.json) {
    const boost::json::value document = {
        {"error",
         {{"code", failure.code}, {"message", failure.message}, {"exit_code", failure.exit_code}}}};
    print_json(context, document);
  }
  return failure.exit_code;
}

std::string sandbox_target(std::string_view sandbox, std::string_view rest) {
  std::string id = percent_encode(sandbox);
  for (std::size_t at = 0; (at = id.find('/', at)) != std::string::npos;) id.replace(at, 1, "%2F");
  return "/space/v1/sandboxes/" + id + std::string(rest);
}

Task<Outcome<boost::json::array>> all_sandboxes(Context& context) {
  boost::json::array all;
  std::string cursor;
  do {
    auto target = std::string("/space/v1/sandboxes");
    if (!cursor.empty()) target += "?cursor=" + percent_encode(cursor);
    auto page = co_await call(context, "GET", std::move(target), nullptr);
    if (!page) co_return std::unexpected(std::move(page).error());
    const auto& sandboxes = member(page->body, "sandboxes");
    if (sandboxes.is_array()) {
      for (const auto& sandbox : sandboxes.get_array()) all.push_back(sandbox);
    }
    cursor = text_of(page->body, "next_cursor");
  } while (!cursor.empty());
  co_return all;
}

}  // namespace space::cli
