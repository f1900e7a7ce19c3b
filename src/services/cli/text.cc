#include "services/cli/text.h"

#include <algorithm>
#include <boost/json.hpp>

namespace space::cli {

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return out;
}

const boost::json::value& member(const boost::json::value& object, std::string_view key) {
  static const boost::json::value null;
  if (!object.is_object()) return null;
  const boost::json::value* found = object.get_object().if_contains(key);
  return found == nullptr ? null : *found;
}

std::string text_of(const boost::json::value& object, std::string_view key) {
  const boost::json::value& value = member(object, key);
  if (!value.is_string()) return {};
  return {value.get_string().data(), value.get_string().size()};
}

std::string shown(const boost::json::value& object, std::string_view key) {
  const boost::json::value& value = member(object, key);
  if (value.is_string()) {
    const std::string text = text_of(object, key);
    return text.empty() ? "-" : printable(text);
  }
  if (value.is_null() || (value.is_object() && value.get_object().empty())) return "-";
  return printable(boost::json::serialize(value));
}

std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += row[i];
      if (i + 1 < row.size()) out.append(widths[i] - row[i].size() + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

Place parse_place(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::size_t slash = text.find('/');
  if (colon == std::string_view::npos || colon == 0 || slash < colon) {
    return {.sandbox = {}, .path = std::string(text)};
  }
  return {.sandbox = std::string(text.substr(0, colon)),
          .path = std::string(text.substr(colon + 1))};
}

std::string base_name(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace space::cli
