#include "services/node_api/routes.h"

namespace space::node_api {

std::optional<Bound> match(std::string_view pattern, std::span<const std::string> segments) {
  Bound bound;
  for (const auto& segment : segments) {
    if (pattern.empty()) return std::nullopt;
    const auto slash = pattern.find('/');
    const auto part = pattern.substr(0, slash);
    pattern.remove_prefix(slash == std::string_view::npos ? pattern.size() : slash + 1);
    if (part == "{id}") {
      bound.sandbox = segment;
    } else if (part == "{pid}") {
      bound.pid = segment;
    } else if (part != "*" && part != segment) {
      return std::nullopt;
    }
  }
  if (!pattern.empty()) return std::nullopt;
  return bound;
}

}  // namespace space::node_api
