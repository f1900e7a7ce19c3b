#pragma once
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string_view>

#include "ports/http.h"

// The one strict reading of HTTP/1.1 heads, of clients and of servers alike (C075, P-33). Pure.
// Refused, where two parsers could read differently: lines not ended by CR LF, control characters
// (tabs too), folded lines, names that are no token (so no space before the colon), lengths that
// are not plain decimal or are given twice, a transfer coding other than exactly "chunked", a
// length together with chunks.
namespace space::http {

inline constexpr std::size_t kMaxHeaderLines = 256;

struct HeadError {
  unsigned status;           // for the client that sent the head
  std::string_view message;  // what is wrong; static
};

// Finds the end of a head whose bytes arrive in pieces, each byte looked at once.
class HeadEnd {
 public:
  // `bytes`: from the head's beginning, all that has arrived. The head's length once it is whole;
  // an error for a line that can't become a proper one any more.
  std::expected<std::optional<std::size_t>, HeadError> find(std::string_view bytes);

 private:
  std::size_t seen_ = 0;
};

struct RequestHead {
  HttpRequest request;
  bool keep_alive = true;
  bool expects_continue = false;
};
// `head`: from the request line to the empty line. Only HTTP/1.1, exactly one Host, a target that
// is a path, and no expectation but 100-continue.
std::expected<RequestHead, HeadError> parse_request_head(std::string_view head);

struct ResponseHead {
  HttpResponseHead head;
  bool chunked = false;
  std::uint64_t length = 0;  // of the body, when it is not chunked
};
// The same for an answer. One whose body ends only with the connection is refused, and so is 101.
std::expected<ResponseHead, HeadError> parse_response_head(std::string_view head);

}  // namespace space::http
