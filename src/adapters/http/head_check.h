#pragma once
#include <optional>
#include <string_view>

#include "ports/http.h"

// Checks of a request's head that come on top of the parser's (C075). Pure.
namespace space::http {

// What is wrong with the raw bytes of a head, from the request line to its empty line: bare CR or
// LF, control characters, obs-fold, a header name that is no token (so no space before the colon),
// a request line that is not three parts with single spaces. Nullopt when nothing is.
std::optional<std::string_view> check_raw_head(std::string_view head);

// What is wrong with the framing and addressing headers: not exactly one Host, Content-Length and
// Transfer-Encoding together, more than one of either, a length that is not plain decimal, an
// encoding that is not exactly "chunked". Nullopt when nothing is. `headers` with lower-case names.
std::optional<std::string_view> check_framing(const HttpHeaders& headers);

}  // namespace space::http
