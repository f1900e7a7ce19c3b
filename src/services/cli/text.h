#pragma once
#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace space::cli {

// The member `key` as text for people: strings without quotes, null and absent as "-". Control
// characters become '?', since names and metadata are other people's and must not drive a terminal.
std::string shown(const boost::json::value& object, std::string_view key);
std::string printable(std::string_view text);
// Rows of equal length as columns, two spaces apart, each line ended.
std::string columns(const std::vector<std::vector<std::string>>& rows);
// The member `key` when `object` is an object that has it, else null.
const boost::json::value& member(const boost::json::value& object, std::string_view key);
// The member `key` when it is a string, else empty.
std::string text_of(const boost::json::value& object, std::string_view key);

// What `cp` was given: `ID:PATH`, or a local path. A colon after a slash belongs to a local path.
struct Place {
  std::string sandbox;  // empty: local
  std::string path;
};
Place parse_place(std::string_view text);
// The last component of `path`.
std::string base_name(std::string_view path);

}  // namespace space::cli
