#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/wire/messages.h"
#include "services/node_api/gateway.h"
#include "services/node_api/json.h"

// The JSON forms of the typed records (docs/api.md).
namespace space::node_api {

// RFC 3339 in UTC with milliseconds. Times outside the years 0-9999 are cut to that range.
std::string time_text(WallTime time);
// The time an RFC 3339 text names ("2025-03-01T12:00:00.5+01:00"), rounded up to milliseconds.
std::optional<WallTime> parse_time(std::string_view text);
// "<sandbox>.<generation>@<worker>": an execution, as X-Space-Execution carries it.
std::string execution_text(const identity::RouteIdentity& route);

Json to_json(const wire::SandboxInfo& info);
Json to_json(const wire::SandboxRouteResult& result);
Json to_json(const wire::PlatformStatusResult& result);
Json to_json(const wire::FileEntry& entry);
Json to_json(const wire::ProcessInfo& info);
Json to_json(const wire::ProcessEvent& event);
Json to_json(const Counters& counters);
// What a capability says; nothing that could be presented (no signature, no canonical bytes).
Json to_json(const identity::Claims& claims);

}  // namespace space::node_api
