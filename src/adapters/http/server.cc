#include "adapters/http/server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/http/status.hpp>
#include <cstring>
#include <map>

#include "adapters/http/connection.h"
#include "adapters/http/hangup_watch.h"
#include "adapters/http/head.h"
#include "base/check.h"
#include "base/text.h"

namespace space::http {

using net::ip::tcp;

namespace {

constexpr std::size_t kHeadReadBytes = 16U << 10;
constexpr std::size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;
// After an answer to a request that was not read whole, what still comes is read and dropped,
// within these bounds, so that the client gets the answer and no reset in its place.
constexpr BootClock::duration kLingerTime = std::chrono::seconds(2);
constexpr std::size_t kLingerBytes = 8U << 20;
// So many connections beyond their client's limit are told so at a time; others are just closed.
constexpr std::size_t kTurnedAwayAtOnce = 64;
// A client whose machine has vanished is noticed after idle + interval * probes = 60 seconds.
constexpr int kProbeIdleSeconds = 30;
constexpr int kProbeIntervalSeconds = 10;
constexpr int kProbes = 3;

std::string head_text(unsigned status, const HttpHeaders& headers) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " ";
  const auto reason =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
  out.append(reason.data(), reason.size());
  out += "\r\n";
  for (const auto& header : headers) {
    for (const auto& text : {header.name, header.value}) {
      for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        SPACE_ASSERT(byte >= 0x20 && byte != 0x7f);
      }
    }
    out += header.name + ": " + header.value + "\r\n";
  }
  return out + "\r\n";
}

void set_up(Socket& socket) {
  const int descriptor = socket.native_handle();
  const auto set = [descriptor](int level, int option, int value) {
    // A Unix socket has none of these.
    static_cast<void>(::setsockopt(descriptor, level, option, &value, sizeof value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kProbeIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

// Who counts as one client: an IPv4 address, or the /64 network of an IPv6 one. Nullopt for a Unix
// socket.
std::optional<std::string> client_of(const Socket& socket) {
  boost::system::error_code error;
  const auto remote = socket.remote_endpoint(error);
  const int family = remote.protocol().family();
  if (error || (family != AF_INET && family != AF_INET6)) return std::nullopt;
  tcp::endpoint endpoint;
  endpoint.resize(remote.size());
  std::memcpy(endpoint.data(), remote.data(), remote.size());
  auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    address = net::ip::make_address_v4(net::ip::v4_mapped, address.to_v6());
  }
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    return std::string(bytes.begin(), bytes.end());
  }
  const auto bytes = address.to_v6().to_bytes();
  return std::string(bytes.begin(), bytes.begin() + 8);
}

}  // namespace

struct Server::State {
  State(asio::Loop& l, HttpHandler& h, Log& g, Limits i)
      : loop(l), handler(h), log(g), limits(i), acceptor(l.context()), hangups(l), tasks(l) {}
  void admit(Socket socket);
  Task<void> session(Socket socket, std::optional<std::string> client);
  Task<void> turn_away(Socket socket);

  asio::Loop& loop;
  HttpHandler& handler;
  Log& log;
  Limits limits;
  net::basic_socket_acceptor<Protocol> acceptor;
  HangupWatch hangups;
  std::size_t open = 0;
  std::size_t turned_away = 0;
  std::map<std::string, std::size_t> open_of;  // by client
  bool stopping = false;
  Notifier ended;
  TaskScope tasks;
};

namespace {

// One client connection.
class Session {
 public:
  Session(Connection& connection, std::unique_ptr<HangupWatch::Peer> peer, HttpHandler& handler,
          const Server::Limits& limits)
      : connection_(connection), peer_(std::move(peer)), handler_(handler), limits_(limits) {}
  // Serves the next request. False when the connection is to be closed.
  Task<bool> serve();

 private:
  friend class Exchange;
  // The next head; nullopt when there is none to serve.
  Task<std::optional<RequestHead>> read_head();

  Connection& connection_;
  std::unique_ptr<HangupWatch::Peer> peer_;
  HttpHandler& handler_;
  const Server::Limits& limits_;
};

// Drops what still comes.
Task<void> linger(Connection& connection) {
  boost::system::error_code ignored;
  connection.socket().shutdown(Socket::shutdown_send, ignored);
  const auto deadline = connection.loop().now() + kLingerTime;
  for (std::size_t dropped = 0; dropped < kLingerBytes;) {
    connection.consume(connection.input().size());
    if (!co_await connection.receive(kHeadReadBytes, deadline)) co_return;
    dropped += connection.input().size();
  }
}

// Answers in the handlers' place, and for the last time on this connection.
Task<void> refuse(Connection& connection, HeadError error, BootClock::duration limit) {
  const std::string body = "{\"code\":" + std::to_string(error.status) + ",\"message\":\"" +
                           std::string(error.message) + "\"}\n";
  const auto head = head_text(error.status, {{"content-type", "application/json"},
                                             {"content-length", std::to_string(body.size())},
                                             {"cache-control", "no-store"},
                                             {"connection", "close"}});
  if (co_await connection.write({net::buffer(head), net::buffer(body), {}}, limit)) {
    co_await linger(connection);
  }
}

class Exchange final : public HttpExchange {
 public:
  Exchange(Session& session, RequestHead head)
      : connection_(session.connection_),
        peer_(*session.peer_),
        idle_time_(session.limits_.idle_time),
        head_(std::move(head)),
        expects_continue_(head_.expects_continue),
        headless_(head_.request.method == "HEAD"),
        framing_(!head_.request.has_body        ? BodyFraming::sized(0)
                 : head_.request.content_length ? BodyFraming::sized(*head_.request.content_length)
                                                : BodyFraming::chunked()) {}
  ~Exchange() override { peer_.on_gone({}); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const override { return head_.request; }

  Task<IoResult<std::size_t>> read_body(std::span<std::byte> buffer) override {
    const bool waiting = std::exchange(expects_continue_, false) && connection_.input().empty();
    if (waiting && answered()) {
      // The client waits for permission and has got an answer instead: no body will come.
      broken_ = true;
      co_return io_error(std::errc::connection_reset);
    }
    if (waiting) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const auto written = co_await write_out({net::buffer(kContinue), {}, {}});
      if (!written) co_return std::unexpected(written.error());
    }
    auto count = co_await connection_.read_body(framing_, buffer, idle_time_);
    if (!count) {
      unread_ = count.error();
      broken_ = true;
    }
    co_return count;
  }

  Task<IoResult<void>> respond(unsigned status, HttpHeaders headers, std::string body) override {
    const bool bodyless = status == 204 || status == 304;
    SPACE_ASSERT(!answered() && status >= 200 && !(bodyless && !body.empty()));
    phase_ = Phase::kDone;
    if (!bodyless) headers.push_back({"content-length", std::to_string(body.size())});
    const auto head = head_of(status, std::move(headers));
    if (headless_) body.clear();
    co_return co_await write_out({net::buffer(head), net::buffer(body), {}});
  }

  Task<IoResult<void>> begin(unsigned status, HttpHeaders headers,
                             std::optional<std::uint64_t> length) override {
    SPACE_ASSERT(!answered() && status >= 200 && status != 204 && status != 304);
    phase_ = Phase::kStreaming;
    left_ = length;
    if (length) {
      headers.push_back({"content-length", std::to_string(*length)});
    } else {
      headers.push_back({"transfer-encoding", "chunked"});
    }
    const auto head = head_of(status, std::move(headers));
    co_return co_await write_out({net::buffer(head), {}, {}});
  }

  Task<IoResult<void>> write(ByteView bytes) override {
    SPACE_ASSERT(phase_ == Phase::kStreaming);
    if (broken_) co_return io_error(std::errc::connection_reset);
    if (left_) {
      SPACE_ASSERT(bytes.size() <= *left_);
      *left_ -= bytes.size();
    }
    if (bytes.empty() || headless_) co_return IoResult<void>{};
    const auto data = net::buffer(bytes.data(), bytes.size());
    if (left_) co_return co_await write_out({data, {}, {}});
    std::array<char, 20> size{};
    const auto count = std::snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
    co_return co_await write_out(
        {net::buffer(size.data(), static_cast<std::size_t>(count)), data, net::buffer("\r\n", 2)});
  }

  Task<IoResult<void>> finish() override {
    SPACE_ASSERT(phase_ == Phase::kStreaming);
    if (broken_ || left_.value_or(0) != 0) co_return io_error(std::errc::connection_reset);
    phase_ = Phase::kDone;
    if (left_ || headless_) co_return IoResult<void>{};
    static constexpr std::string_view kLast = "0\r\n\r\n";
    co_return co_await write_out({net::buffer(kLast), {}, {}});
  }

  bool answered() const override { return phase_ != Phase::kFresh; }

  void on_gone(std::move_only_function<void()> action) override {
    peer_.on_gone(std::move(action));
  }

  // Nothing is in the way of a next request on this connection.
  bool reusable() const { return framing_.done() && !broken_ && head_.keep_alive; }
  bool finished() const { return phase_ == Phase::kDone; }
  bool broken() const { return broken_; }
  // Why the body could not be read; none when that was not so.
  std::error_code unread() const { return unread_; }

 private:
  enum class Phase { kFresh, kStreaming, kDone };

  std::string head_of(unsigned status, HttpHeaders headers) const {
    if (!reusable()) headers.push_back({"connection", "close"});
    return head_text(status, headers);
  }
  Task<IoResult<void>> write_out(std::array<net::const_buffer, 3> buffers) {
    auto written = co_await connection_.write(buffers, idle_time_);
    if (!written) broken_ = true;
    co_return written;
  }

  Connection& connection_;
  HangupWatch::Peer& peer_;
  BootClock::duration idle_time_;
  RequestHead head_;
  bool expects_continue_;
  bool headless_;  // the answer is a head only
  BodyFraming framing_;
  bool broken_ = false;
  std::error_code unread_;
  Phase phase_ = Phase::kFresh;
  std::optional<std::uint64_t> left_;  // of an answer with a length
};

Task<std::optional<RequestHead>> Session::read_head() {
  HeadEnd end;
  auto& loop = connection_.loop();
  bool idle = connection_.input().empty();
  if (idle) connection_.trim_input();
  auto deadline = loop.now() + (idle ? limits_.keep_alive_time : limits_.head_time);
  std::optional<HeadError> error;
  for (;;) {
    const auto found = end.find(connection_.input());
    const auto size = found ? found->value_or(connection_.input().size()) : 0;
    if (!found) {
      error = found.error();
    } else if (size > limits_.head_bytes) {
      error = HeadError{431, "the head is larger than 64 KiB"};
    } else if (*found) {
      auto head = parse_request_head(connection_.input().substr(0, size));
      connection_.consume(size);
      if (head) co_return std::move(*head);
      error = head.error();
    }
    if (error) break;
    const auto received = co_await connection_.receive(kHeadReadBytes, deadline);
    if (!received && !idle && received.error() == std::errc::timed_out) {
      error = HeadError{408, "the head took too long"};
      break;
    }
    if (!received) co_return std::nullopt;
    if (std::exchange(idle, false)) deadline = loop.now() + limits_.head_time;
  }
  co_await refuse(connection_, *error, limits_.idle_time);
  co_return std::nullopt;
}

Task<bool> Session::serve() {
  auto head = co_await read_head();
  if (!head) co_return false;
  std::optional<HeadError> error;
  bool whole = false;
  {
    Exchange exchange(*this, std::move(*head));
    co_await handler_.handle(exchange);
    whole = exchange.finished() && !exchange.broken();
    if (whole && exchange.reusable()) co_return true;
    if (!exchange.answered() && exchange.unread() == std::errc::bad_message) {
      error = HeadError{400, "a malformed body"};
    }
    if (!exchange.answered() && exchange.unread() == std::errc::timed_out) {
      error = HeadError{408, "the body took too long"};
    }
  }
  if (error) {
    co_await refuse(connection_, *error, limits_.idle_time);
  } else if (whole) {
    co_await linger(connection_);
  }
  co_return false;
}

}  // namespace

void Server::State::admit(Socket socket) {
  auto client = client_of(socket);
  if (client && open_of[*client] >= limits.connections_per_client) {
    if (turned_away < kTurnedAwayAtOnce) {
      tasks.spawn("http.turn_away", turn_away(std::move(socket)));
    }
    return;
  }
  ++open;
  if (client) ++open_of[*client];
  tasks.spawn("http.session", session(std::move(socket), std::move(client)));
}

Task<void> Server::State::session(Socket socket, std::optional<std::string> client) {
  set_up(socket);
  {
    Connection connection(loop, std::move(socket));
    auto peer = hangups.watch(connection.socket().native_handle());
    if (!peer) log.event(Level::kWarning, "http.watch_failed", {});
    if (peer) {
      Session session(connection, std::move(peer), handler, limits);
      while (!stopping && co_await session.serve()) {
      }
    }
  }
  --open;
  if (client && --open_of[*client] == 0) open_of.erase(*client);
  ended.notify();
}

Task<void> Server::State::turn_away(Socket socket) {
  ++turned_away;
  {
    Connection connection(loop, std::move(socket));
    co_await refuse(connection, {429, "too many connections from this address"}, kLingerTime);
  }
  --turned_away;
}

Server::Server(asio::Loop& loop, HttpHandler& handler, Log& log)
    : Server(loop, handler, log, Limits{}) {}
Server::Server(asio::Loop& loop, HttpHandler& handler, Log& log, Limits limits)
    : state_(std::make_unique<State>(loop, handler, log, limits)) {}
Server::~Server() = default;

IoResult<std::uint16_t> Server::listen(const std::string& address) {
  if (const auto error = state_->hangups.open()) return std::unexpected(error);
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
  state.tasks.spawn("http.hangups", state.hangups.run());
  while (!state.stopping) {
    if (state.open >= state.limits.connections) {
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
    state.admit(std::move(socket));
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
