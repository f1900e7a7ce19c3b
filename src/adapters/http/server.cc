#include "adapters/http/server.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <cctype>
#include <cstring>

#include "adapters/http/beast_body.h"
#include "adapters/http/head_check.h"
#include "base/check.h"
#include "base/text.h"

namespace space::http {

using net::ip::tcp;
using Protocol = net::generic::stream_protocol;  // TCP or Unix
using Socket = Protocol::socket;
using Parser = beast::http::request_parser<beast::http::buffer_body>;

namespace {

constexpr std::size_t kReadBytes = 64U << 10;
constexpr std::size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;
// After an answer to a request that was not read whole, what still comes is read and dropped,
// within these bounds, so that the client gets the answer and no reset in its place.
constexpr BootClock::duration kLingerTime = std::chrono::seconds(2);
constexpr std::size_t kLingerBytes = 8U << 20;

std::string head_text(unsigned status, const HttpHeaders& headers) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " ";
  const auto reason = beast::http::obsolete_reason(beast::http::int_to_status(status));
  out.append(reason.data(), reason.size());
  out += "\r\n";
  for (const auto& header : headers) {
    for (const char c : header.name + header.value) {
      const auto byte = static_cast<unsigned char>(c);
      SPACE_ASSERT(byte >= 0x20 && byte != 0x7f);
    }
    out += header.name + ": " + header.value + "\r\n";
  }
  return out;
}

// Told when the client of one exchange is gone. Outlives the exchange in the wait's handler.
struct GoneWatch {
  std::move_only_function<void()> action;
};

}  // namespace

struct Server::State {
  State(asio::Loop& l, HttpHandler& h, Log& g, Limits i)
      : loop(l), handler(h), log(g), limits(i), acceptor(l.context()), tasks(l) {}
  Task<void> session(Socket socket);

  asio::Loop& loop;
  HttpHandler& handler;
  Log& log;
  Limits limits;
  net::basic_socket_acceptor<Protocol> acceptor;
  bool stopping = false;
  Notifier ended;
  TaskScope tasks;
};

namespace {

// One client connection.
class Session {
 public:
  Session(asio::Loop& loop, HttpHandler& handler, const Server::Limits& limits, Socket socket)
      : loop_(loop), handler_(handler), limits_(limits), socket_(std::move(socket)) {}
  // Serves the next request. False when the connection is to be closed.
  Task<bool> serve();

 private:
  friend class Exchange;
  // The bytes of the next head; empty when there is none to answer.
  Task<std::string> read_head();
  Task<void> refuse(unsigned status, std::string_view code, std::string_view message);
  Task<void> linger();
  Task<IoResult<void>> write(std::array<net::const_buffer, 3> buffers);

  asio::Loop& loop_;
  HttpHandler& handler_;
  const Server::Limits& limits_;
  Socket socket_;
  beast::flat_buffer buffer_;
};

class Exchange final : public HttpExchange {
 public:
  Exchange(Session& session, Parser& parser, HttpRequest request)
      : session_(session), parser_(parser), request_(std::move(request)) {
    expects_continue_ = request_.has_body && single_header(request_.headers, "expect").has_value();
  }
  ~Exchange() override { Exchange::on_gone({}); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const override { return request_; }

  Task<IoResult<std::size_t>> read_body(std::span<std::byte> buffer) override {
    const bool waiting = std::exchange(expects_continue_, false) && session_.buffer_.size() == 0;
    if (waiting && answered()) {
      // The client waits for permission and has got an answer instead: no body will come.
      broken_ = true;
      co_return io_error(std::errc::connection_reset);
    }
    if (waiting) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const auto written = co_await session_.write({net::buffer(kContinue), {}, {}});
      if (!written) co_return std::unexpected(written.error());
    }
    auto count = co_await read_body_some(session_.socket_, session_.buffer_, parser_, buffer,
                                         session_.loop_, session_.limits_.idle_time);
    if (!count) broken_ = true;
    co_return count;
  }

  Task<IoResult<void>> respond(unsigned status, HttpHeaders headers, std::string body) override {
    SPACE_ASSERT(!answered());
    phase_ = Phase::kDone;
    headers.push_back({"content-length", std::to_string(body.size())});
    if (!reusable()) headers.push_back({"connection", "close"});
    const auto head = head_text(status, headers) + "\r\n";
    auto written = co_await session_.write({net::buffer(head), net::buffer(body), {}});
    if (!written) broken_ = true;
    co_return written;
  }

  Task<IoResult<void>> begin(unsigned status, HttpHeaders headers,
                             std::optional<std::uint64_t> length) override {
    SPACE_ASSERT(!answered());
    phase_ = Phase::kStreaming;
    left_ = length;
    if (length) {
      headers.push_back({"content-length", std::to_string(*length)});
    } else {
      headers.push_back({"transfer-encoding", "chunked"});
    }
    if (!reusable()) headers.push_back({"connection", "close"});
    const auto head = head_text(status, headers) + "\r\n";
    auto written = co_await session_.write({net::buffer(head), {}, {}});
    if (!written) broken_ = true;
    co_return written;
  }

  Task<IoResult<void>> write(ByteView bytes) override {
    SPACE_ASSERT(phase_ == Phase::kStreaming);
    if (broken_) co_return io_error(std::errc::connection_reset);
    if (bytes.empty()) co_return IoResult<void>{};
    const auto data = net::buffer(bytes.data(), bytes.size());
    std::array<net::const_buffer, 3> buffers{data, {}, {}};
    std::string size;
    if (left_) {
      SPACE_ASSERT(bytes.size() <= *left_);
      *left_ -= bytes.size();
    } else {
      std::array<char, 20> text{};
      const auto count = std::snprintf(text.data(), text.size(), "%zx\r\n", bytes.size());
      size.assign(text.data(), static_cast<std::size_t>(count));
      buffers = {net::buffer(size), data, net::buffer("\r\n", 2)};
    }
    auto written = co_await session_.write(buffers);
    if (!written) broken_ = true;
    co_return written;
  }

  Task<IoResult<void>> finish() override {
    SPACE_ASSERT(phase_ == Phase::kStreaming);
    if (broken_ || left_.value_or(0) != 0) co_return io_error(std::errc::connection_reset);
    phase_ = Phase::kDone;
    if (left_) co_return IoResult<void>{};
    static constexpr std::string_view kLast = "0\r\n\r\n";
    auto written = co_await session_.write({net::buffer(kLast), {}, {}});
    if (!written) broken_ = true;
    co_return written;
  }

  bool answered() const override { return phase_ != Phase::kFresh; }

  void on_gone(std::move_only_function<void()> action) override {
    if (watch_) {
      watch_->action = std::move(action);
      if (!watch_->action) {
        watch_.reset();
        boost::system::error_code ignored;
        session_.socket_.cancel(ignored);
      }
      return;
    }
    // What follows the request can only be told from its end once the request was read.
    if (!action || !parser_.is_done() || session_.buffer_.size() > 0) return;
    watch_ = std::make_shared<GoneWatch>();
    watch_->action = std::move(action);
    session_.socket_.async_wait(Socket::wait_read, [watch = watch_, &socket = session_.socket_](
                                                       const boost::system::error_code& error) {
      if (error || !watch->action) return;
      char byte = 0;
      const auto count = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      const bool more = count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
      if (more) return;
      auto once = std::exchange(watch->action, {});
      once();
    });
  }

  // Nothing is in the way of a next request on this connection.
  bool reusable() const { return parser_.is_done() && !broken_ && parser_.keep_alive(); }
  bool finished() const { return phase_ == Phase::kDone; }
  bool broken() const { return broken_; }

 private:
  enum class Phase { kFresh, kStreaming, kDone };
  Session& session_;
  Parser& parser_;
  HttpRequest request_;
  bool expects_continue_ = false;
  bool broken_ = false;
  Phase phase_ = Phase::kFresh;
  std::optional<std::uint64_t> left_;
  std::shared_ptr<GoneWatch> watch_;
};

Task<IoResult<void>> Session::write(std::array<net::const_buffer, 3> buffers) {
  SocketDeadline<Socket> deadline(loop_, socket_, limits_.idle_time);
  const auto [error, count] = co_await net::async_write(socket_, buffers, kAwait);
  if (error) co_return std::unexpected(deadline.explain(error));
  co_return IoResult<void>{};
}

Task<std::string> Session::read_head() {
  bool idle = buffer_.size() == 0;
  auto deadline = std::make_unique<SocketDeadline<Socket>>(
      loop_, socket_, idle ? limits_.idle_time : limits_.head_time);
  for (;;) {
    const auto data = buffer_.data();
    const std::string_view text(static_cast<const char*>(data.data()), data.size());
    if (const auto end = text.find("\r\n\r\n"); end != std::string_view::npos) {
      std::string head(text.substr(0, end + 4));
      if (head.size() > limits_.head_bytes) {
        deadline.reset();
        co_await refuse(431, "too_large", "the request's head is larger than 32 KiB");
        co_return std::string{};
      }
      buffer_.consume(head.size());
      co_return head;
    }
    // A line end that can never become a proper one is refused before more is waited for.
    const auto lf = text.find('\n');
    std::optional<std::string_view> problem;
    if (lf != std::string_view::npos && (lf == 0 || text[lf - 1] != '\r')) {
      problem = "a line that does not end with CR LF";
    }
    if (problem) {
      deadline.reset();
      co_await refuse(400, "invalid_argument", *problem);
      co_return std::string{};
    }
    if (text.size() > limits_.head_bytes) {
      deadline.reset();
      co_await refuse(431, "too_large", "the request's head is larger than 32 KiB");
      co_return std::string{};
    }
    const auto [error, count] =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
    if (error) co_return std::string{};
    buffer_.commit(count);
    if (std::exchange(idle, false)) {
      deadline = std::make_unique<SocketDeadline<Socket>>(loop_, socket_, limits_.head_time);
    }
  }
}

Task<void> Session::refuse(unsigned status, std::string_view code, std::string_view message) {
  const std::string body = "{\"code\":\"" + std::string(code) +
                           "\",\"message\":\"malformed request: " + std::string(message) + "\"}\n";
  const auto head = head_text(status, {{"content-type", "application/json"},
                                       {"content-length", std::to_string(body.size())},
                                       {"connection", "close"}}) +
                    "\r\n";
  if (co_await write({net::buffer(head), net::buffer(body), {}})) co_await linger();
}

Task<void> Session::linger() {
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  SocketDeadline<Socket> deadline(loop_, socket_, kLingerTime);
  std::vector<std::byte> sink(kReadBytes);
  for (std::size_t dropped = 0; dropped < kLingerBytes;) {
    const auto [error, count] = co_await socket_.async_read_some(net::buffer(sink), kAwait);
    if (error || count == 0) co_return;
    dropped += count;
  }
}

Task<bool> Session::serve() {
  const auto head = co_await read_head();
  if (head.empty()) co_return false;
  if (const auto problem = check_raw_head(head)) {
    co_await refuse(400, "invalid_argument", *problem);
    co_return false;
  }
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(limits_.head_bytes));
  parser.body_limit(boost::none);
  boost::system::error_code error;
  parser.put(net::buffer(head), error);
  if (error || !parser.is_header_done()) {
    co_await refuse(400, "invalid_argument", error ? error.message() : "an incomplete head");
    co_return false;
  }
  const auto& message = parser.get();
  HttpRequest request;
  request.method.assign(message.method_string().data(), message.method_string().size());
  for (const auto& field : message) {
    HttpHeader header;
    for (const char c : field.name_string()) {
      header.name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    header.value.assign(field.value().data(), field.value().size());
    request.headers.push_back(std::move(header));
  }
  if (message.version() != 11) {
    co_await refuse(505, "unsupported", "HTTP/1.1 is needed");
    co_return false;
  }
  if (const auto problem = check_framing(request.headers)) {
    co_await refuse(400, "invalid_argument", *problem);
    co_return false;
  }
  const std::string_view target(message.target().data(), message.target().size());
  if (!target.starts_with('/') || target.find('#') != std::string_view::npos) {
    co_await refuse(400, "invalid_argument", "a target that is not a path");
    co_return false;
  }
  const auto question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  if (const auto length = single_header(request.headers, "content-length")) {
    request.content_length = parse_decimal(*length);
  }
  const bool chunked = count_headers(request.headers, "transfer-encoding") == 1;
  request.has_body = chunked || request.content_length.value_or(0) > 0;
  if (!request.has_body && !parser.is_done()) {
    // Completes the message, of which nothing is left to come.
    parser.put(net::const_buffer{}, error);
  }

  bool again = false;
  {
    Exchange exchange(*this, parser, std::move(request));
    co_await handler_.handle(exchange);
    const bool fine = exchange.finished() && !exchange.broken();
    again = fine && exchange.reusable();
    if (fine && !again) co_await linger();
  }
  co_return again;
}

}  // namespace

Task<void> Server::State::session(Socket socket) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);  // a Unix socket has no such delay
  Session session(loop, handler, limits, std::move(socket));
  while (!stopping && co_await session.serve()) {
  }
  ended.notify();
}

Server::Server(asio::Loop& loop, HttpHandler& handler, Log& log)
    : Server(loop, handler, log, Limits{}) {}
Server::Server(asio::Loop& loop, HttpHandler& handler, Log& log, Limits limits)
    : state_(std::make_unique<State>(loop, handler, log, limits)) {}
Server::~Server() = default;

IoResult<std::uint16_t> Server::listen(const std::string& address) {
  auto& acceptor = state_->acceptor;
  const auto listen_at = [&](const Protocol::endpoint& endpoint) {
    boost::system::error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(net::socket_base::max_listen_connections, error);
    return error;
  };
  if (address.starts_with("unix:")) {
    const auto path = address.substr(5);
    if (path.empty() || path.size() > kMaxUnixPath) return io_error(std::errc::invalid_argument);
    if (const auto error = listen_at(net::local::stream_protocol::endpoint(path))) {
      return std::unexpected(std::error_code(error));
    }
    return std::uint16_t{0};
  }
  const auto colon = address.rfind(':');
  if (colon == std::string::npos) return io_error(std::errc::invalid_argument);
  boost::system::error_code error;
  const auto host = net::ip::make_address(address.substr(0, colon), error);
  const auto port = parse_decimal(address.substr(colon + 1));
  if (error || !port || *port > UINT16_MAX) return io_error(std::errc::invalid_argument);
  error = listen_at(tcp::endpoint(host, static_cast<std::uint16_t>(*port)));
  if (error) return std::unexpected(std::error_code(error));
  const auto bound = acceptor.local_endpoint(error);
  tcp::endpoint local;
  local.resize(bound.size());
  std::memcpy(local.data(), bound.data(), bound.size());
  return local.port();
}

Task<void> Server::run() {
  auto& state = *state_;
  while (!state.stopping) {
    if (state.tasks.size() >= state.limits.connections) {
      if (co_await state.ended.wait(state.loop) == Notifier::Wake::kCancelled) break;
      continue;
    }
    auto [error, socket] = co_await state.acceptor.async_accept(kAwait);
    if (state.stopping) break;
    if (error) {
      state.log.event(Level::kWarning, "http.accept_failed", {{"error", error.message()}});
      if (!co_await sleep_for(state.loop, std::chrono::milliseconds(100))) break;
      continue;
    }
    state.tasks.spawn("http.session", state.session(std::move(socket)));
  }
}

void Server::close() {
  state_->stopping = true;
  boost::system::error_code ignored;
  state_->acceptor.close(ignored);
  state_->ended.notify();
}

Task<void> Server::stop() {
  close();
  co_await state_->tasks.stop();
}

}  // namespace space::http
