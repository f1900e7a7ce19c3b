#include <array>
#include <boost/json.hpp>
#include <csignal>

#include "base/text.h"
#include "ports/task_scope.h"
#include "services/cli/commands.h"
#include "services/cli/text.h"

namespace space::cli {
namespace {

constexpr std::size_t kMaxLine = 1U << 20;
constexpr std::size_t kStdinChunk = 64U << 10;

// One remote command. `pid` is 0 until it has started.
struct Run {
  Run(Context& c, std::string id) : context(c), sandbox(std::move(id)) {}
  Context& context;
  const std::string sandbox;
  std::uint64_t pid = 0;
  int signal_waiting = 0;
  std::optional<int> exit_code;
  std::optional<Failure> failure;

  std::string process_target(const std::string& rest) const {
    return sandbox_target(sandbox, "/processes/" + std::to_string(pid) + rest);
  }
};

Failure unknown(const std::string& message) {
  return {.exit_code = kOutcomeUnknown, .code = "outcome_unknown", .message = message};
}

Task<void> send_signal(Run& run, int signal) {
  boost::json::value body = boost::json::object{{"signal", signal}};
  auto answer = co_await call(run.context, "POST", run.process_target("/signal"), std::move(body));
  if (!answer) run.context.terminal.err("space: signal not sent: " + answer.error().message + "\n");
}

// The first Ctrl-C goes to the remote process, the second leaves it behind.
Task<void> forward_signals(Run& run) {
  for (int count = 0;; ++count) {
    const int signal = co_await run.context.terminal.interrupted();
    if (signal == 0) co_return;
    if (count > 0) {
      run.context.terminal.err("space: left; the command may still be running in the sandbox\n");
      if (run.context.json) {
        report(run.context, unknown("left by a second interrupt"));
      }
      run.context.terminal.leave(kOutcomeUnknown);
      co_return;
    }
    run.context.terminal.err("space: signal " + std::to_string(signal) +
                             " sent to the command; once more leaves it behind\n");
    if (run.pid == 0) {
      run.signal_waiting = signal;
    } else {
      co_await send_signal(run, signal);
    }
  }
}

Task<void> forward_stdin(Run& run) {
  std::vector<std::byte> buffer(kStdinChunk);
  for (;;) {
    const auto count = co_await run.context.terminal.in(buffer);
    if (!count && count.error() == std::errc::operation_canceled) co_return;
    const bool end = !count || *count == 0;
    BytesSource body(end ? std::string() : to_text(ByteView(buffer).first(*count)));
    HttpHeaders headers{{"content-type", "application/octet-stream"}};
    auto response = co_await request(run.context, "POST",
                                     run.process_target(end ? "/stdin?close=true" : "/stdin"),
                                     std::move(headers), &body);
    if (end) co_return;
    if (!response) {
      if (!run.exit_code) {
        run.context.terminal.err("space: stdin not delivered: " + response.error().message + "\n");
      }
      co_return;
    }
  }
}

// Handles one event. False: the stream is of no more use.
bool take_event(Run& run, TaskScope& scope, bool stdin_too, std::string_view line) {
  boost::system::error_code error;
  const boost::json::value event = boost::json::parse(line, error);
  if (error || !event.is_object()) {
    run.failure = unknown("the API sent an event that is not JSON");
    return false;
  }
  Terminal& terminal = run.context.terminal;
  if (run.context.json && !terminal.out(std::string(line) + "\n")) {
    run.failure = unknown("stdout was closed by its reader");
    return false;
  }
  if (const auto& started = member(event, "started"); started.is_object()) {
    const auto& pid = member(started, "pid");
    run.pid = pid.is_int64() ? static_cast<std::uint64_t>(pid.get_int64()) : 0;
    if (stdin_too) scope.spawn("stdin", forward_stdin(run));
    if (run.signal_waiting != 0) {
      scope.spawn("signal", send_signal(run, std::exchange(run.signal_waiting, 0)));
    }
  }
  for (const bool to_stdout : {true, false}) {
    const auto& output = member(event, to_stdout ? "stdout" : "stderr");
    if (!output.is_string() || run.context.json) continue;
    const auto bytes = from_base64(text_of(event, to_stdout ? "stdout" : "stderr"));
    if (!bytes) {
      run.failure = unknown("the API sent output that is not base64");
      return false;
    }
    if (!to_stdout) {
      terminal.err(as_text(*bytes));
    } else if (!terminal.out(as_text(*bytes))) {
      run.failure = unknown("stdout was closed by its reader");
      return false;
    }
  }
  if (const auto& exited = member(event, "exited"); exited.is_object()) {
    const auto& code = member(exited, "exit_code");
    if (!code.is_int64()) {
      run.failure = unknown("the API sent an exit without a code");
      return false;
    }
    run.exit_code = static_cast<int>(code.get_int64());
    if (member(exited, "timed_out") == boost::json::value(true)) {
      terminal.err("space: the command was ended by its time limit\n");
    }
    if (member(exited, "out_of_memory") == boost::json::value(true)) {
      terminal.err("space: the command was ended because the sandbox ran out of memory\n");
    }
    return false;
  }
  if (const auto& failed = member(event, "error"); failed.is_object()) {
    run.failure = run.pid == 0 ? Failure{.exit_code = kFailed,
                                         .code = text_of(failed, "code"),
                                         .message = printable(text_of(failed, "message"))}
                               : unknown(printable(text_of(failed, "message")));
    return false;
  }
  return true;
}

Task<void> read_events(Run& run, TaskScope& scope, HttpResponse& response, bool stdin_too) {
  std::string pending;
  std::vector<std::byte> buffer(64U << 10);
  for (;;) {
    const auto count = co_await response.read(buffer);
    if (!count || *count == 0) {
      run.failure = unknown("the connection ended before the command did");
      co_return;
    }
    pending += as_text(ByteView(buffer).first(*count));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string_view line = std::string_view(pending).substr(begin, end - begin);
      if (!line.empty() && !take_event(run, scope, stdin_too, line)) co_return;
    }
    pending.erase(0, begin);
    if (pending.size() > kMaxLine) {
      run.failure = unknown("the API sent a line longer than 1 MiB");
      co_return;
    }
  }
}

}  // namespace

Task<int> exec(Context& context, ExecOptions options) {
  boost::json::array arguments;
  for (std::size_t i = 1; i < options.command.size(); ++i) {
    arguments.emplace_back(options.command[i]);
  }
  boost::json::object envs;
  for (const auto& [key, value] : options.envs) envs[key] = value;
  boost::json::object body{{"command", options.command.front()},
                           {"arguments", std::move(arguments)}};
  if (!envs.empty()) body["envs"] = std::move(envs);
  if (!options.cwd.empty()) body["cwd"] = options.cwd;
  if (!options.user.empty()) body["user"] = options.user;
  if (options.timeout_ms) body["timeout_ms"] = *options.timeout_ms;
  if (options.forward_stdin) body["stdin"] = true;

  Run run(context, options.sandbox);
  TaskScope scope(context.timer);
  scope.spawn("signals", forward_signals(run));
  BytesSource source(boost::json::serialize(body));
  HttpHeaders headers{{"content-type", "application/json"}};
  auto response = co_await request(context, "POST", sandbox_target(options.sandbox, "/processes"),
                                   std::move(headers), &source);
  if (!response) {
    run.failure = response.error();
  } else {
    if (context.json) {
      boost::json::object first;
      const auto execution = single_header((*response)->head().headers, "x-space-execution");
      first["execution"] = execution ? boost::json::value(*execution) : boost::json::value();
      first["repaired"] =
          single_header((*response)->head().headers, "x-space-repaired").has_value();
      print_json(context, first);
    }
    co_await read_events(run, scope, **response, options.forward_stdin);
  }
  co_await scope.stop();
  if (run.exit_code) co_return *run.exit_code;
  co_return report(context, run.failure.value_or(unknown("the command gave no result")));
}

}  // namespace space::cli
