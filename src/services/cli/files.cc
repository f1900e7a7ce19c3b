#include <boost/json.hpp>

#include "base/text.h"
#include "services/cli/commands.h"
#include "services/cli/text.h"
#include "services/cli/transfer.h"

namespace space::cli {
namespace {

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
    if (!opened && opened.error() == std::errc::is_a_directory) {
      co_return co_await upload_folder(context, local, remote.sandbox, remote.path, user);
    }
    if (!opened) co_return report(context, local_failure(local, opened.error()));
    source = std::move(*opened);
  }
  if (remote.path.empty() || remote.path.ends_with('/')) remote.path += base_name(local);
  auto headers =
      co_await send_file(context, remote.sandbox, remote.path, user, std::nullopt, *source);
  if (!headers) co_return report(context, headers.error());
  if (!context.json) co_return kOk;
  boost::json::object document{{"copied", remote.path}, {"sandbox", remote.sandbox}};
  note_execution(document, *headers);
  co_return print_json(context, document);
}

Task<int> download(Context& context, Place remote, std::string local, std::string user) {
  auto sink = context.files.create(local, base_name(remote.path));
  if (!sink) co_return report(context, local_failure(local, sink.error()));
  auto fetched = co_await fetch_file(context, remote.sandbox, remote.path, user, **sink, local);
  if (!fetched && fetched.error().code == "is_directory") {
    sink->reset();
    co_return co_await download_folder(context, remote.sandbox, remote.path, local, user);
  }
  if (!fetched) co_return report(context, fetched.error());
  if (!context.json) co_return kOk;
  boost::json::object document{
      {"copied", remote.path}, {"sandbox", remote.sandbox}, {"bytes", fetched->bytes}};
  note_execution(document, fetched->headers);
  co_return print_json(context, document);
}

}  // namespace

Task<int> cat(Context& context, std::string sandbox, std::string path, std::string user) {
  Bytes content;
  auto headers = co_await fetch_content(context, sandbox, path, user, [&](ByteView bytes) {
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
  co_return co_await download(context, source, target.path, user);
}

}  // namespace space::cli
