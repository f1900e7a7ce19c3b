#pragma once
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/identity/ids.h"

// Which door of the public edge a request knocks at (P-31, C080). Pure: decided from the bytes of
// one request alone, anew for each request of a connection, before any look-up.
namespace space::wire {

// The port under which the agent of a sandbox is addressed (E2B.md 1.2).
inline constexpr std::uint16_t kAgentPort = 49'983;

// What of a request's head says where it goes. A header that occurs twice is said twice.
struct EdgeAddress {
  std::span<const std::string_view> hosts;          // Host
  std::span<const std::string_view> sandbox_ids;    // E2b-Sandbox-Id
  std::span<const std::string_view> sandbox_ports;  // E2b-Sandbox-Port
};

// The names this edge answers to. `<port>-<sandbox>.<domain>` names a sandbox; `<domain>`,
// `api.<domain>`, `sandbox.<domain>`, `localhost`, IP literals and `extra_hosts` name the platform,
// and leave it to the headers whether a sandbox is meant. Lower-case, without port and trailing
// dot.
struct EdgeNames {
  std::string domain;  // empty: no wildcard names
  std::vector<std::string> extra_hosts;
};

// The platform itself when `sandbox` is absent.
struct EdgeTarget {
  std::optional<identity::SandboxId> sandbox;
  std::uint16_t port = kAgentPort;
  friend bool operator==(const EdgeTarget&, const EdgeTarget&) = default;
};

// The target, or what is wrong in one sentence for a 400: no or two hosts, a name that is not ours,
// a header that occurs twice, headers that disagree with the host name, half of the headers, a
// port that is no decimal number of 1..65535 without leading zero, an id that can be no sandbox's.
// Never says whether a sandbox exists (C023).
std::expected<EdgeTarget, std::string_view> edge_target(const EdgeAddress& address,
                                                        const EdgeNames& names);

}  // namespace space::wire
