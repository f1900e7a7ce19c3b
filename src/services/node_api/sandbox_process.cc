// process.Process of the sandbox API.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "core/wire/connect_frame.h"
#include "services/node_api/connect_json.h"
#include "services/node_api/event_reader.h"
#include "services/node_api/sandbox_api.h"
#include "services/node_api/sandbox_call.h"

namespace space::node_api {

using frame::Outcome;
using policy::Operation;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr std::uint64_t kDefaultKeepalive = 90;  // seconds of silence
constexpr std::uint64_t kMaxKeepalive = 3600;

Result<BootClock::duration> keepalive_of(const HttpHeaders& headers) {
  constexpr std::string_view kName = "keepalive-ping-interval";
  if (count_headers(headers, kName) == 0) return seconds(kDefaultKeepalive);
  const auto number = parse_decimal(single_header(headers, kName).value_or(""));
  if (!number || *number == 0 || *number > kMaxKeepalive) {
    return std::unexpected(
        invalid("Keepalive-Ping-Interval must be a number of seconds from 1 to 3600, once"));
  }
  return seconds(*number);
}

void append(std::string& out, wire::ConnectFlag flag, const Json& message) {
  wire::append_connect_frame(out, flag, message.text());
}

}  // namespace

Task<void> SandboxApi::start(SandboxCall& call, const Json& request) {
  auto start = co_await call.accept(read_start(request));
  if (!start) co_return;
  const auto keepalive = co_await call.accept(keepalive_of(call.exchange.request().headers));
  if (!keepalive) co_return;
  start->spec.user = call.user;
  if (call.limit) {
    const auto limit = std::chrono::duration_cast<milliseconds>(*call.limit);
    start->timeout_ms = static_cast<std::uint32_t>(limit.count());
  }
  // A client that leaves gives up the stream; the process lives on.
  const auto admission = co_await call.open(Operation::kProcessStart, *start);
  if (!admission) co_return;
  co_await stream_events(call, *admission, *keepalive);
}

// The events of a process until its exit, which the end-of-stream message follows at once. A stream
// that ends otherwise ends with an error, never with an exit (C048).
Task<void> SandboxApi::stream_events(SandboxCall& call, Admission& admission,
                                     BootClock::duration keepalive) {
  EventReader events;
  for (;;) {
    const bool begun = call.exchange.answered();
    const auto event =
        co_await admission.next(begun ? std::optional(timer_.now() + keepalive) : std::nullopt);
    std::string out;
    bool exited = false;
    std::optional<Failure> failed;
    if (std::holds_alternative<hop::TimedOut>(event)) {
      append(out, wire::ConnectFlag::kMessage, process_keepalive());
    } else if (const auto* data = std::get_if<frame::Data>(&event)) {
      events.feed(data->bytes);
      while (!exited && !failed) {
        const auto next = events.next();
        if (!next) break;
        const auto* exit = std::get_if<wire::ProcessExited>(&next->event);
        exited = exit != nullptr;
        if (exited && exit->timed_out) {
          failed =
              Failure{Outcome::kDeadlineExceeded, {}, "the process was killed at its deadline", 0};
        } else {
          append(out, wire::ConnectFlag::kMessage, process_event(*next));
        }
      }
      if (events.bad()) failed = interrupted_stream("malformed_events");
    } else {
      failed = broken(event);
    }
    if (failed && !begun && out.empty()) {
      co_await call.fail(*std::move(failed));
      co_return;
    }
    if (failed) failed = co_await call.explained(*std::move(failed));
    if (!begun) {
      call.headers.push_back({"content-type", std::string(kStreamType)});
      call.headers.push_back({"cache-control", "no-store"});
      auto headers = std::move(call.headers);
      if (!co_await call.exchange.begin(200, std::move(headers))) co_return;
    }
    if (failed) {
      append(out, wire::ConnectFlag::kEndOfStream, Json::Object{{"error", connect_error(*failed)}});
    } else if (exited) {
      append(out, wire::ConnectFlag::kEndOfStream, Json::Object{});
    }
    if (!out.empty() && !co_await call.exchange.write(as_bytes(out))) co_return;
    if (failed || exited) {
      static_cast<void>(co_await call.exchange.finish());
      co_return;
    }
  }
}

Task<void> SandboxApi::list_processes(SandboxCall& call, const Json& request) {
  JsonFields fields(request);
  if (!co_await call.accepted(fields)) co_return;
  const auto list = co_await call.guest_call<wire::ProcessListResult>(Operation::kProcessList,
                                                                      wire::ProcessListRequest{});
  if (!list) co_return;
  Json::Array processes;
  for (const auto& process : list->processes) processes.push_back(process_info(process));
  co_await call.answer(200, Json::Object{{"processes", std::move(processes)}});
}

Task<std::optional<std::uint32_t>> SandboxApi::pid_of(SandboxCall& call, ProcessSelector selector) {
  if (selector.tag.empty()) co_return selector.pid;
  const auto list = co_await call.guest_call<wire::ProcessListResult>(Operation::kProcessList,
                                                                      wire::ProcessListRequest{});
  if (!list) co_return std::nullopt;
  const auto tagged = [&selector](const wire::ProcessInfo& process) {
    return process.spec.tag == selector.tag;
  };
  const auto count = std::ranges::count_if(list->processes, tagged);
  if (count == 1) co_return std::ranges::find_if(list->processes, tagged)->pid;
  co_await call.fail(count == 0
                         ? Failure{Outcome::kNotFound, {}, "process not found", 0}
                         : Failure{Outcome::kConflict, {}, "several processes have this tag", 0});
  co_return std::nullopt;
}

Task<void> SandboxApi::send_signal(SandboxCall& call, const Json& request) {
  auto signal = co_await call.accept(read_signal(request));
  if (!signal) co_return;
  const auto pid = co_await pid_of(call, std::move(signal->process));
  if (!pid) co_return;
  const wire::ProcessSignalRequest operation{*pid, signal->signal};
  if (co_await call.guest_call<wire::Nothing>(Operation::kProcessSignal, operation)) {
    co_await call.answer(200, Json::Object{});
  }
}

Task<void> SandboxApi::send_input(SandboxCall& call, const Json& request) {
  auto sent = co_await call.accept(read_input(request));
  if (sent) co_await input(call, std::move(sent->process), std::move(sent->input), false);
}

Task<void> SandboxApi::close_stdin(SandboxCall& call, const Json& request) {
  auto selector = co_await call.accept(read_selector(request));
  if (selector) co_await input(call, *std::move(selector), {}, true);
}

// Answers once the process has taken the bytes, or when the client leaves.
Task<void> SandboxApi::input(SandboxCall& call, ProcessSelector selector, Bytes bytes,
                             bool close_after) {
  const auto pid = co_await pid_of(call, std::move(selector));
  if (!pid) co_return;
  const wire::ProcessInputRequest operation{*pid, close_after};
  const auto admission = co_await call.open(Operation::kProcessInput, operation);
  if (!admission) co_return;
  if (co_await admission->write(bytes)) admission->end();
  if (co_await call.outcome_record<wire::ProcessInputResult>(*admission)) {
    co_await call.answer(200, Json::Object{});
  }
}

}  // namespace space::node_api
