#include "adapters/http/head_check.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace space::http {
namespace {

bool is_token_char(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kOthers.find(c) != std::string_view::npos;
}

std::optional<std::string_view> check_request_line(std::string_view line) {
  for (const char c : line) {
    if (c < 0x20 || c > 0x7e) return "a byte in the request line that is not printable ASCII";
  }
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || line.find(' ', first + 1) != last ||
      first == 0 || last == first + 1) {
    return "a request line that is not METHOD TARGET VERSION";
  }
  return std::nullopt;
}

std::optional<std::string_view> check_header_line(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') return "a folded header line";
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return "a header line without a name";
  for (const char c : line.substr(0, colon)) {
    if (!is_token_char(c)) return "a header name that is no token";
  }
  for (const char c : line.substr(colon + 1)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) return "a control character in a header";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> check_raw_head(std::string_view head) {
  bool request_line = true;
  while (!head.empty()) {
    const auto end = head.find_first_of("\r\n");
    if (end == std::string_view::npos || head.substr(end, 2) != "\r\n") {
      return "a line that does not end with CR LF";
    }
    const auto line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (std::exchange(request_line, false)) {
      if (const auto problem = check_request_line(line)) return problem;
    } else if (line.empty()) {
      return head.empty() ? std::nullopt : std::optional<std::string_view>("bytes after the head");
    } else if (const auto problem = check_header_line(line)) {
      return problem;
    }
  }
  return "a head that does not end";
}

std::optional<std::string_view> check_framing(const HttpHeaders& headers) {
  if (count_headers(headers, "host") != 1) return "not exactly one Host header";
  const auto lengths = count_headers(headers, "content-length");
  const auto encodings = count_headers(headers, "transfer-encoding");
  if (lengths > 1) return "more than one Content-Length";
  if (encodings > 1) return "more than one Transfer-Encoding";
  if (lengths + encodings > 1) return "both Content-Length and Transfer-Encoding";
  if (lengths == 1 && !parse_decimal(*single_header(headers, "content-length"))) {
    return "a Content-Length that is not a decimal number";
  }
  if (encodings == 1) {
    const auto value = *single_header(headers, "transfer-encoding");
    const bool chunked = std::ranges::equal(value, std::string_view("chunked"), [](char a, char b) {
      return std::tolower(static_cast<unsigned char>(a)) == b;
    });
    if (!chunked) return "a Transfer-Encoding that is not chunked";
  }
  return std::nullopt;
}

}  // namespace space::http
