#include "services/node_api/records_json.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/result.h"
#include "base/text.h"

namespace space::node_api {
namespace {

using Object = Json::Object;

std::string digits(std::int64_t value, std::size_t width) {
  auto text = std::to_string(value);
  return std::string(width - std::min(width, text.size()), '0') + text;
}

Json text_map(const std::map<std::string, std::string>& map) {
  Object out;
  for (const auto& [key, value] : map) out.emplace(key, value);
  return out;
}

Json route_json(const identity::RouteIdentity& route, std::uint32_t attempt) {
  Object out{{"sandbox", route.sandbox.text()},       {"generation", route.generation.value},
             {"worker", route.worker.text()},         {"substrate", to_string(route.substrate)},
             {"activation", route.activation.text()}, {"attempt", attempt}};
  if (route.pod_uid) out.emplace("pod_uid", route.pod_uid->text());
  return out;
}

constexpr std::uint64_t kMegabyte = 1U << 20;

std::string_view file_type(wire::FileType type) {
  switch (type) {
    case wire::FileType::kFile:
      return "file";
    case wire::FileType::kDirectory:
      return "directory";
    case wire::FileType::kSymlink:
      return "symlink";
    case wire::FileType::kOther:
      return "other";
  }
  std::unreachable();
}

// Takes a text apart from the front; not `ok` after the first piece that is not there.
struct Scanner {
  std::string_view rest;
  bool ok = true;

  bool next(char c) {
    if (!rest.starts_with(c)) return false;
    rest.remove_prefix(1);
    return true;
  }
  void expect(char c) { ok = next(c) && ok; }
  // A number of exactly `digits` digits.
  int number(std::size_t digits) {
    int value = 0;
    for (; digits > 0; --digits) {
      if (rest.empty() || rest.front() < '0' || rest.front() > '9') {
        ok = false;
        return 0;
      }
      value = value * 10 + (rest.front() - '0');
      rest.remove_prefix(1);
    }
    return value;
  }
};

}  // namespace

std::string time_text(WallTime time) {
  constexpr WallTime kFirst{std::chrono::milliseconds{-62'167'219'200'000}};
  constexpr WallTime kLast{std::chrono::milliseconds{253'402'300'799'999}};
  time = std::clamp(time, kFirst, kLast);
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return digits(int{date.year()}, 4) + "-" + digits(unsigned{date.month()}, 2) + "-" +
         digits(unsigned{date.day()}, 2) + "T" + digits(clock.hours().count(), 2) + ":" +
         digits(clock.minutes().count(), 2) + ":" + digits(clock.seconds().count(), 2) + "." +
         digits(clock.subseconds().count(), 3) + "Z";
}

std::optional<WallTime> parse_time(std::string_view text) {
  using namespace std::chrono;
  Scanner scan{text};
  const year year_of{scan.number(4)};
  scan.expect('-');
  const month month_of{static_cast<unsigned>(scan.number(2))};
  scan.expect('-');
  const day day_of{static_cast<unsigned>(scan.number(2))};
  scan.expect('T');
  const hours hour{scan.number(2)};
  scan.expect(':');
  const minutes minute{scan.number(2)};
  scan.expect(':');
  nanoseconds second = seconds{scan.number(2)};
  if (scan.next('.')) {
    const auto digits = scan.rest.substr(0, scan.rest.find_first_not_of("0123456789")).size();
    if (digits == 0 || digits > 9) return std::nullopt;
    nanoseconds fraction{scan.number(digits)};
    for (auto missing = digits; missing < 9; ++missing) fraction *= 10;
    second += fraction;
  }
  minutes offset{0};
  if (!scan.next('Z')) {
    const bool east = scan.next('+');
    if (!east) scan.expect('-');
    const hours offset_hour{scan.number(2)};
    scan.expect(':');
    const minutes offset_minute{scan.number(2)};
    if (offset_hour >= days{1} || offset_minute >= hours{1}) return std::nullopt;
    offset = east ? offset_hour + offset_minute : -(offset_hour + offset_minute);
  }
  const year_month_day date{year_of, month_of, day_of};
  if (!scan.ok || !scan.rest.empty() || !date.ok() || hour >= days{1} || minute >= hours{1} ||
      second >= minutes{1}) {
    return std::nullopt;
  }
  return WallTime(sys_days(date)) + hour + minute - offset + ceil<milliseconds>(second);
}

std::string execution_text(const identity::RouteIdentity& route) {
  return route.sandbox.text() + "." + std::to_string(route.generation.value) + "@" +
         route.worker.text();
}

Json to_json(const wire::SandboxInfo& info) {
  Object out{{"id", info.sandbox.text()},
             {"state", to_string(info.state)},
             {"template", info.template_name},
             {"metadata", text_map(info.metadata)},
             {"started_at", time_text(info.started_at)},
             {"ends_at", time_text(info.ends_at)},
             {"cpu_millis", info.cpu_millis},
             {"memory_mb", info.memory_bytes / kMegabyte},
             {"disk_mb", info.disk_bytes / kMegabyte},
             {"generation", info.generation.value}};
  if (info.worker) out.emplace("worker", info.worker->text());
  if (!info.state_reason.empty()) out.emplace("state_reason", info.state_reason);
  return out;
}

Json to_json(const wire::SandboxRouteResult& result) {
  Json::Array receivers;
  for (const auto& at : result.receivers) {
    Object item{{"worker", at.worker.text()},
                {"reachable", at.reachable},
                {"epoch", at.epoch},
                {"floor", at.floor},
                {"leases", at.leases}};
    item.emplace("installed", at.route ? route_json(*at.route, at.attempt) : Json());
    receivers.emplace_back(std::move(item));
  }
  Object out{{"endpoint", result.endpoint}, {"receivers", std::move(receivers)}};
  out.emplace("selected", result.selected ? route_json(*result.selected, result.attempt) : Json());
  return out;
}

Json to_json(const wire::PlatformStatusResult& result) {
  Json::Array workers;
  for (const auto& worker : result.workers) {
    Object item{{"id", worker.worker.text()},
                {"reachable", worker.reachable},
                {"sandboxes", worker.sandboxes},
                {"bundle_version", worker.bundle_version},
                {"clock_healthy", worker.clock_healthy},
                {"clock_offset_ms", worker.clock_offset_ms},
                {"runtime", worker.runtime},
                {"evidence", worker.evidence}};
    if (!worker.reason.empty()) item.emplace("reason", worker.reason);
    workers.emplace_back(std::move(item));
  }
  return Object{
      {"workers", std::move(workers)}, {"running", result.running}, {"paused", result.paused}};
}

Json to_json(const wire::FileEntry& entry) {
  Object out{{"name", entry.name},
             {"path", entry.path},
             {"type", file_type(entry.type)},
             {"size", entry.size},
             {"mode", entry.mode},
             {"owner", entry.owner},
             {"group", entry.group},
             {"modified_at", time_text(entry.modified)}};
  // A name that is no UTF-8 has no JSON text: its exact bytes come beside it (C059).
  if (!is_utf8(entry.path)) out.emplace("path_base64", to_base64(as_bytes(entry.path)));
  if (entry.symlink_target) out.emplace("symlink_target", *entry.symlink_target);
  return out;
}

Json to_json(const wire::ProcessInfo& info) {
  Json::Array arguments;
  for (const auto& argument : info.spec.arguments) arguments.emplace_back(argument);
  Object out{{"pid", info.pid},
             {"command", info.spec.command},
             {"arguments", std::move(arguments)},
             {"envs", text_map(info.spec.envs)},
             {"cwd", info.spec.cwd},
             {"user", info.spec.user}};
  if (!info.spec.tag.empty()) out.emplace("tag", info.spec.tag);
  return out;
}

Json to_json(const wire::ProcessEvent& event) {
  return std::visit(Overload{
                        [](const wire::ProcessStarted& e) -> Json {
                          return Object{{"started", Object{{"pid", e.pid}}}};
                        },
                        [](const wire::ProcessOutput& e) -> Json {
                          const auto* name =
                              e.channel == wire::OutputChannel::kStdout ? "stdout" : "stderr";
                          return Object{{name, to_base64(e.bytes)}};
                        },
                        [](const wire::ProcessExited& e) -> Json {
                          return Object{{"exited", Object{{"exit_code", e.exit_code},
                                                          {"signal", e.signal},
                                                          {"core_dumped", e.core_dumped},
                                                          {"out_of_memory", e.out_of_memory},
                                                          {"timed_out", e.timed_out}}}};
                        },
                    },
                    event.event);
}

Json to_json(const Counters& counters) {
  Object refusals;
  for (const auto& [reason, count] : counters.refusals) refusals.emplace(reason, count);
  return Object{{"admitted", counters.admitted},  {"repairs", counters.repairs},
                {"look_ups", counters.look_ups},  {"mints", counters.mints},
                {"renewals", counters.renewals},  {"misroutes", counters.misroutes},
                {"refusals", std::move(refusals)}};
}

Json to_json(const identity::Claims& claims) {
  constexpr std::pair<identity::Access, std::string_view> kNames[]{
      {identity::Access::kFilesRead, "files.read"},
      {identity::Access::kFilesWrite, "files.write"},
      {identity::Access::kProcessRead, "process.read"},
      {identity::Access::kProcessWrite, "process.write"},
      {identity::Access::kWatch, "watch"},
      {identity::Access::kServicePort, "service-port"}};
  Json::Array access;
  for (const auto& [bit, name] : kNames) {
    if (claims.access.has(bit)) access.emplace_back(name);
  }
  Object out{{"id", claims.id.text()},
             {"issuer", claims.issuer.text()},
             {"key", claims.key.value},
             {"purpose", to_string(claims.purpose)},
             {"execution", route_json(claims.route, claims.attempt.value)},
             {"access", std::move(access)},
             {"session", claims.session.text()},
             {"holder", claims.holder.text()},
             {"issued_at", time_text(claims.issued_at)},
             {"expires_at", time_text(claims.expires_at)}};
  if (claims.port) out.emplace("port", *claims.port);
  if (claims.constraint) out.emplace("constraint", claims.constraint->text());
  return out;
}

}  // namespace space::node_api
