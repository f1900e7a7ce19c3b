#include "adapters/http/head.h"

#include <algorithm>

#include "base/text.h"

namespace space::http {
namespace {

constexpr std::string_view kVersion = "HTTP/1.1";
constexpr std::size_t kMaxMethodBytes = 32;

std::unexpected<HeadError> malformed(std::string_view message) {
  return std::unexpected(HeadError{400, message});
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_token_char(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kOthers.contains(c);
}

bool is_text(std::string_view bytes) {
  return std::ranges::none_of(bytes, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

bool is_word(std::string_view text, std::string_view lower_case) {
  return std::ranges::equal(text, lower_case, [](char a, char b) { return lower(a) == b; });
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Takes the line that `rest` begins with, without its end.
std::optional<std::string_view> take_line(std::string_view& rest) {
  const auto end = rest.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const auto line = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return line;
}

// The header lines up to the empty one, which ends the head.
std::expected<HttpHeaders, HeadError> parse_fields(std::string_view rest) {
  HttpHeaders headers;
  for (;;) {
    const auto line = take_line(rest);
    if (!line) return malformed("the head does not end");
    if (line->empty()) break;
    if (headers.size() == kMaxHeaderLines) {
      return std::unexpected(HeadError{431, "the head has more than 256 header lines"});
    }
    if (!is_text(*line)) return malformed("a control character in a header");
    if (line->front() == ' ') return malformed("a folded header line");
    const auto colon = line->find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return malformed("a header line without a name");
    }
    HttpHeader header;
    header.name = line->substr(0, colon);
    if (!std::ranges::all_of(header.name, is_token_char)) {
      return malformed("a header name that is no token");
    }
    std::ranges::transform(header.name, header.name.begin(), lower);
    header.value = trimmed(line->substr(colon + 1));
    headers.push_back(std::move(header));
  }
  if (!rest.empty()) return malformed("bytes after the head");
  return headers;
}

struct Framing {
  bool chunked = false;
  std::optional<std::uint64_t> length;
};

std::expected<Framing, HeadError> parse_framing(const HttpHeaders& headers) {
  const auto lengths = count_headers(headers, "content-length");
  const auto codings = count_headers(headers, "transfer-encoding");
  if (lengths > 1) return malformed("more than one Content-Length");
  if (codings > 1) return malformed("more than one Transfer-Encoding");
  if (lengths + codings > 1) return malformed("both Content-Length and Transfer-Encoding");
  Framing framing;
  if (lengths == 1) {
    framing.length = parse_decimal(*single_header(headers, "content-length"));
    if (!framing.length || *framing.length > INT64_MAX) {
      return malformed("a Content-Length that is not a decimal number below 2^63");
    }
  }
  if (codings == 1) {
    framing.chunked = is_word(*single_header(headers, "transfer-encoding"), "chunked");
    if (!framing.chunked) return malformed("a Transfer-Encoding that is not chunked");
  }
  return framing;
}

bool asks_to_close(const HttpHeaders& headers) {
  for (const auto& header : headers) {
    if (header.name != "connection") continue;
    std::string_view rest = header.value;
    while (!rest.empty()) {
      const auto item = rest.substr(0, rest.find(','));
      if (is_word(trimmed(item), "close")) return true;
      rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    }
  }
  return false;
}

}  // namespace

std::expected<std::optional<std::size_t>, HeadError> HeadEnd::find(std::string_view bytes) {
  for (;;) {
    const auto at = bytes.find('\n', seen_);
    if (at == std::string_view::npos) break;
    seen_ = at + 1;
    const auto line = bytes.substr(0, seen_);
    if (!line.ends_with("\r\n")) return malformed("a line that does not end with CR LF");
    if (line.size() == 2) return malformed("an empty line before the first one");
    if (line.ends_with("\r\n\r\n")) return seen_;
  }
  seen_ = bytes.size();
  return std::nullopt;
}

std::expected<RequestHead, HeadError> parse_request_head(std::string_view head) {
  auto rest = head;
  const auto line = take_line(rest);
  if (!line) return malformed("the head does not end");
  const bool printable = std::ranges::all_of(*line, [](char c) { return c >= ' ' && c <= '~'; });
  if (!printable) return malformed("a byte in the request line that is not printable ASCII");
  const auto first = line->find(' ');
  const auto last = line->rfind(' ');
  if (first == last || line->find(' ', first + 1) != last) {
    return malformed("a request line that is not METHOD TARGET VERSION");
  }
  const auto method = line->substr(0, first);
  const auto target = line->substr(first + 1, last - first - 1);
  const auto version = line->substr(last + 1);
  const bool is_method =
      !method.empty() && method.size() <= kMaxMethodBytes &&
      std::ranges::all_of(method, [](char c) { return (c >= 'A' && c <= 'Z') || c == '-'; });
  if (!is_method) return malformed("a method that is no word in upper case");
  const bool is_version = version.size() == kVersion.size() && version.starts_with("HTTP/") &&
                          is_digit(version[5]) && version[6] == '.' && is_digit(version[7]);
  if (!is_version) return malformed("a version that is not HTTP/1.1");
  if (version != kVersion) return std::unexpected(HeadError{505, "HTTP/1.1 is needed"});
  if (!target.starts_with('/') || target.contains('#')) {
    return malformed("a target that is not a path");
  }

  RequestHead out;
  auto& request = out.request;
  request.method = method;
  const auto question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  auto headers = parse_fields(rest);
  if (!headers) return std::unexpected(headers.error());
  request.headers = std::move(*headers);
  if (count_headers(request.headers, "host") != 1) return malformed("not exactly one Host header");
  const auto framing = parse_framing(request.headers);
  if (!framing) return std::unexpected(framing.error());
  request.content_length = framing->length;
  request.has_body = framing->chunked || framing->length.value_or(0) > 0;
  out.keep_alive = !asks_to_close(request.headers);
  if (count_headers(request.headers, "expect") > 0) {
    const auto expected = single_header(request.headers, "expect");
    if (!expected || !is_word(*expected, "100-continue")) {
      return std::unexpected(HeadError{417, "an expectation other than 100-continue"});
    }
    out.expects_continue = request.has_body;
  }
  return out;
}

std::expected<ResponseHead, HeadError> parse_response_head(std::string_view head) {
  auto rest = head;
  const auto line = take_line(rest);
  if (!line) return malformed("the head does not end");
  constexpr std::size_t kReasonAt = kVersion.size() + 5;  // "HTTP/1.1 200 "
  const bool shaped = line->size() >= kReasonAt && line->starts_with(kVersion) &&
                      (*line)[8] == ' ' && (*line)[12] == ' ' && is_text(*line);
  if (!shaped) return malformed("a status line that is not HTTP/1.1 STATUS REASON");
  const auto status = parse_decimal(line->substr(9, 3));
  if (!status || *status < 100 || *status > 599) return malformed("a status that is none");
  if (*status == 101) return malformed("a switch of protocols that nobody asked for");

  ResponseHead out;
  out.head.status = static_cast<unsigned>(*status);
  auto headers = parse_fields(rest);
  if (!headers) return std::unexpected(headers.error());
  out.head.headers = std::move(*headers);
  const auto framing = parse_framing(out.head.headers);
  if (!framing) return std::unexpected(framing.error());
  const bool bodyless = *status < 200 || *status == 204 || *status == 304;
  if (bodyless) {
    if (framing->chunked || (*status != 304 && framing->length.value_or(0) != 0)) {
      return malformed("a body where none may be");
    }
    return out;
  }
  if (!framing->chunked && !framing->length) return malformed("a body without length or chunks");
  out.chunked = framing->chunked;
  out.length = framing->length.value_or(0);
  return out;
}

}  // namespace space::http
