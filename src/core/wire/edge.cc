#include "core/wire/edge.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace space::wire {
namespace {

using Problem = std::unexpected<std::string_view>;

std::optional<std::uint16_t> parse_port(std::string_view text) {
  const auto number = parse_decimal(text);
  if (!number || *number == 0 || *number > UINT16_MAX) return std::nullopt;
  return static_cast<std::uint16_t>(*number);
}

bool is_address(int family, std::string_view text) {
  std::array<char, INET6_ADDRSTRLEN> copy{};
  if (text.size() >= copy.size() || text.contains('\0')) return false;
  std::ranges::copy(text, copy.begin());
  in6_addr address{};
  return ::inet_pton(family, copy.data(), &address) == 1;
}

// A Host value without its port and trailing dot, in lower case.
struct HostName {
  std::string name;
  bool is_ip = false;
};

std::optional<HostName> parse_host(std::string_view host) {
  HostName out;
  std::string_view rest;  // from the port's colon on
  if (host.starts_with('[')) {
    const auto close = host.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    if (!is_address(AF_INET6, host.substr(1, close - 1))) return std::nullopt;
    out.is_ip = true;
    rest = host.substr(close + 1);
  } else if (is_address(AF_INET6, host)) {
    out.is_ip = true;
  } else {
    const auto end = std::min(host.find(':'), host.size());
    auto name = host.substr(0, end);
    rest = host.substr(end);
    out.is_ip = is_address(AF_INET, name);
    if (!out.is_ip && name.ends_with('.')) name.remove_suffix(1);
    for (const char c : name) out.name += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    if (out.name.empty()) return std::nullopt;
  }
  if (!rest.empty() && (rest.front() != ':' || !parse_port(rest.substr(1)))) return std::nullopt;
  return out;
}

bool is_platform(const HostName& host, const EdgeNames& names) {
  if (host.is_ip || host.name == "localhost") return true;
  const auto& extra = names.extra_hosts;
  if (std::ranges::find(extra, host.name) != extra.end()) return true;
  if (names.domain.empty()) return false;
  return host.name == names.domain || host.name == "api." + names.domain ||
         host.name == "sandbox." + names.domain;
}

// What `<port>-<sandbox>.<domain>` names.
std::expected<EdgeTarget, std::string_view> parse_name(std::string_view name,
                                                       std::string_view domain) {
  const bool ours = !domain.empty() && name.size() > domain.size() && name.ends_with(domain) &&
                    name[name.size() - domain.size() - 1] == '.';
  if (!ours) return Problem("the Host is none of this platform's names");
  const auto label = name.substr(0, name.size() - domain.size() - 1);
  const auto dash = label.find('-');
  if (dash == std::string_view::npos) return Problem("the Host is none of this platform's names");
  const auto port = parse_port(label.substr(0, dash));
  if (!port) return Problem("the Host names no port from 1 to 65535");
  auto sandbox = identity::SandboxId::parse(label.substr(dash + 1));
  if (!sandbox) return Problem("the Host names no sandbox");
  return EdgeTarget{std::move(sandbox), *port};
}

// What the routing headers name; the platform when there are none.
std::expected<EdgeTarget, std::string_view> parse_headers(const EdgeAddress& address) {
  if (address.sandbox_ids.size() > 1) return Problem("E2b-Sandbox-Id is given twice");
  if (address.sandbox_ports.size() > 1) return Problem("E2b-Sandbox-Port is given twice");
  if (address.sandbox_ids.empty() && address.sandbox_ports.empty()) return EdgeTarget{};
  if (address.sandbox_ports.empty()) return Problem("E2b-Sandbox-Id without E2b-Sandbox-Port");
  if (address.sandbox_ids.empty()) return Problem("E2b-Sandbox-Port without E2b-Sandbox-Id");
  const auto port = parse_port(address.sandbox_ports.front());
  if (!port) return Problem("E2b-Sandbox-Port is no port from 1 to 65535");
  auto sandbox = identity::SandboxId::parse(address.sandbox_ids.front());
  if (!sandbox) return Problem("E2b-Sandbox-Id can be no sandbox's id");
  return EdgeTarget{std::move(sandbox), *port};
}

}  // namespace

std::expected<EdgeTarget, std::string_view> edge_target(const EdgeAddress& address,
                                                        const EdgeNames& names) {
  if (address.hosts.empty()) return Problem("there is no Host");
  if (address.hosts.size() > 1) return Problem("Host is given twice");
  const auto host = parse_host(address.hosts.front());
  if (!host) return Problem("the Host is malformed");
  auto by_headers = parse_headers(address);
  if (!by_headers || is_platform(*host, names)) return by_headers;
  auto by_name = parse_name(host->name, names.domain);
  if (by_name && by_headers->sandbox && *by_headers != *by_name) {
    return Problem("the Host and the E2b-Sandbox headers name different targets");
  }
  return by_name;
}

}  // namespace space::wire
