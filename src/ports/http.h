#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "ports/clock.h"
#include "ports/task.h"

namespace space {

struct HttpHeader {
  std::string name;  // lower-case
  std::string value;
  friend bool operator==(const HttpHeader&, const HttpHeader&) = default;
};
using HttpHeaders = std::vector<HttpHeader>;

// The value of the header `name` (lower-case) when it occurs exactly once, else nullopt.
inline std::optional<std::string_view> single_header(const HttpHeaders& headers,
                                                     std::string_view name) {
  std::optional<std::string_view> found;
  for (const auto& header : headers) {
    if (header.name != name) continue;
    if (found) return std::nullopt;
    found = header.value;
  }
  return found;
}
inline std::size_t count_headers(const HttpHeaders& headers, std::string_view name) {
  std::size_t count = 0;
  for (const auto& header : headers) count += header.name == name ? 1 : 0;
  return count;
}

// The head of a request, as received; framing has been judged, nothing else has.
struct HttpRequest {
  std::string method;  // upper-case token
  std::string path;    // raw target path, not decoded; begins with '/'
  std::string query;   // raw, without '?'
  HttpHeaders headers;
  std::optional<std::uint64_t> content_length;  // absent for a chunked or no body
  bool has_body = false;                        // content_length > 0, or chunked
};

// One request and its answer, on the server's side. One task uses it. Either `respond`, or `begin`,
// then `write`s, then `finish`. An exchange that ends without a finished answer breaks the
// connection, so that the client sees no clean end (C048); one without any answer whose body was
// malformed or came too slowly is answered 400 or 408 by the server.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  // Reads 1..buffer.size() bytes of the body; 0 means its proper end. Nothing of the body is read
  // from the client, and no `100 Continue` sent, before the first call (P-19). `buffer` outlives
  // the task. Errors: bad_message (broken framing), connection_reset (the client left), timed_out.
  virtual Task<IoResult<std::size_t>> read_body(std::span<std::byte> buffer) = 0;

  // The whole answer; content-length is added, but to a 204, which has no body. To HEAD the bodies
  // of this and of `write` are not sent. Header values with control characters abort.
  virtual Task<IoResult<void>> respond(unsigned status, HttpHeaders headers, std::string body) = 0;
  // The head of a streamed answer: with `length` exactly that many bytes must follow, else it is
  // chunked.
  virtual Task<IoResult<void>> begin(unsigned status, HttpHeaders headers,
                                     std::optional<std::uint64_t> length = std::nullopt) = 0;
  // Waits while the client does not read (at most the server's idle time, then timed_out). `bytes`
  // outlives the task.
  virtual Task<IoResult<void>> write(ByteView bytes) = 0;
  virtual Task<IoResult<void>> finish() = 0;
  // Whether a head was sent; afterwards only `write` and `finish` are left.
  virtual bool answered() const = 0;

  // Calls `action` at most once, in a later turn, when the client has closed its connection (its
  // sending side is enough), at whatever point of its request, or has vanished. Behind a body that
  // nobody reads, a TCP client's close may be seen only when its system gives up. Replaces an
  // earlier action; an empty one takes it back. Not called after the exchange ended.
  virtual void on_gone(std::move_only_function<void()> action) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Answers one request. Calls for different connections overlap. `exchange` outlives the task.
  virtual Task<void> handle(HttpExchange& exchange) = 0;
};

// Where the bytes of a client's request body come from.
class HttpBodySource {
 public:
  virtual ~HttpBodySource() = default;
  // The number of bytes when known; then exactly that many are sent, else the body is chunked.
  virtual std::optional<std::uint64_t> size() const = 0;
  // 1..buffer.size() bytes; 0 at the end. An error breaks the request off, so that the server sees
  // no clean end.
  virtual Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) = 0;
};

struct HttpClientRequest {
  std::string method = "GET";
  std::string base;    // "http://HOST:PORT" or "unix:PATH"
  std::string target;  // "/space/v1/..?..", already encoded
  HttpHeaders headers;
  // Until the head of the answer has arrived; the body of the answer has no time limit of its own.
  BootClock::duration head_timeout = std::chrono::seconds(180);
};

struct HttpResponseHead {
  unsigned status = 0;
  HttpHeaders headers;
};

// An answer whose head has arrived. Destroying it closes the connection.
class HttpResponse {
 public:
  virtual ~HttpResponse() = default;
  virtual const HttpResponseHead& head() const = 0;
  // 1..buffer.size() bytes of the body; 0 only at its proper end. Errors: connection_reset (the
  // body broke off), bad_message, timed_out. `buffer` outlives the task.
  virtual Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) = 0;
};

class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // Sends the request on a connection of its own and awaits the head of the answer. `body` may be
  // null; it is asked only once the server wants it (large or unsized bodies: Expect:
  // 100-continue), and outlives the task. Errors: invalid_argument (base), those of connecting,
  // timed_out, bad_message, connection_reset, and those of `body`.
  virtual Task<IoResult<std::unique_ptr<HttpResponse>>> send(HttpClientRequest request,
                                                             HttpBodySource* body) = 0;
};

}  // namespace space
