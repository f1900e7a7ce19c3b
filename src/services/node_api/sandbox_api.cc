#include "services/node_api/sandbox_api.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "services/node_api/connect_json.h"
#include "services/node_api/sandbox_call.h"

namespace space::node_api {

using frame::Outcome;
using policy::Operation;
using std::chrono::milliseconds;

namespace {

Failure unsupported(std::string message) {
  return Failure{Outcome::kUnsupported, {}, std::move(message), 0};
}

bool is_access_token(std::string_view text) {
  constexpr std::string_view kPrefix = "sat_";
  if (!text.starts_with(kPrefix)) return false;
  const auto digits = from_hex(text.substr(kPrefix.size()));
  return digits && digits->size() == 32;
}

// The Unix user that Basic authorization selects; it is no credential and has no password.
Result<std::string> basic_user(const HttpHeaders& headers) {
  if (count_headers(headers, "authorization") == 0) return std::string{};
  constexpr std::string_view kScheme = "Basic ";
  const auto value = single_header(headers, "authorization").value_or("");
  const auto decoded =
      value.starts_with(kScheme) ? from_base64(value.substr(kScheme.size())) : std::nullopt;
  auto text = decoded ? to_text(*decoded) : std::string{};
  if (text.size() < 2 || text.find(':') != text.size() - 1) {
    return std::unexpected(
        invalid("Authorization selects the Unix user here: once, Basic, of \"<user>:\""));
  }
  text.pop_back();
  return text;
}

}  // namespace

struct SandboxApi::Method {
  using Handler = Task<void> (SandboxApi::*)(SandboxCall&, const Json&);
  std::string_view path;
  Face face = Face::kUnary;
  Handler handler = nullptr;  // null: not built yet

  static const Method* find(std::string_view path) {
    static constexpr std::array kMethods{
        Method{"/filesystem.Filesystem/Stat", Face::kUnary, &SandboxApi::stat},
        Method{"/filesystem.Filesystem/MakeDir", Face::kUnary, &SandboxApi::make_dir},
        Method{"/filesystem.Filesystem/ListDir", Face::kUnary, &SandboxApi::list_dir},
        Method{"/filesystem.Filesystem/Remove", Face::kUnary, &SandboxApi::remove},
        Method{"/filesystem.Filesystem/Move", Face::kUnary, &SandboxApi::move},
        Method{"/filesystem.Filesystem/WatchDir", Face::kStream},
        Method{"/filesystem.Filesystem/CreateWatcher"},
        Method{"/filesystem.Filesystem/GetWatcherEvents"},
        Method{"/filesystem.Filesystem/RemoveWatcher"},
        Method{"/process.Process/Start", Face::kStream, &SandboxApi::start},
        Method{"/process.Process/List", Face::kUnary, &SandboxApi::list_processes},
        Method{"/process.Process/SendInput", Face::kUnary, &SandboxApi::send_input},
        Method{"/process.Process/SendSignal", Face::kUnary, &SandboxApi::send_signal},
        Method{"/process.Process/CloseStdin", Face::kUnary, &SandboxApi::close_stdin},
        Method{"/process.Process/Connect", Face::kStream},
        Method{"/process.Process/Update"},
        Method{"/process.Process/StreamInput", Face::kStream},
    };
    const auto* at = std::ranges::find(kMethods, path, &Method::path);
    return at == kMethods.end() ? nullptr : at;
  }
};

Task<void> SandboxApi::handle(HttpExchange& exchange, wire::EdgeTarget target) {
  SandboxCall call(gateway_, log_, exchange);
  call.sandbox = *std::move(target.sandbox);
  if (target.port == wire::kAgentPort) {
    co_await route(call);
  } else {
    auto body =
        plain_error(call.sandbox, 501,
                    "ports other than " + std::to_string(wire::kAgentPort) + " are not served yet");
    body.object()->emplace("port", std::uint32_t{target.port});
    co_await call.answer(501, std::move(body));
  }
}

Task<void> SandboxApi::handle_by_token(HttpExchange& exchange) {
  SandboxCall call(gateway_, log_, exchange);
  co_await route(call);
}

Task<void> SandboxApi::route(SandboxCall& call) {
  const auto& request = call.exchange.request();
  const auto* method = Method::find(request.path);
  const bool is_files = request.path == "/files";
  if (method == nullptr && !is_files && request.path != "/health") {
    constexpr std::array<std::string_view, 3> kNotBuilt{"/metrics", "/envs", "/files/compose"};
    const bool known = std::ranges::find(kNotBuilt, request.path) != kNotBuilt.end();
    const auto name = request.method + " " + request.path;
    co_await call.fail_with(known ? 501 : 404,
                            known ? name + " is not built yet" : "no such route: " + name);
    co_return;
  }
  if (method != nullptr) call.face = method->face;
  const bool is_post = request.method == "POST";
  const bool is_get = request.method == "GET";
  if (method != nullptr ? !is_post : !is_get && !(is_files && is_post)) {
    const std::string allowed = method != nullptr ? "POST" : is_files ? "GET, POST" : "GET";
    call.headers.push_back({"allow", allowed});
    co_await call.fail_with(405, "this route takes " + allowed + ", not " + request.method);
    co_return;
  }
  if (!co_await authorise(call)) co_return;
  auto user = co_await call.accept(basic_user(request.headers));
  if (!user) co_return;
  call.user = *std::move(user);
  if (method != nullptr) {
    co_await connect(call, *method);
  } else if (!is_files) {
    co_await health(call);
  } else if (is_get) {
    co_await read_file(call);
  } else {
    co_await write_files(call);
  }
}

// Looks up whose token it is. One answer for every token that is not this sandbox's (C023).
Task<bool> SandboxApi::authorise(SandboxCall& call) {
  const auto& headers = call.exchange.request().headers;
  if (count_headers(headers, "x-access-token") > 1) {
    co_await call.fail(invalid("more than one X-Access-Token"));
    co_return false;
  }
  const auto token = single_header(headers, "x-access-token").value_or("");
  if (!is_access_token(token)) {
    co_await call.fail(Failure{Outcome::kUnauthenticated,
                               {},
                               "the sandbox's access token is needed: X-Access-Token: sat_...",
                               0});
    co_return false;
  }
  auto caller = co_await gateway_.authorise(std::string(token));
  if (!caller) {
    co_await call.fail(std::move(caller).error());
    co_return false;
  }
  const bool names_one = call.sandbox != identity::SandboxId{};
  const auto& own = (*caller)->session.sandbox;
  if (!own || (names_one && *own != call.sandbox)) {
    co_await call.fail(no_such_sandbox());
    co_return false;
  }
  call.sandbox = *own;
  call.caller = *std::move(caller);
  co_return true;
}

Task<void> SandboxApi::connect(SandboxCall& call, const Method& method) {
  const auto& headers = call.exchange.request().headers;
  const bool is_stream = call.face == Face::kStream;
  const auto type = is_stream ? kStreamType : kUnaryType;
  if (media_type(headers) != type) {
    call.headers.push_back({"accept-post", std::string(type)});
    auto body = connect_error(invalid("Content-Type must be " + std::string(type)));
    co_await call.answer(415, std::move(body));
    co_return;
  }
  const auto encoding = is_stream ? "connect-content-encoding" : "content-encoding";
  if (count_headers(headers, encoding) > 0 && single_header(headers, encoding) != "identity") {
    co_await call.fail(unsupported("compressed requests are not built yet"));
    co_return;
  }
  if (count_headers(headers, "connect-protocol-version") > 0 &&
      single_header(headers, "connect-protocol-version") != "1") {
    co_await call.fail(invalid("Connect-Protocol-Version must be 1"));
    co_return;
  }
  if (count_headers(headers, "connect-timeout-ms") > 0) {
    const auto value = single_header(headers, "connect-timeout-ms").value_or("");
    const auto timeout = parse_decimal(value);
    if (!timeout || *timeout == 0 || *timeout > UINT32_MAX) {
      co_await call.fail(invalid("Connect-Timeout-Ms must be a number from 1 to 4294967295, once"));
      co_return;
    }
    call.limit = milliseconds(*timeout);
  }
  if (method.handler == nullptr) {
    co_await call.fail(unsupported(std::string(method.path.substr(1)) + " is not built yet"));
    co_return;
  }
  const auto request = co_await call.message();
  if (request) co_await (this->*method.handler)(call, *request);
}

// ---- filesystem.Filesystem ----

Task<void> SandboxApi::stat(SandboxCall& call, const Json& request) {
  auto path = co_await call.accept(read_path(request));
  if (!path) co_return;
  const wire::FileStatRequest stat{*std::move(path), call.user};
  const auto entry = co_await call.guest_call<wire::FileEntry>(Operation::kFileStat, stat);
  if (entry) co_await call.answer(200, Json::Object{{"entry", entry_info(*entry)}});
}

Task<void> SandboxApi::make_dir(SandboxCall& call, const Json& request) {
  auto path = co_await call.accept(read_path(request));
  if (!path) co_return;
  const wire::FileMakeDirRequest make{*std::move(path), call.user};
  const auto entry = co_await call.guest_call<wire::FileEntry>(Operation::kFileMakeDir, make);
  if (entry) co_await call.answer(200, Json::Object{{"entry", entry_info(*entry)}});
}

Task<void> SandboxApi::list_dir(SandboxCall& call, const Json& request) {
  auto list = co_await call.accept(read_list_dir(request));
  if (!list) co_return;
  list->user = call.user;
  const auto result = co_await call.guest_call<wire::FileListResult>(Operation::kFileList, *list);
  if (!result) co_return;
  if (result->truncated) {
    co_await call.fail(Failure{Outcome::kTooLarge,
                               {},
                               "more entries than fit one answer (1 MiB): list with a smaller "
                               "depth, or the folders one by one",
                               0});
    co_return;
  }
  Json::Array entries;
  for (const auto& entry : result->entries) entries.push_back(entry_info(entry));
  co_await call.answer(200, Json::Object{{"entries", std::move(entries)}});
}

Task<void> SandboxApi::move(SandboxCall& call, const Json& request) {
  auto move = co_await call.accept(read_move(request));
  if (!move) co_return;
  move->user = call.user;
  const auto entry = co_await call.guest_call<wire::FileEntry>(Operation::kFileMove, *move);
  if (entry) co_await call.answer(200, Json::Object{{"entry", entry_info(*entry)}});
}

Task<void> SandboxApi::remove(SandboxCall& call, const Json& request) {
  auto path = co_await call.accept(read_path(request));
  if (!path) co_return;
  const wire::FileRemoveRequest remove{*std::move(path), call.user};
  auto metadata = wire::encode(remove);
  auto removed = co_await gateway_.call(call.caller, call.sandbox, Operation::kFileRemove,
                                        std::move(metadata), call.limit);
  // What is not there is removed.
  const bool missing = !removed && removed.error().outcome == Outcome::kNotFound &&
                       removed.error().reason != kNoSuchSandbox;
  if (removed || missing) {
    co_await call.answer(200, Json::Object{});
  } else {
    co_await call.fail(std::move(removed).error());
  }
}

}  // namespace space::node_api
