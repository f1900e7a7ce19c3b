#include "services/cli/transfer.h"

#include <array>

#include "base/text.h"
#include "services/cli/text.h"

namespace space::cli {

std::string path_target(std::string_view sandbox, std::string_view route, std::string_view path,
                        std::string_view user) {
  auto query = std::string(route) + "?path=" + percent_encode(path);
  if (!user.empty()) query += "&user=" + percent_encode(user);
  return sandbox_target(sandbox, query);
}

Failure of_file(Failure failure, const std::string& path) {
  if (failure.exit_code != kNoSandbox && failure.message.find(path) == std::string::npos) {
    failure.message = printable(path) + ": " + failure.message;
  }
  return failure;
}

Failure local_failure(const std::string& path, std::error_code error) {
  return {.exit_code = kFailed,
          .code = "local_file",
          .message = printable(path) + ": " + error.message()};
}

Task<Outcome<HttpHeaders>> fetch_content(Context& context, std::string sandbox, std::string path,
                                         std::string user, std::function<bool(ByteView)> take) {
  auto response = co_await request(context, "GET", path_target(sandbox, "/files", path, user),
                                   HttpHeaders{}, nullptr);
  if (!response) co_return std::unexpected(of_file(response.error(), path));
  std::vector<std::byte> buffer(kTransferChunk);
  for (;;) {
    const auto count = co_await (*response)->read(buffer);
    if (!count) {
      co_return std::unexpected(
          Failure{.exit_code = kFailed,
                  .code = "broken_answer",
                  .message = printable(path) + ": the content broke off before its end"});
    }
    if (*count == 0) co_return (*response)->head().headers;
    if (!take(ByteView(buffer).first(*count))) {
      co_return std::unexpected(Failure{.exit_code = kFailed,
                                        .code = "local_file",
                                        .message = "the content cannot be written here"});
    }
  }
}

Task<Outcome<Fetched>> fetch_file(Context& context, std::string sandbox, std::string path,
                                  std::string user, FileSink& sink, std::string local) {
  IoResult<void> written;
  Fetched fetched;
  auto headers = co_await fetch_content(context, sandbox, path, user, [&](ByteView bytes) {
    fetched.bytes += bytes.size();
    written = sink.write(bytes);
    return written.has_value();
  });
  if (headers) written = sink.commit();
  if (!written) co_return std::unexpected(local_failure(local, written.error()));
  if (!headers) co_return std::unexpected(std::move(headers).error());
  fetched.headers = std::move(*headers);
  co_return fetched;
}

Task<Outcome<HttpHeaders>> send_file(Context& context, std::string sandbox, std::string path,
                                     std::string user, std::optional<std::uint32_t> mode,
                                     HttpBodySource& source) {
  auto target = path_target(sandbox, "/files", path, user);
  if (mode) {
    std::array<char, 8> octal{};
    std::snprintf(octal.data(), octal.size(), "%o", *mode & 07777U);
    target += "&mode=" + std::string(octal.data());
  }
  HttpHeaders headers{{"content-type", "application/octet-stream"}};
  auto response = co_await request(context, "PUT", target, std::move(headers), &source);
  if (!response) co_return std::unexpected(of_file(response.error(), path));
  Failure broken{.exit_code = kOutcomeUnknown,
                 .code = "outcome_unknown",
                 .message = printable(path) + ": the answer of the API broke off"};
  auto text = co_await read_all(**response, broken);
  if (!text) co_return std::unexpected(std::move(text).error());
  co_return (*response)->head().headers;
}

}  // namespace space::cli
