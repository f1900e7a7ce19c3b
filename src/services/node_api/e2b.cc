#include "services/node_api/e2b.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/http_call.h"
#include "services/node_api/records_json.h"

namespace space::node_api::e2b {

using wire::SandboxState;

namespace {

constexpr std::uint64_t kMegabyte = 1U << 20;
constexpr std::uint32_t kShortTimeout = 15;  // of refreshes and resume
constexpr std::uint32_t kMaxRefreshSeconds = 3'600;
constexpr std::uint32_t kMaxPage = 100;
constexpr std::array kAsRunning{SandboxState::kCreating, SandboxState::kRunning,
                                SandboxState::kResuming, SandboxState::kMoving,
                                SandboxState::kLost};
constexpr std::array kAsPaused{SandboxState::kPausing, SandboxState::kPaused};

// Whether a value asks for nothing.
bool is_blank(const Json& value) {
  return value.is_null() || value == Json(Json::Object{}) || value == Json(Json::Array{});
}

// Reads a body: malformed and unknown fields are kInvalidArgument, those that ask for what SPACE
// does not do kUnsupported.
class Body {
 public:
  explicit Body(const Json& json) : fields(json) {}

  std::optional<std::uint32_t> seconds(std::string_view name, std::uint32_t max) {
    const auto value = fields.number(name, 1, max);
    if (!value) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
  }
  std::optional<bool> boolean(std::string_view name) {
    const auto* value = fields.raw(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    const auto* boolean = value->boolean();
    if (boolean == nullptr) {
      fields.refuse(name, "must be true or false");
      return std::nullopt;
    }
    return *boolean;
  }
  // A choice that can be made in one way only.
  void only(std::string_view name, bool choice) {
    if (boolean(name).value_or(choice) == choice) return;
    refuse("field \"" + std::string(name) + "\" with the value " + (choice ? "false" : "true"));
  }
  // A feature that is not there: its field may ask for nothing.
  void absent(std::string_view name) {
    const auto* value = fields.raw(name);
    if (value != nullptr && !is_blank(*value)) refuse("field \"" + std::string(name) + "\"");
  }
  void auto_resume() {
    const auto* config = fields.object("autoResume");
    if (config == nullptr) return;
    Body inner(*config);
    const auto enabled = inner.boolean("enabled");
    if (inner.fields.error()) {
      fields.refuse("autoResume", "must be {\"enabled\": true or false}");
    } else if (enabled == true) {
      refuse("field \"autoResume.enabled\" with the value true");
    }
  }

  // The reading's result, or what is wrong with the body.
  template <class T>
  Result<T> result(T value) {
    if (auto failure = problem()) return std::unexpected(std::move(*failure));
    return value;
  }
  Result<void> result() {
    if (auto failure = problem()) return std::unexpected(std::move(*failure));
    return {};
  }

  JsonFields fields;

 private:
  void refuse(std::string what) {
    if (!unsupported_) unsupported_ = std::move(what);
  }
  std::optional<Failure> problem() const {
    if (auto error = fields.error()) {
      if (fields.left_over() != nullptr) {
        *error += "; SPACE speaks the E2B API of " + std::string(kSupportedSdks);
      }
      return invalid(std::move(*error));
    }
    if (!unsupported_) return std::nullopt;
    return unsupported("unsupported_field", *unsupported_);
  }
  std::optional<std::string> unsupported_;
};

std::map<std::string, std::string> read_variables(Body& body) {
  auto variables = body.fields.text_map("envVars");
  for (const auto& [name, value] : variables) {
    const bool usable = !name.empty() && !name.contains('=') && !name.contains('\0');
    if (!usable || value.contains('\0')) {
      body.fields.refuse("envVars", "has a name that is empty or contains '=', or a NUL");
    }
  }
  return variables;
}

// The `state` parameter: names parted by commas.
std::vector<SandboxState> read_states(Query& query) {
  std::vector<SandboxState> states;
  const auto add = [&states](const auto& more) {
    states.insert(states.end(), more.begin(), more.end());
  };
  const auto parameter = query.text("state");
  if (!parameter || parameter->empty()) {
    add(kAsRunning);
    add(kAsPaused);
    return states;
  }
  bool running = false;
  bool paused = false;
  for (std::string_view rest = *parameter;;) {
    const auto comma = rest.find(',');
    const auto name = rest.substr(0, comma);
    if (name == "running") {
      running = true;
    } else if (name == "paused") {
      paused = true;
    } else {
      query.refuse("state", "must be \"running\", \"paused\" or both, parted by a comma");
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (running) add(kAsRunning);
  if (paused) add(kAsPaused);
  return states;
}

std::map<std::string, std::string> read_metadata_of(Query& query) {
  const auto parameter = query.text("metadata");
  if (!parameter) return {};
  auto pairs = read_metadata(*parameter);
  if (!pairs) {
    query.refuse("metadata", pairs.error());
    return {};
  }
  return *std::move(pairs);
}

Result<wire::SandboxListRequest> list_result(Query& query, wire::SandboxListRequest request) {
  if (auto problem = query.error()) return std::unexpected(invalid(std::move(*problem)));
  return request;
}

// What the API has no field for, and what it can't say: its clients ignore it.
Json beyond(const wire::SandboxInfo& info) {
  Json::Object out{
      {"state", to_string(info.state)}, {"generation", info.generation.value}, {"egress", "none"}};
  if (info.worker) out.emplace("worker", info.worker->text());
  if (!info.state_reason.empty()) out.emplace("stateReason", info.state_reason);
  return out;
}

Json::Object identity_of(const wire::SandboxInfo& info) {
  return {{"templateID", info.template_name}, {"alias", info.template_name},
          {"sandboxID", info.sandbox.text()}, {"clientID", "space"},
          {"envdVersion", kEnvdVersion},      {"space", beyond(info)}};
}

Json::Object listed(const wire::SandboxInfo& info) {
  auto out = identity_of(info);
  Json::Object metadata;
  for (const auto& [key, value] : info.metadata) metadata.emplace(key, value);
  out.emplace("metadata", std::move(metadata));
  out.emplace("startedAt", time_text(info.started_at));
  out.emplace("endAt", time_text(info.ends_at));
  out.emplace("cpuCount", (info.cpu_millis + 999) / 1000);
  out.emplace("memoryMB", info.memory_bytes / kMegabyte);
  out.emplace("diskSizeMB", info.disk_bytes / kMegabyte);
  if (const auto state = state_text(info.state)) out.emplace("state", *state);
  return out;
}

void add_access(Json::Object& out, const wire::SandboxInfo& info, const std::string& domain) {
  out.emplace("domain", domain.empty() ? Json() : Json(domain));
  if (!info.access_token.empty()) out.emplace("envdAccessToken", info.access_token);
}

}  // namespace

Failure unsupported(std::string reason, const std::string& what) {
  return Failure{frame::Outcome::kUnsupported, std::move(reason),
                 what + " is not supported by SPACE yet", 0};
}

Result<wire::SandboxCreateRequest> read_create(const Json& json, std::uint32_t default_timeout_s) {
  Body body(json);
  wire::SandboxCreateRequest request;
  request.template_name = body.fields.required_text("templateID");
  request.timeout_s = body.seconds("timeout", kMaxTimeoutSeconds).value_or(default_timeout_s);
  request.metadata = body.fields.text_map("metadata");
  request.envs = read_variables(body);
  const bool pauses = body.boolean("autoPause").value_or(false);
  request.on_timeout = pauses ? wire::TimeoutAction::kPause : wire::TimeoutAction::kKill;
  // Either choice holds: there is no egress yet, and the answer says so (`space.egress`).
  static_cast<void>(body.boolean("allow_internet_access"));
  body.only("secure", true);
  body.only("autoPauseMemory", true);
  body.auto_resume();
  for (const auto* name : {"network", "mcp", "iam", "volumeMounts"}) body.absent(name);
  return body.result(std::move(request));
}

Result<std::uint32_t> read_timeout(const Json& json) {
  Body body(json);
  const auto seconds = body.seconds("timeout", kMaxTimeoutSeconds);
  if (!seconds) body.fields.refuse("timeout", "is needed");
  return body.result(seconds.value_or(0));
}

Result<std::uint32_t> read_refresh(const Json& json) {
  Body body(json);
  return body.result(body.seconds("duration", kMaxRefreshSeconds).value_or(kShortTimeout));
}

Result<void> read_pause(const Json& json) {
  Body body(json);
  body.only("memory", true);
  body.only("requireHealthyGuest", false);
  return body.result();
}

Result<void> read_nothing(const Json& json) { return Body(json).result(); }

Result<Resume> read_connect(const Json& json) {
  Body body(json);
  Resume resume;
  resume.timeout_s = body.seconds("timeout", kMaxTimeoutSeconds);
  body.only("memory", true);
  return body.result(resume);
}

Result<Resume> read_resume(const Json& json) {
  Body body(json);
  Resume resume;
  resume.timeout_s = body.seconds("timeout", kMaxTimeoutSeconds).value_or(kShortTimeout);
  resume.auto_pause = body.boolean("autoPause");
  body.only("memory", true);
  return body.result(resume);
}

std::expected<std::map<std::string, std::string>, std::string> read_metadata(
    std::string_view parameter) {
  const auto pairs = wire::parse_query(parameter);
  if (!pairs)
    return std::unexpected("must be pairs key=value parted by '&', each side URL-encoded");
  const auto decoded = [](const std::string& text) { return percent_decode(text).value_or(text); };
  std::map<std::string, std::string> filter;
  for (const auto& [key, value] : *pairs) {
    if (!filter.emplace(decoded(key), decoded(value)).second) {
      return std::unexpected("names a key twice");
    }
  }
  return filter;
}

Result<wire::SandboxListRequest> read_list(Query& query) {
  wire::SandboxListRequest request;
  request.states = read_states(query);
  request.metadata = read_metadata_of(query);
  request.template_name = query.text("template").value_or("");
  if (const auto text = query.text("startedAfter")) {
    const auto time = parse_time(*text);
    if (!time) query.refuse("startedAfter", "must be an RFC 3339 time");
    // The API's filter includes the time itself.
    if (time) request.started_after = *time - std::chrono::milliseconds(1);
  }
  const auto order = query.text("order").value_or("desc");
  request.newest_first = order != "asc";
  if (order != "desc" && order != "asc") {
    query.refuse("order", "must be \"asc\" or \"desc\"");
  }
  const auto limit = query.number("limit", kMaxPage).value_or(kMaxPage);
  if (limit == 0) query.refuse("limit", "must be 1 to 100");
  request.limit = static_cast<std::uint32_t>(limit);
  request.cursor = query.text("nextToken").value_or("");
  return list_result(query, std::move(request));
}

Result<wire::SandboxListRequest> read_running_list(Query& query) {
  wire::SandboxListRequest request;
  request.states.assign(kAsRunning.begin(), kAsRunning.end());
  request.metadata = read_metadata_of(query);
  return list_result(query, std::move(request));
}

std::optional<std::string_view> state_text(SandboxState state) {
  const auto in = [state](const auto& states) {
    return std::ranges::find(states, state) != states.end();
  };
  if (in(kAsRunning)) return "running";
  if (in(kAsPaused)) return "paused";
  return std::nullopt;
}

Json sandbox(const wire::SandboxInfo& info, const std::string& domain) {
  auto out = identity_of(info);
  out.emplace("trafficAccessToken", nullptr);
  add_access(out, info, domain);
  return out;
}

Json listed_sandbox(const wire::SandboxInfo& info) { return listed(info); }

Json sandbox_detail(const wire::SandboxInfo& info, const std::string& domain) {
  auto out = listed(info);
  add_access(out, info, domain);
  out.emplace("allowInternetAccess", false);
  const bool pauses = info.on_timeout == wire::TimeoutAction::kPause;
  out.emplace("lifecycle",
              Json::Object{{"onTimeout", pauses ? "pause" : "kill"}, {"autoResume", false}});
  return out;
}

}  // namespace space::node_api::e2b
