#pragma once
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/wire/messages.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"
#include "services/node_api/query.h"

// The forms of the E2B control API (docs/e2b.md), read from requests and written to answers. Every
// field that the API knows is used, or refused by name when it asks for something (C108); any other
// field is an error.
namespace space::node_api::e2b {

inline constexpr std::string_view kSupportedSdks = "npm e2b 2.45 to 2.51 and PyPI e2b 2.63";
// The agent's API whose every gate is met (E2B.md 1.2).
inline constexpr std::string_view kEnvdVersion = "0.5.2";
inline constexpr std::uint32_t kMaxTimeoutSeconds = 86'400;

// kUnsupported: "<what> is not supported by SPACE yet".
Failure unsupported(std::string reason, const std::string& what);

// ---- bodies ----

// Of creation; `default_timeout_s` differs between the two generations of the wire.
Result<wire::SandboxCreateRequest> read_create(const Json& body, std::uint32_t default_timeout_s);
Result<std::uint32_t> read_timeout(const Json& body);
Result<std::uint32_t> read_refresh(const Json& body);
Result<void> read_pause(const Json& body);
// A body without fields.
Result<void> read_nothing(const Json& body);

struct Resume {
  std::optional<std::uint32_t> timeout_s;
  std::optional<bool> auto_pause;  // what the sandbox must do at its timeout already
};
Result<Resume> read_connect(const Json& body);  // without autoPause
Result<Resume> read_resume(const Json& body);

// ---- queries ----

// The pairs of the `metadata` parameter, whose value the query's reader has decoded once. Each key
// and value is decoded twice more, for so the SDKs encode them (C109). One that holds no valid
// escapes after the first of these was encoded once only, and stays as it is then.
std::expected<std::map<std::string, std::string>, std::string> read_metadata(
    std::string_view parameter);
// Of GET /v2/sandboxes.
Result<wire::SandboxListRequest> read_list(Query& query);
// Of GET /sandboxes: the running ones.
Result<wire::SandboxListRequest> read_running_list(Query& query);

// ---- objects ----

// "running" or "paused", all the API knows; nullopt for a sandbox it does not show any more.
std::optional<std::string_view> state_text(wire::SandboxState state);

// `domain` is where the sandbox's traffic goes; empty: null.
Json sandbox(const wire::SandboxInfo& info, const std::string& domain);
// Of a sandbox that has a state in the API.
Json listed_sandbox(const wire::SandboxInfo& info);
Json sandbox_detail(const wire::SandboxInfo& info, const std::string& domain);

}  // namespace space::node_api::e2b
