#include "services/node_api/connect_json.h"

#include <array>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/records_json.h"

namespace space::node_api {

using frame::Outcome;

namespace {

constexpr std::uint32_t kMaxListDepth = 64;

std::unexpected<Failure> invalid(std::string message) {
  return std::unexpected(Failure{Outcome::kInvalidArgument, {}, std::move(message), 0});
}
std::unexpected<Failure> unsupported(std::string what) {
  return std::unexpected(Failure{Outcome::kUnsupported, {}, what + " is not built yet", 0});
}

// Null for `name` when it was absent.
Result<ProcessSelector> selector_in(const Json* process) {
  if (process == nullptr) return invalid("field \"process\" is needed and must be an object");
  JsonFields fields(*process);
  ProcessSelector selector;
  selector.pid = static_cast<std::uint32_t>(fields.number("pid", 1, UINT32_MAX).value_or(0));
  selector.tag = fields.text("tag");
  if (const auto problem = fields.error()) return invalid("in \"process\": " + *problem);
  if ((selector.pid != 0) == !selector.tag.empty()) {
    return invalid("in \"process\": one of \"pid\" and \"tag\" is needed");
  }
  return selector;
}

std::string take_path(JsonFields& fields, std::string_view name) {
  auto path = fields.text(name);
  if (!wire::is_guest_path(path)) fields.refuse(name, "is needed: 1 to 4096 bytes, no NUL");
  return path;
}

Json event(std::string name, Json value) {
  Json::Object inner{{std::move(name), std::move(value)}};
  return Json::Object{{"event", std::move(inner)}};
}

std::string_view file_type(wire::FileType type) {
  switch (type) {
    case wire::FileType::kFile:
      return "FILE_TYPE_FILE";
    case wire::FileType::kDirectory:
      return "FILE_TYPE_DIRECTORY";
    case wire::FileType::kSymlink:
      return "FILE_TYPE_SYMLINK";
    case wire::FileType::kOther:
      return "FILE_TYPE_UNSPECIFIED";
  }
  std::unreachable();
}

}  // namespace

Result<wire::ProcessStartRequest> read_start(const Json& request) {
  JsonFields fields(request);
  wire::ProcessStartRequest start;
  const auto* process = fields.object("process");
  const auto* pty = fields.object("pty");
  start.spec.tag = fields.text("tag");
  start.spec.stdin_open = fields.flag("stdin");
  if (const auto problem = fields.error()) return invalid(*problem);
  if (pty != nullptr) return unsupported("a process with a terminal (\"pty\")");
  if (process == nullptr) return invalid("field \"process\" is needed and must be an object");
  JsonFields config(*process);
  start.spec.command = config.required_text("cmd");
  start.spec.arguments = config.text_list("args");
  start.spec.envs = config.text_map("envs");
  start.spec.cwd = config.text("cwd");
  if (const auto problem = config.error()) return invalid("in \"process\": " + *problem);
  return start;
}

Result<ProcessSelector> read_selector(const Json& request) {
  JsonFields fields(request);
  const auto* process = fields.object("process");
  if (const auto problem = fields.error()) return invalid(*problem);
  return selector_in(process);
}

Result<ProcessInputCall> read_input(const Json& request) {
  JsonFields fields(request);
  const auto* process = fields.object("process");
  const auto* input = fields.object("input");
  if (const auto problem = fields.error()) return invalid(*problem);
  ProcessInputCall call;
  SPACE_TRY(call.process, selector_in(process));
  if (input == nullptr) return invalid("field \"input\" is needed and must be an object");
  const auto& object = *input->object();
  if (object.contains("pty")) return unsupported("input to a terminal (\"pty\")");
  if (!object.contains("stdin")) return invalid("in \"input\": field \"stdin\" is needed");
  JsonFields in(*input);
  auto bytes = from_base64(in.text("stdin"));
  if (const auto problem = in.error()) return invalid("in \"input\": " + *problem);
  if (!bytes) return invalid("in \"input\": field \"stdin\" must be bytes in base64");
  call.input = *std::move(bytes);
  return call;
}

Result<ProcessSignalCall> read_signal(const Json& request) {
  constexpr std::array<std::pair<std::string_view, std::int32_t>, 2> kSignals{
      {{"SIGNAL_SIGKILL", 9}, {"SIGNAL_SIGTERM", 15}}};
  JsonFields fields(request);
  const auto* process = fields.object("process");
  const auto name = fields.text("signal");
  if (const auto problem = fields.error()) return invalid(*problem);
  ProcessSignalCall call;
  SPACE_TRY(call.process, selector_in(process));
  for (const auto& [known, number] : kSignals) {
    if (name == known) call.signal = number;
  }
  if (call.signal == 0) {
    return invalid("field \"signal\" must be \"SIGNAL_SIGKILL\" or \"SIGNAL_SIGTERM\"");
  }
  return call;
}

Result<std::string> read_path(const Json& request) {
  JsonFields fields(request);
  auto path = take_path(fields, "path");
  if (const auto problem = fields.error()) return invalid(*problem);
  return path;
}

Result<wire::FileMoveRequest> read_move(const Json& request) {
  JsonFields fields(request);
  wire::FileMoveRequest move;
  move.source = take_path(fields, "source");
  move.destination = take_path(fields, "destination");
  if (const auto problem = fields.error()) return invalid(*problem);
  return move;
}

Result<wire::FileListRequest> read_list_dir(const Json& request) {
  JsonFields fields(request);
  wire::FileListRequest list;
  const auto depth = fields.number("depth", 0, kMaxListDepth).value_or(0);
  if (depth != 0) list.depth = static_cast<std::uint32_t>(depth);
  list.path = take_path(fields, "path");
  if (const auto problem = fields.error()) return invalid(*problem);
  return list;
}

std::string permission_text(wire::FileType type, std::uint32_t mode) {
  std::string out;
  if (type == wire::FileType::kDirectory) out += 'd';
  if (type == wire::FileType::kSymlink) out += 'L';
  if (type == wire::FileType::kOther) out += '?';
  if ((mode & 04000U) != 0) out += 'u';
  if ((mode & 02000U) != 0) out += 'g';
  if ((mode & 01000U) != 0) out += 't';
  if (out.empty()) out += '-';
  for (unsigned bit = 0; bit < 9; ++bit) {
    out += (mode & (0400U >> bit)) != 0 ? "rwx"[bit % 3] : '-';
  }
  return out;
}

Json entry_info(const wire::FileEntry& entry) {
  Json::Object out{
      {"name", entry.name},
      {"type", file_type(entry.type)},
      {"path", entry.path},
      {"size", std::to_string(entry.size)},
      {"mode", entry.mode},
      {"permissions", permission_text(entry.type, entry.mode)},
      {"owner", entry.owner},
      {"group", entry.group},
      {"modifiedTime", time_text(entry.modified)},
  };
  if (entry.symlink_target) out.emplace("symlinkTarget", *entry.symlink_target);
  return out;
}

Json process_info(const wire::ProcessInfo& info) {
  Json::Array arguments;
  for (const auto& argument : info.spec.arguments) arguments.push_back(argument);
  Json::Object envs;
  for (const auto& [name, value] : info.spec.envs) envs.emplace(name, value);
  Json::Object config{
      {"cmd", info.spec.command}, {"args", std::move(arguments)}, {"envs", std::move(envs)}};
  if (!info.spec.cwd.empty()) config.emplace("cwd", info.spec.cwd);
  Json::Object out{{"config", std::move(config)}, {"pid", info.pid}};
  if (!info.spec.tag.empty()) out.emplace("tag", info.spec.tag);
  return out;
}

Json process_event(const wire::ProcessEvent& happened) {
  return std::visit(
      Overload{
          [](const wire::ProcessStarted& started) {
            return event("start", Json::Object{{"pid", started.pid}});
          },
          [](const wire::ProcessOutput& output) {
            const bool out = output.channel == wire::OutputChannel::kStdout;
            return event("data",
                         Json::Object{{out ? "stdout" : "stderr", to_base64(output.bytes)}});
          },
          [](const wire::ProcessExited& exited) {
            auto status = status_text(exited);
            Json::Object end{{"exitCode", exited.exit_code}, {"exited", exited.signal == 0}};
            if (exited.exit_code != 0 || exited.signal != 0) {
              end.emplace("error", exited.out_of_memory ? status + " (out of memory)" : status);
            }
            end.emplace("status", std::move(status));
            return event("end", std::move(end));
          },
      },
      happened.event);
}

Json process_keepalive() { return event("keepalive", Json::Object{}); }

std::string status_text(const wire::ProcessExited& exited) {
  if (exited.signal == 0) return "exit status " + std::to_string(exited.exit_code);
  constexpr std::array<std::string_view, 32> kNames{"",
                                                    "hangup",
                                                    "interrupt",
                                                    "quit",
                                                    "illegal instruction",
                                                    "trace/breakpoint trap",
                                                    "aborted",
                                                    "bus error",
                                                    "floating point exception",
                                                    "killed",
                                                    "user defined signal 1",
                                                    "segmentation fault",
                                                    "user defined signal 2",
                                                    "broken pipe",
                                                    "alarm clock",
                                                    "terminated",
                                                    "stack fault",
                                                    "child exited",
                                                    "continued",
                                                    "stopped (signal)",
                                                    "stopped",
                                                    "stopped (tty input)",
                                                    "stopped (tty output)",
                                                    "urgent I/O condition",
                                                    "CPU time limit exceeded",
                                                    "file size limit exceeded",
                                                    "virtual timer expired",
                                                    "profiling timer expired",
                                                    "window changed",
                                                    "I/O possible",
                                                    "power failure",
                                                    "bad system call"};
  const auto index = static_cast<std::size_t>(exited.signal);
  const auto name = exited.signal > 0 && index < kNames.size()
                        ? std::string(kNames[index])
                        : "signal " + std::to_string(exited.signal);
  return "signal: " + name + (exited.core_dumped ? " (core dumped)" : "");
}

}  // namespace space::node_api
