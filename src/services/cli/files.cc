#include <array>
#include <boost/json.hpp>

#include "base/text.h"
#include "services/cli/commands.h"
#include "services/cli/text.h"

namespace space::cli {
namespace {

constexpr std::size_t kChunk = 256U << 10;

class TerminalSource final : public HttpBodySource {
 public:
  explicit TerminalSource(Terminal& terminal) : terminal_(terminal) {}
  std::optional<std::uint64_t> size() const override { return std::nullopt; }
  Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) override {
    return terminal_.in(buffer);
  }

 private:
  Terminal& terminal_;
};

std::string files_target(const std::string& sandbox, const std::string& path,
                         const std::string& user) {
  std::string query = "/files?path=" + percent_encode(path);
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

Failure broke_off(const std::string& path) {
  return {.exit_code = kFailed,
          .code = "broken_answer",
          .message = printable(path) + ": the content broke off before its end"};
}

void note_execution(boost::json::object& document, const HttpHeaders& headers) {
  if (const auto execution = single_header(headers, "x-space-execution")) {
    document["execution"] = *execution;
  }
  document["repaired"] = single_header(headers, "x-space-repaired").has_value();
}

Task<int> upload(Context& context, std::string local, Place remote, std::string user) {
  std::unique_ptr<HttpBodySource> source;
  if (local == "-") {
    source = std::make_unique<TerminalSource>(context.terminal);
  } else {
    auto opened = context.files.open(local);
    if (!opened) co_return report(context, local_failure(local, opened.error()));
    source = std::move(*opened);
  }
  if (remote.path.empty() || remote.path.ends_with('/')) remote.path += base_name(local);
  HttpHeaders headers{{"content-type", "application/octet-stream"}};
  auto response = co_await request(context, "PUT", files_target(remote.sandbox, remote.path, user),
                                   std::move(headers), source.get());
  if (!response) co_return report(context, of_file(response.error(), remote.path));
  Failure broken{.exit_code = kOutcomeUnknown,
                 .code = "outcome_unknown",
                 .message = remote.path + ": the answer of the API broke off"};
  auto text = co_await read_all(**response, broken);
  if (!text) co_return report(context, text.error());
  if (!context.json) co_return kOk;
  boost::json::object document{{"copied", remote.path}, {"sandbox", remote.sandbox}};
  note_execution(document, (*response)->head().headers);
  co_return print_json(context, document);
}

// Hands the whole content of a sandbox's file to `take`, which answers false to stop.
Task<Outcome<HttpHeaders>> download(Context& context, std::string sandbox, std::string path,
                                    std::string user, std::function<bool(ByteView)> take) {
  auto response =
      co_await request(context, "GET", files_target(sandbox, path, user), HttpHeaders{}, nullptr);
  if (!response) co_return std::unexpected(of_file(response.error(), path));
  std::vector<std::byte> buffer(kChunk);
  for (;;) {
    const auto count = co_await (*response)->read(buffer);
    if (!count) co_return std::unexpected(broke_off(path));
    if (*count == 0) co_return (*response)->head().headers;
    if (!take(ByteView(buffer).first(*count))) {
      co_return std::unexpected(Failure{.exit_code = kFailed,
                                        .code = "local_file",
                                        .message = "the content cannot be written here"});
    }
  }
}

Task<int> download_file(Context& context, Place remote, std::string local, std::string user) {
  auto sink = context.files.create(local, base_name(remote.path));
  if (!sink) co_return report(context, local_failure(local, sink.error()));
  IoResult<void> written;
  std::uint64_t size = 0;
  auto headers = co_await download(context, remote.sandbox, remote.path, user, [&](ByteView bytes) {
    size += bytes.size();
    written = (*sink)->write(bytes);
    return written.has_value();
  });
  if (headers) written = (*sink)->commit();
  if (!written) co_return report(context, local_failure(local, written.error()));
  if (!headers) co_return report(context, headers.error());
  if (!context.json) co_return kOk;
  boost::json::object document{
      {"copied", remote.path}, {"sandbox", remote.sandbox}, {"bytes", size}};
  note_execution(document, *headers);
  co_return print_json(context, document);
}

}  // namespace

Task<int> cat(Context& context, std::string sandbox, std::string path, std::string user) {
  Bytes content;
  auto headers = co_await download(context, sandbox, path, user, [&](ByteView bytes) {
    if (!context.json) return context.terminal.out(as_text(bytes));
    content.insert(content.end(), bytes.begin(), bytes.end());
    return content.size() <= kMaxAnswerBytes;
  });
  if (!headers && context.json && content.size() > kMaxAnswerBytes) {
    co_return report(context, Failure{.exit_code = kFailed,
                                      .code = "too_large",
                                      .message = "larger than 16 MiB; use `space cp` or cat "
                                                 "without --json"});
  }
  if (!headers) co_return report(context, headers.error());
  if (!context.json) co_return kOk;
  boost::json::object document{
      {"path", path}, {"bytes", content.size()}, {"base64", to_base64(content)}};
  note_execution(document, *headers);
  co_return print_json(context, document);
}

Task<int> copy(Context& context, std::string from, std::string to, std::string user) {
  Place source = parse_place(from);
  Place target = parse_place(to);
  if (source.sandbox.empty() == target.sandbox.empty()) {
    co_return report(context, Failure{.exit_code = kUsage,
                                      .code = "usage",
                                      .message = "one of the two must be ID:PATH, the other a "
                                                 "local path (write ./a:b for a name with a "
                                                 "colon)"});
  }
  if (source.sandbox.empty()) co_return co_await upload(context, source.path, target, user);
  if (target.path == "-") co_return co_await cat(context, source.sandbox, source.path, user);
  co_return co_await download_file(context, source, target.path, user);
}

}  // namespace space::cli
