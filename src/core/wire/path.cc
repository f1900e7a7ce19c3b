#include "core/wire/path.h"

#include <algorithm>

#include "base/text.h"
#include "core/wire/messages.h"

namespace space::wire {
namespace {

// Whether every byte may stand in a request target as it is.
bool is_printable(std::string_view raw) {
  return std::ranges::all_of(raw, [](char c) { return c > ' ' && c < '\x7f'; });
}

// A segment with one meaning for every reader, however often it decodes.
bool is_plain(std::string_view segment) {
  if (segment.empty() || segment == "." || segment == "..") return false;
  return std::ranges::none_of(segment, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < ' ' || byte == 0x7f || c == '/' || c == '\\' || c == ';' || c == '%';
  });
}

// Calls `part` for each piece between separators, until one returns false.
bool each_part(std::string_view text, char separator, auto part) {
  for (;;) {
    const auto end = text.find(separator);
    if (!part(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::string> decode_form(std::string_view raw) {
  std::string spaced(raw);
  std::ranges::replace(spaced, '+', ' ');
  return percent_decode(spaced);
}

}  // namespace

std::optional<std::vector<std::string>> canonical_segments(std::string_view raw_target_path) {
  if (!raw_target_path.starts_with('/') || !is_printable(raw_target_path)) return std::nullopt;
  std::vector<std::string> segments;
  if (raw_target_path == "/") return segments;
  const bool legal = each_part(raw_target_path.substr(1), '/', [&](std::string_view raw) {
    auto segment = percent_decode(raw);
    if (!segment || !is_plain(*segment)) return false;
    segments.push_back(*std::move(segment));
    return true;
  });
  if (!legal) return std::nullopt;
  return segments;
}

std::optional<std::multimap<std::string, std::string>> parse_query(std::string_view raw_query) {
  std::multimap<std::string, std::string> pairs;
  if (raw_query.empty()) return pairs;
  if (!is_printable(raw_query)) return std::nullopt;
  const bool legal = each_part(raw_query, '&', [&](std::string_view raw) {
    const auto equals = raw.find('=');
    if (equals == std::string_view::npos || equals == 0) return false;
    auto key = decode_form(raw.substr(0, equals));
    auto value = decode_form(raw.substr(equals + 1));
    if (!key || !value) return false;
    pairs.emplace(*std::move(key), *std::move(value));
    return true;
  });
  if (!legal) return std::nullopt;
  return pairs;
}

bool is_guest_path(std::string_view path) {
  return !path.empty() && path.size() <= kMaxPathBytes && !path.contains('\0');
}

}  // namespace space::wire
