#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace space::node_api {

// What a path binds of a route's variables; empty where the route has none.
struct Bound {
  std::string sandbox;
  std::string pid;
};

// Whether the segments (wire::canonical_segments) are those of the pattern, and what they bind.
// A pattern is segments parted by '/': "{id}" binds a sandbox, "{pid}" a process, "*" stands for
// any one segment.
std::optional<Bound> match(std::string_view pattern, std::span<const std::string> segments);

// The entry of a face's table that serves a request. Entry has `method` and `pattern`; the first
// that matches serves.
template <class Entry>
struct Found {
  const Entry* entry = nullptr;
  Bound bound;
  std::string allowed;  // without an entry: the methods the path takes; empty: no such path
};
template <class Entry>
Found<Entry> find_route(std::span<const Entry> table, std::string_view method,
                        std::span<const std::string> segments) {
  Found<Entry> found;
  for (const auto& entry : table) {
    auto matched = match(entry.pattern, segments);
    if (!matched) continue;
    if (entry.method == method) return {&entry, *std::move(matched), {}};
    found.allowed += (found.allowed.empty() ? "" : ", ") + std::string(entry.method);
  }
  return found;
}

}  // namespace space::node_api
