#include "adapters/http/client.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "adapters/http/connection.h"
#include "adapters/http/head.h"
#include "base/text.h"

namespace space::http {

using net::ip::tcp;

namespace {

constexpr BootClock::duration kConnectTime = std::chrono::seconds(5);
constexpr BootClock::duration kWriteTime = std::chrono::seconds(60);
constexpr BootClock::duration kContinueWait = std::chrono::seconds(1);
constexpr BootClock::duration kAnswerAfterBreak = std::chrono::seconds(2);
constexpr BootClock::duration kNoLimit = std::chrono::hours(24 * 365);
constexpr std::uint64_t kAskFirstAbove = 64U << 10;
constexpr std::size_t kReadBytes = 64U << 10;
constexpr std::size_t kMaxHeadBytes = 64U << 10;
constexpr std::size_t kMaxInterim = 16;  // answers before the final one

class Response final : public HttpResponse {
 public:
  Response(asio::Loop& loop, Socket socket) : connection_(loop, std::move(socket)) {}
  const HttpResponseHead& head() const override { return head_; }
  Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) override {
    return connection_.read_body(framing_, buffer, kNoLimit);
  }

  Connection& connection() { return connection_; }

  // Reads heads until one that is no 1xx. True when `stop_at_continue` and a 100 came first.
  Task<IoResult<bool>> read_head(BootClock::duration limit, bool stop_at_continue) {
    const auto deadline = connection_.loop().now() + limit;
    for (std::size_t interim = 0; interim < kMaxInterim; ++interim) {
      HeadEnd end;
      auto size = end.find(connection_.input());
      while (size && !*size && connection_.input().size() <= kMaxHeadBytes) {
        const auto received = co_await connection_.receive(kReadBytes, deadline);
        if (!received) co_return std::unexpected(received.error());
        size = end.find(connection_.input());
      }
      if (!size || size->value_or(SIZE_MAX) > kMaxHeadBytes) {
        co_return io_error(std::errc::bad_message);
      }
      auto parsed = parse_response_head(connection_.input().substr(0, **size));
      connection_.consume(**size);
      if (!parsed) co_return io_error(std::errc::bad_message);
      if (parsed->head.status == 100 && stop_at_continue) co_return true;
      if (parsed->head.status < 200) continue;
      framing_ = parsed->chunked ? BodyFraming::chunked() : BodyFraming::sized(parsed->length);
      head_ = std::move(parsed->head);
      co_return false;
    }
    co_return io_error(std::errc::bad_message);
  }

 private:
  Connection connection_;
  BodyFraming framing_ = BodyFraming::sized(0);
  HttpResponseHead head_;
};

struct Base {
  std::string host;  // of the Host header
  std::string unix_path;
  std::string name;
  std::string port;
};

std::optional<Base> parse_base(const std::string& base) {
  constexpr std::string_view kHttp = "http://";
  constexpr std::string_view kUnix = "unix:";
  Base out;
  if (base.starts_with(kUnix) && base.size() > kUnix.size()) {
    out.host = "localhost";
    out.unix_path = base.substr(kUnix.size());
    return out;
  }
  if (!base.starts_with(kHttp)) return std::nullopt;
  out.host = base.substr(kHttp.size());
  while (out.host.ends_with('/')) out.host.pop_back();
  for (const char c : out.host) {
    if (c <= ' ' || c > '~' || c == '/' || c == '@' || c == '?' || c == '#') return std::nullopt;
  }
  const auto colon = out.host.rfind(':');
  const bool has_port = colon != std::string::npos && out.host.back() != ']';
  out.name = has_port ? out.host.substr(0, colon) : out.host;
  out.port = has_port ? out.host.substr(colon + 1) : "80";
  if (out.name.starts_with('[') && out.name.ends_with(']')) {
    out.name = out.name.substr(1, out.name.size() - 2);
  }
  if (out.name.empty() || out.port.empty()) return std::nullopt;
  return out;
}

// Gives a socket up that does not connect in time.
class ConnectLimit {
 public:
  ConnectLimit(asio::Loop& loop, auto& socket)
      : alarm_(loop.at(loop.now() + kConnectTime, [this, &socket] {
          passed_ = true;
          boost::system::error_code ignored;
          socket.close(ignored);
        })) {}
  std::error_code explain(const boost::system::error_code& error) const {
    return passed_ ? std::make_error_code(std::errc::timed_out) : std::error_code(error);
  }

 private:
  bool passed_ = false;
  std::unique_ptr<Timer::Alarm> alarm_;
};

Task<IoResult<Socket>> connect(asio::Loop& loop, Base base) {
  if (!base.unix_path.empty()) {
    Socket socket(loop.context());
    if (base.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
      co_return io_error(std::errc::filename_too_long);
    }
    const ConnectLimit limit(loop, socket);
    const net::local::stream_protocol::endpoint endpoint(base.unix_path);
    const auto [error] = co_await socket.async_connect(endpoint, kAwait);
    if (error) co_return std::unexpected(limit.explain(error));
    co_return std::move(socket);
  }
  // A numeric address needs no resolver, which would start a thread.
  std::vector<tcp::endpoint> endpoints;
  boost::system::error_code no_address;
  const auto address = net::ip::make_address(base.name, no_address);
  const auto port = parse_decimal(base.port);
  if (!port || *port > UINT16_MAX) co_return io_error(std::errc::invalid_argument);
  if (!no_address) {
    endpoints.emplace_back(address, static_cast<std::uint16_t>(*port));
  } else {
    tcp::resolver resolver(loop.context());
    const auto [error, found] = co_await resolver.async_resolve(base.name, base.port, kAwait);
    if (error) co_return std::unexpected(std::error_code(error));
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }
  tcp::socket socket(loop.context());
  const ConnectLimit limit(loop, socket);
  const auto [error, endpoint] = co_await net::async_connect(socket, endpoints, kAwait);
  if (error) co_return std::unexpected(limit.explain(error));
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  co_return Socket(std::move(socket));
}

// Whether bytes of the server arrive within `limit`.
Task<bool> readable(asio::Loop& loop, Socket& socket, BootClock::duration limit) {
  auto alarm = loop.at(loop.now() + limit, [&socket] {
    boost::system::error_code ignored;
    socket.cancel(ignored);
  });
  const auto [error] = co_await socket.async_wait(Socket::wait_read, kAwait);
  co_return !error;
}

enum class Sent { kWhole, kRefused, kSourceFailed };

// Sends the body. kRefused: the server stopped reading, its answer may tell why.
Task<std::pair<Sent, std::error_code>> send_body(Response& response, HttpBodySource& body,
                                                 bool chunked) {
  std::vector<std::byte> buffer(kReadBytes);
  auto left = body.size();
  for (;;) {
    const auto count = co_await body.read(buffer);
    if (!count) co_return std::pair(Sent::kSourceFailed, count.error());
    if (*count == 0) break;
    if (left) {
      if (*count > *left) {
        co_return std::pair(Sent::kSourceFailed, std::make_error_code(std::errc::message_size));
      }
      *left -= *count;
    }
    std::array<net::const_buffer, 3> buffers{net::buffer(buffer.data(), *count), {}, {}};
    std::array<char, 20> size{};
    if (chunked) {
      const auto length = std::snprintf(size.data(), size.size(), "%zx\r\n", *count);
      buffers = {net::buffer(size.data(), static_cast<std::size_t>(length)),
                 net::buffer(buffer.data(), *count), net::buffer("\r\n", 2)};
    }
    const auto written = co_await response.connection().write(buffers, kWriteTime);
    if (!written) co_return std::pair(Sent::kRefused, written.error());
  }
  if (left.value_or(0) != 0) {
    co_return std::pair(Sent::kSourceFailed, std::make_error_code(std::errc::message_size));
  }
  if (chunked) {
    const auto written =
        co_await response.connection().write({net::buffer("0\r\n\r\n", 5), {}, {}}, kWriteTime);
    if (!written) co_return std::pair(Sent::kRefused, written.error());
  }
  co_return std::pair(Sent::kWhole, std::error_code{});
}

bool clean(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return false;
  }
  return true;
}

}  // namespace

Task<IoResult<std::unique_ptr<HttpResponse>>> Client::send(HttpClientRequest request,
                                                           HttpBodySource* body) {
  auto base = parse_base(request.base);
  bool fine = base.has_value() && clean(request.method) && clean(request.target) &&
              request.target.starts_with('/') && request.target.find(' ') == std::string::npos;
  std::string head = request.method + " " + request.target + " HTTP/1.1\r\n";
  for (const auto& header : request.headers) {
    fine = fine && clean(header.name) && clean(header.value);
    head += header.name + ": " + header.value + "\r\n";
  }
  if (!fine) co_return io_error(std::errc::invalid_argument);
  head += "host: " + base->host + "\r\n";
  bool chunked = false;
  bool ask_first = false;
  if (body != nullptr) {
    const auto size = body->size();
    chunked = !size.has_value();
    ask_first = !size || *size > kAskFirstAbove;
    head += chunked ? std::string("transfer-encoding: chunked\r\n")
                    : "content-length: " + std::to_string(*size) + "\r\n";
    if (ask_first) head += "expect: 100-continue\r\n";
  } else if (request.method != "GET" && request.method != "DELETE") {
    head += "content-length: 0\r\n";
  }
  head += "connection: close\r\n\r\n";

  auto socket = co_await connect(loop_, std::move(*base));
  if (!socket) co_return std::unexpected(socket.error());
  auto response = std::make_unique<Response>(loop_, std::move(*socket));
  auto& connection = response->connection();
  const auto written = co_await connection.write({net::buffer(head), {}, {}}, kWriteTime);
  if (!written) co_return std::unexpected(written.error());

  if (ask_first && co_await readable(loop_, connection.socket(), kContinueWait)) {
    const auto go_on = co_await response->read_head(request.head_timeout, true);
    if (!go_on) co_return std::unexpected(go_on.error());
    if (!*go_on) co_return std::unique_ptr<HttpResponse>(std::move(response));
  }
  auto limit = request.head_timeout;
  std::optional<std::error_code> broke;
  if (body != nullptr) {
    const auto [sent, error] = co_await send_body(*response, *body, chunked);
    if (sent == Sent::kSourceFailed) co_return std::unexpected(error);
    if (sent == Sent::kRefused) {
      broke = error;
      limit = kAnswerAfterBreak;
    }
  }
  const auto answered = co_await response->read_head(limit, false);
  if (!answered) co_return std::unexpected(broke.value_or(answered.error()));
  co_return std::unique_ptr<HttpResponse>(std::move(response));
}

}  // namespace space::http
