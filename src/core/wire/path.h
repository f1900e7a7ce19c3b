#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The one reading of a request target (C082): what these return is both what is checked and what is
// used; nothing decodes it again.
namespace space::wire {

// The segments of a raw target path (without query), each percent-decoded exactly once; "/" has
// none. Refused (nullopt): a path that does not begin with '/', empty segments (so "//" and a
// trailing '/'),
// "." and "..", bad escapes, bytes outside printable ASCII that are not escaped, and decoded '/',
// '\\', ';',
// '%' and control characters.
std::optional<std::vector<std::string>> canonical_segments(std::string_view raw_target_path);

// The pairs of a raw query (without '?'), keys and values decoded exactly once, '+' as space.
// Duplicates are kept, in order, for the caller to refuse. The empty query has no pairs. Refused
// (nullopt): a pair without '=' or with an empty key, empty pairs, bad escapes, NUL, unescaped
// bytes outside printable ASCII.
std::optional<std::multimap<std::string, std::string>> parse_query(std::string_view raw_query);

// A path in the guest's file system as a typed record may carry it: 1..kMaxPathBytes bytes, no NUL.
bool is_guest_path(std::string_view path);

}  // namespace space::wire
