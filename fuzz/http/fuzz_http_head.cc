// A head from a hostile client or server: where its end is does not depend on how the bytes arrive,
// and one that passes has a single reading, without the bytes that let two parsers disagree (C075,
// P-33).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/http/head.h"
#include "base/check.h"
#include "base/text.h"

using namespace space;

namespace {

// Whether the head is what its headers say, written out in the plainest way.
void check_headers(const HttpHeaders& headers, std::string_view head) {
  SPACE_ASSERT(headers.size() <= http::kMaxHeaderLines);
  const auto lines = std::ranges::count(head, '\n');
  SPACE_ASSERT(lines == std::ranges::count(head, '\r'));
  SPACE_ASSERT(lines == static_cast<std::ptrdiff_t>(headers.size()) + 2);
  for (const auto& header : headers) {
    SPACE_ASSERT(!header.name.empty() && !header.value.starts_with(' '));
    for (const char c : header.name) SPACE_ASSERT(c > ' ' && c <= '~' && (c < 'A' || c > 'Z'));
    for (const char c : header.value) {
      const auto byte = static_cast<unsigned char>(c);
      SPACE_ASSERT(byte >= 0x20 && byte != 0x7f);
    }
  }
  SPACE_ASSERT(
      count_headers(headers, "content-length") + count_headers(headers, "transfer-encoding") <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = as_text(std::as_bytes(std::span(data, size)));
  const auto whole = http::HeadEnd().find(bytes);
  http::HeadEnd pieces;
  std::optional<std::size_t> end;
  bool bad = false;
  for (std::size_t at = 1; at <= size && !end && !bad; ++at) {
    const auto found = pieces.find(bytes.substr(0, at));
    if (found) {
      end = *found;
    } else {
      bad = true;
    }
  }
  SPACE_ASSERT(bad == !whole);
  if (whole) SPACE_ASSERT(end == *whole);

  const auto head = bytes.substr(0, end.value_or(size));
  if (const auto request = http::parse_request_head(head)) {
    SPACE_ASSERT(end == head.size());
    const auto& r = request->request;
    check_headers(r.headers, head);
    SPACE_ASSERT(count_headers(r.headers, "host") == 1);
    SPACE_ASSERT(r.path.starts_with('/') && !r.path.contains('?'));
    const auto target = r.path + (r.query.empty() ? "" : "?" + r.query);
    SPACE_ASSERT(head.starts_with(r.method + " " + target));
    SPACE_ASSERT(r.has_body ==
                 (r.content_length.value_or(count_headers(r.headers, "transfer-encoding")) > 0));
  }
  if (const auto response = http::parse_response_head(head)) {
    SPACE_ASSERT(end == head.size());
    check_headers(response->head.headers, head);
    SPACE_ASSERT(response->head.status >= 100 && response->head.status != 101);
    SPACE_ASSERT(!response->chunked || response->length == 0);
  }
  return 0;
}
