#include "services/cli/commands.h"

#include <boost/json.hpp>

#include "base/text.h"
#include "services/cli/text.h"

namespace space::cli {
namespace {

boost::json::object object_of(const std::map<std::string, std::string>& map) {
  boost::json::object object;
  for (const auto& [key, value] : map) object[key] = value;
  return object;
}

std::string state_line(const boost::json::value& info) {
  return shown(info, "id") + " " + shown(info, "state") + " on " + shown(info, "worker") +
         ", execution " + shown(info, "generation") + "\n";
}

// Sends, and prints the sandbox that comes back.
Task<int> change(Context& context, std::string method, std::string target,
                 boost::json::value body) {
  auto answer = co_await call(context, std::move(method), std::move(target), std::move(body));
  if (!answer) co_return report(context, answer.error());
  if (context.json) co_return print_json(context, answer->body);
  co_return print(context, state_line(answer->body));
}

boost::json::object resume_body(const ResumeOptions& options) {
  boost::json::object body;
  if (options.worker) body["worker"] = *options.worker;
  if (options.timeout_s) body["timeout_s"] = *options.timeout_s;
  return body;
}

// One shell word, whatever is in it.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// "ID.GENERATION@WORKER" of a route object; "none".
std::string execution(const boost::json::value& route) {
  if (!route.is_object()) return "none";
  return shown(route, "sandbox") + "." + shown(route, "generation") + "@" + shown(route, "worker");
}

}  // namespace

Task<int> env(Context& context) {
  const auto& endpoint = context.endpoint;
  const std::vector<std::pair<std::string_view, const std::string*>> variables{
      {"SPACE_URL", &endpoint.url},       {"SPACE_API_KEY", &endpoint.api_key},
      {"E2B_API_KEY", &endpoint.api_key}, {"E2B_API_URL", &endpoint.url},
      {"E2B_SANDBOX_URL", &endpoint.url},
  };
  boost::json::object document;
  std::string script;
  for (const auto& [name, value] : variables) {
    document[name] = *value;
    script += "export " + std::string(name) + "=" + shell_quoted(*value) + "\n";
  }
  if (context.json) co_return print_json(context, document);
  co_return print(context, script);
}

Task<int> create(Context& context, CreateOptions options) {
  boost::json::object body{{"template", options.template_name}};
  if (options.timeout_s) body["timeout_s"] = *options.timeout_s;
  if (!options.metadata.empty()) body["metadata"] = object_of(options.metadata);
  if (!options.envs.empty()) body["envs"] = object_of(options.envs);
  if (options.worker) body["worker"] = *options.worker;
  if (options.cpu_millis) body["cpu_millis"] = *options.cpu_millis;
  if (options.memory_mb) body["memory_mb"] = *options.memory_mb;
  if (options.disk_mb) body["disk_mb"] = *options.disk_mb;
  auto answer = co_await call(context, "POST", "/space/v1/sandboxes", std::move(body));
  if (!answer) {
    auto failed = std::move(answer).error();
    // It is the template that was not found.
    if (failed.exit_code == kNoSandbox) failed.exit_code = kFailed;
    co_return report(context, failed);
  }
  if (context.json) co_return print_json(context, answer->body);
  context.terminal.err(state_line(answer->body));
  co_return print(context, shown(answer->body, "id") + "\n");
}

Task<int> list(Context& context) {
  auto sandboxes = co_await all_sandboxes(context);
  if (!sandboxes) co_return report(context, sandboxes.error());
  if (context.json) {
    const boost::json::object document{{"sandboxes", *std::move(sandboxes)}};
    co_return print_json(context, document);
  }
  std::vector<std::vector<std::string>> rows{
      {"SANDBOX", "STATE", "WORKER", "EXECUTION", "TEMPLATE", "ENDS", "METADATA"}};
  for (const auto& s : *sandboxes) {
    rows.push_back({shown(s, "id"), shown(s, "state"), shown(s, "worker"), shown(s, "generation"),
                    shown(s, "template"), shown(s, "ends_at"), shown(s, "metadata")});
  }
  co_return print(context, columns(rows));
}

Task<int> info(Context& context, std::string sandbox) {
  auto answer = co_await call(context, "GET", sandbox_target(sandbox, ""), nullptr);
  if (!answer) co_return report(context, answer.error());
  if (context.json) co_return print_json(context, answer->body);
  std::vector<std::vector<std::string>> rows;
  if (answer->body.is_object()) {
    for (const auto& field : answer->body.get_object()) {
      rows.push_back({printable(field.key()), shown(answer->body, field.key())});
    }
  }
  co_return print(context, columns(rows));
}

Task<int> pause(Context& context, std::string sandbox) {
  boost::json::value body = boost::json::object();
  co_return co_await change(context, "POST", sandbox_target(sandbox, "/pause"), std::move(body));
}

Task<int> resume(Context& context, ResumeOptions options) {
  boost::json::value body = resume_body(options);
  co_return co_await change(context, "POST", sandbox_target(options.sandbox, "/resume"),
                            std::move(body));
}

Task<int> move(Context& context, ResumeOptions options) {
  boost::json::value body = resume_body(options);
  co_return co_await change(context, "POST", sandbox_target(options.sandbox, "/move"),
                            std::move(body));
}

Task<int> kill(Context& context, std::vector<std::string> sandboxes) {
  boost::json::array killed;
  for (const std::string& sandbox : sandboxes) {
    auto answer = co_await call(context, "DELETE", sandbox_target(sandbox, ""), nullptr);
    if (!answer) co_return report(context, answer.error());
    killed.emplace_back(sandbox);
  }
  if (context.json) {
    const boost::json::value document = {{"killed", killed}};
    co_return print_json(context, document);
  }
  std::string text;
  for (const std::string& sandbox : sandboxes) text += printable(sandbox) + " killed\n";
  co_return print(context, text);
}

Task<int> route(Context& context, std::string sandbox) {
  auto answer = co_await call(context, "GET", sandbox_target(sandbox, "/route"), nullptr);
  if (!answer) co_return report(context, answer.error());
  const boost::json::value& body = answer->body;
  if (context.json) co_return print_json(context, body);
  const boost::json::value& selected = member(body, "selected");
  std::string text = "selected    " + execution(selected) + "\n";
  if (selected.is_object()) {
    text += "activation  " + shown(selected, "activation") + "\n";
    text += "substrate   " + shown(selected, "substrate") + "\n";
    text += "attempt     " + shown(selected, "attempt") + "\n";
    text += "endpoint    " + shown(body, "endpoint") + "\n";
  }
  text += "\nWhat each receiver has installed:\n";
  std::vector<std::vector<std::string>> rows{
      {"WORKER", "REACHABLE", "INSTALLED", "ACTIVATION", "ATTEMPT", "EPOCH", "FLOOR", "LEASES"}};
  const boost::json::value& receivers = member(body, "receivers");
  if (receivers.is_array()) {
    for (const auto& r : receivers.get_array()) {
      const boost::json::value& installed = member(r, "installed");
      rows.push_back({shown(r, "worker"), shown(r, "reachable"), execution(installed),
                      shown(installed, "activation"), shown(installed, "attempt"),
                      shown(r, "epoch"), shown(r, "floor"), shown(r, "leases")});
    }
  }
  co_return print(context, text + columns(rows));
}

Task<int> capability(Context& context, std::string sandbox, std::string operation) {
  auto answer = co_await call(
      context, "GET", sandbox_target(sandbox, "/capability?operation=" + percent_encode(operation)),
      nullptr);
  if (!answer) co_return report(context, answer.error());
  if (context.json) co_return print_json(context, answer->body);
  std::vector<std::vector<std::string>> rows;
  if (answer->body.is_object()) {
    for (const auto& claim : answer->body.get_object()) {
      rows.push_back({printable(claim.key()), shown(answer->body, claim.key())});
    }
  }
  co_return print(context, columns(rows));
}

}  // namespace space::cli
