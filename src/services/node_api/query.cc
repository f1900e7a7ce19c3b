#include "services/node_api/query.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/json.h"

namespace space::node_api {

std::optional<std::string> Query::text(const std::string& name) {
  const auto [first, last] = pairs_.equal_range(name);
  if (first == last) return std::nullopt;
  if (std::next(first) != last) refuse(name, "is given twice");
  auto value = first->second;
  pairs_.erase(first, last);
  return value;
}

std::string Query::path() {
  auto value = text("path").value_or("");
  if (!wire::is_guest_path(value)) refuse("path", "is needed: 1 to 4096 bytes, no NUL");
  return value;
}

std::string Query::user() {
  auto value = text("user").value_or("");
  if (value.find(':') != std::string::npos) refuse("user", "must not contain ':'");
  return value;
}

std::optional<std::uint64_t> Query::number(const std::string& name, std::uint64_t max) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_decimal(*value);
  if (!number || *number > max) {
    refuse(name, "must be a decimal number up to " + std::to_string(max));
    return std::nullopt;
  }
  return number;
}

bool Query::flag(const std::string& name) {
  const auto value = text(name);
  if (!value || *value == "false") return false;
  if (*value != "true") refuse(name, "must be true or false");
  return true;
}

std::optional<std::uint32_t> Query::mode(const std::string& name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  std::uint32_t bits = 0;
  const bool octal = !value->empty() && value->size() <= 5 &&
                     std::ranges::all_of(*value, [](char c) { return c >= '0' && c <= '7'; });
  if (octal) {
    for (const char c : *value) bits = bits * 8 + static_cast<std::uint32_t>(c - '0');
  }
  if (!octal || bits > 07777) {
    refuse(name, "must be permission bits in octal, up to 7777");
    return std::nullopt;
  }
  return bits;
}

void Query::refuse(const std::string& name, const std::string& problem) {
  if (!error_) error_ = "parameter " + Json(name).text() + " " + problem;
}

std::optional<std::string> Query::error() {
  if (!pairs_.empty()) refuse(pairs_.begin()->first, "is unknown");
  return error_;
}

}  // namespace space::node_api
