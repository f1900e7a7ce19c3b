#include <boost/json.hpp>
#include <map>

#include "services/cli/commands.h"
#include "services/cli/text.h"

namespace space::cli {
namespace {

std::uint64_t number(const boost::json::value& object, std::string_view key) {
  const auto& value = member(object, key);
  if (value.is_uint64()) return value.get_uint64();
  return value.is_int64() && value.get_int64() > 0 ? static_cast<std::uint64_t>(value.get_int64())
                                                   : 0;
}

// "NAME total (+new)": what came since the sample before. A node-api that was restarted counts
// anew.
std::string counter(std::string_view name, std::string_view key, const boost::json::value& now,
                    const boost::json::value& before) {
  const auto total = number(now, key);
  const auto last = number(before, key);
  auto text = std::string(name) + " " + std::to_string(total);
  if (before.is_object() && total > last) text += " (+" + std::to_string(total - last) + ")";
  return text;
}

std::string screen(const boost::json::value& status, const boost::json::array& sandboxes,
                   const boost::json::value& before) {
  const auto& counters = member(status, "node_api");
  const auto& workers = member(status, "workers");
  std::string text = "workers ";
  if (workers.is_array()) {
    for (const auto& worker : workers.get_array()) {
      const auto& reachable = member(worker, "reachable");
      const bool up = reachable.is_bool() && reachable.get_bool();
      text += shown(worker, "id") + (up ? " up (" : " DOWN (") + shown(worker, "sandboxes") + ")  ";
    }
  }
  text += "  running " + std::to_string(number(status, "running")) + ", paused " +
          std::to_string(number(status, "paused")) + "\n";
  text += counter("operations", "admitted", counters, before) + "   " +
          counter("repairs", "repairs", counters, before) + "   " +
          counter("look-ups", "look_ups", counters, before) + "   " +
          counter("renewals", "renewals", counters, before) + "   " +
          counter("misroutes", "misroutes", counters, before) + "\n";
  const auto& refusals = member(counters, "refusals");
  text += "refusals";
  if (!refusals.is_object() || refusals.get_object().empty()) {
    text += " none";
  } else {
    for (const auto& reason : refusals.get_object()) {
      text += "  " +
              counter(printable(reason.key()), reason.key(), refusals, member(before, "refusals"));
    }
  }
  text += "\n\n";
  std::vector<std::vector<std::string>> rows{
      {"SANDBOX", "STATE", "EXECUTION", "TEMPLATE", "STARTED", "ENDS"}};
  for (const auto& s : sandboxes) {
    rows.push_back({shown(s, "id"), shown(s, "state"),
                    shown(s, "generation") + "@" + shown(s, "worker"), shown(s, "template"),
                    shown(s, "started_at"), shown(s, "ends_at")});
  }
  return text + columns(rows);
}

}  // namespace

Task<int> top(Context& context, TopOptions options) {
  const bool redraws = !context.json && context.terminal.out_is_terminal();
  const auto samples = options.samples.value_or(redraws ? 0 : 1);
  boost::json::value before;
  for (std::uint64_t sample = 1;; ++sample) {
    auto status = co_await call(context, "GET", "/space/v1/status", nullptr);
    if (!status) co_return report(context, status.error());
    const auto sandboxes = co_await all_sandboxes(context);
    if (!sandboxes) co_return report(context, sandboxes.error());
    int code = kOk;
    if (context.json) {
      boost::json::object document{{"status", status->body}, {"sandboxes", *sandboxes}};
      code = print_json(context, document);
    } else {
      // Home, the new lines, then whatever was below: nothing flickers.
      const auto text = screen(status->body, *sandboxes, before);
      code = print(context, redraws ? "\x1b[H\x1b[J" + text : text);
    }
    if (code != kOk || sample == samples) co_return code;
    before = member(status->body, "node_api");
    if (!co_await sleep_for(context.timer, options.interval)) co_return kFailed;
  }
}

}  // namespace space::cli
