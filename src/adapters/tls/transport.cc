#include "adapters/tls/transport.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <exception>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "adapters/tls/error.h"
#include "base/text.h"
#include "ports/notifier.h"

namespace space::tls {
namespace net = boost::asio;
namespace {

using net::ip::tcp;
constexpr auto kTuple = net::as_tuple(net::use_awaitable);

std::error_code to_std(const boost::system::error_code& error) {
  if (error == net::error::operation_aborted) {
    return std::make_error_code(std::errc::operation_canceled);
  }
  if (error.category() == boost::system::system_category()) {
    return {error.value(), std::system_category()};
  }
  return std::make_error_code(std::errc::host_unreachable);  // of the resolver
}

struct HostPort {
  std::string host;
  std::uint16_t port;
};

std::optional<HostPort> parse(std::string_view address) {
  constexpr std::string_view kScheme = "tls:";
  if (!address.starts_with(kScheme)) return std::nullopt;
  address.remove_prefix(kScheme.size());
  const auto colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const auto port = parse_decimal(address.substr(colon + 1));
  if (!port || *port > 65'535) return std::nullopt;
  auto host = address.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  // A colon in the host is an IPv6 address, which needs its brackets.
  if (host.empty() || bracketed != host.contains(':')) return std::nullopt;
  return HostPort{std::string(host), static_cast<std::uint16_t>(*port)};
}

std::string text_of(const tcp::endpoint& at) {
  const auto host = at.address().to_string();
  return (at.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(at.port());
}

// A connected socket with its TLS engine. Shared by the tasks that wait on it.
struct Connection {
  Connection(tcp::socket connected, const Party& party, Protocol protocol, bool dialled)
      : socket(std::move(connected)), engine(party, protocol, dialled, socket.native_handle()) {}

  void close() {
    if (closed) return;
    closed = true;
    boost::system::error_code ignored;  // closing a broken socket is not news
    socket.shutdown(tcp::socket::shutdown_both, ignored);
    socket.close(ignored);
  }
  // Waits for the socket; the error is operation_canceled after close().
  Task<IoResult<void>> wait(Engine::Next next) {
    const auto [error] = co_await socket.async_wait(
        next == Engine::Next::kWaitReadable ? tcp::socket::wait_read : tcp::socket::wait_write,
        kTuple);
    if (closed) co_return io_error(std::errc::operation_canceled);
    if (error) co_return std::unexpected(to_std(error));
    co_return IoResult<void>{};
  }

  tcp::socket socket;
  Engine engine;
  bool closed = false;
};

// Options every connection has. False when the socket is broken already.
bool prepare(tcp::socket& socket) {
  boost::system::error_code error;
  socket.non_blocking(true, error);
  if (!error) socket.set_option(tcp::no_delay(true), error);
  // A program this process starts must not inherit the connection (C028).
  return !error && ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC) == 0;
}

Task<IoResult<void>> shake_hands(std::shared_ptr<Connection> connection, asio::Loop& loop,
                                 MonoTime deadline) {
  bool late = false;
  const auto alarm = loop.at(deadline, [&] {
    late = true;
    connection->close();
  });
  for (;;) {
    const auto next = connection->engine.handshake();
    if (!next) co_return std::unexpected(next.error());
    if (*next == Engine::Next::kDone) co_return IoResult<void>{};
    auto waited = co_await connection->wait(*next);
    if (late) co_return io_error(std::errc::timed_out);
    if (!waited) co_return waited;
  }
}

class TlsStream final : public Stream {
 public:
  TlsStream(asio::Loop& loop, const Party& party, Protocol protocol,
            std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)), peer_(connection_->engine.peer()) {
    if (!peer_ || protocol != Protocol::kHop) return;
    // Who the peer was proved to be holds no longer than its certificate.
    const auto left = peer_->expires_at + party.tolerance() - party.clock().now();
    end_ = loop.at(loop.now() + left, [this] { close(); });
  }
  ~TlsStream() override { close(); }

  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    for (;;) {
      if (connection_->closed) co_return io_error(std::errc::operation_canceled);
      auto count = connection_->engine.read(buffer);
      if (!count) co_return std::unexpected(count.error());
      if (*count) co_return **count;
      auto waited = co_await connection_->wait(Engine::Next::kWaitReadable);
      if (!waited) co_return std::unexpected(waited.error());
    }
  }
  Task<IoResult<void>> write_all(ByteView data) override {
    while (!data.empty()) {
      if (connection_->closed) co_return io_error(std::errc::operation_canceled);
      const auto chunk = data.first(std::min(data.size(), kMaxChunk));
      if (auto encrypted = connection_->engine.encrypt(chunk); !encrypted) co_return encrypted;
      data = data.subspan(chunk.size());
      for (;;) {
        const auto next = connection_->engine.flush();
        if (!next) co_return std::unexpected(next.error());
        if (*next == Engine::Next::kDone) break;
        auto waited = co_await connection_->wait(*next);
        if (!waited) co_return waited;
      }
    }
    co_return IoResult<void>{};
  }
  void close() override {
    end_.reset();
    if (!connection_->closed) connection_->engine.end();
    connection_->close();
  }
  void reset() override {
    boost::system::error_code ignored;
    if (!connection_->closed) {
      connection_->socket.set_option(tcp::socket::linger(true, 0), ignored);
      connection_->closed = true;
      connection_->socket.close(ignored);
    }
    close();
  }
  std::optional<identity::PeerIdentity> identity() const override { return peer_; }

 private:
  std::shared_ptr<Connection> connection_;
  std::optional<identity::PeerIdentity> peer_;
  std::unique_ptr<Timer::Alarm> end_;
};

// What a listener and its handshakes share; the last of them lets it go.
class Accepting : public std::enable_shared_from_this<Accepting> {
 public:
  Accepting(asio::Loop& loop, const Party& party, Log& log, Protocol protocol,
            tcp::acceptor acceptor)
      : loop_(loop),
        party_(party),
        log_(log),
        protocol_(protocol),
        acceptor_(std::move(acceptor)) {}

  void start() { spawn(accept_all(shared_from_this())); }

  Task<IoResult<std::unique_ptr<Stream>>> next() {
    for (;;) {
      if (closed_) co_return io_error(std::errc::operation_canceled);
      if (!ready_.empty()) {
        auto stream = std::move(ready_.front());
        ready_.pop_front();
        co_return stream;
      }
      if (failure_) {
        const auto failure = *std::exchange(failure_, std::nullopt);
        changed_.notify();  // the acceptor goes on
        co_return std::unexpected(failure);
      }
      if (co_await changed_.wait(loop_) == Notifier::Wake::kCancelled) {
        co_return io_error(std::errc::operation_canceled);
      }
    }
  }

  void close() {
    closed_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (const auto& connection : shaking_) connection->close();
    ready_.clear();
    changed_.notify();
  }

  std::string address() const {
    boost::system::error_code ignored;
    return "tls:" + text_of(acceptor_.local_endpoint(ignored));
  }

 private:
  // The task owns all it uses, through the pointers it was given; it ends after close().
  void spawn(Task<void> task) {
    net::co_spawn(loop_.context(), std::move(task), [](const std::exception_ptr& error) {
      if (error) std::rethrow_exception(error);
    });
  }

  static Task<void> accept_all(std::shared_ptr<Accepting> self) {
    while (!self->closed_) {
      auto [error, socket] = co_await self->acceptor_.async_accept(kTuple);
      if (self->closed_) break;
      if (error == net::error::connection_aborted) continue;
      if (error) {
        self->failure_ = to_std(error);
        self->changed_.notify();
        while (self->failure_ && !self->closed_) co_await self->changed_.wait(self->loop_);
        continue;
      }
      self->begin(std::move(socket));
    }
  }

  void begin(tcp::socket socket) {
    boost::system::error_code error;
    const auto from = socket.remote_endpoint(error);
    if (error || !prepare(socket)) return;
    if (!party_.credentials()) {
      refused(from, Error::kNotEnrolled);
      return;
    }
    if (shaking_.size() + ready_.size() >= kMaxHandshakes) {
      if (shaking_.empty()) return;
      shaking_.front()->close();
    }
    auto connection = std::make_shared<Connection>(std::move(socket), party_, protocol_, false);
    spawn(shake(shared_from_this(), std::move(connection), from));
  }

  static Task<void> shake(std::shared_ptr<Accepting> self, std::shared_ptr<Connection> connection,
                          tcp::endpoint from) {
    if (self->closed_) co_return;
    const auto at = self->shaking_.insert(self->shaking_.end(), connection);
    const auto done =
        co_await shake_hands(connection, self->loop_, self->loop_.now() + kHandshakeTime);
    self->shaking_.erase(at);
    if (self->closed_) co_return;
    if (!done) {
      connection->close();
      self->refused(from, done.error());
      co_return;
    }
    self->ready_.push_back(std::make_unique<TlsStream>(self->loop_, self->party_, self->protocol_,
                                                       std::move(connection)));
    self->changed_.notify();
  }

  void refused(const tcp::endpoint& from, std::error_code why) {
    ++refusals_;
    if (loop_.now() < may_log_at_) return;
    may_log_at_ = loop_.now() + std::chrono::seconds(1);
    log_.event(Level::kWarning, "tls.refused",
               {{"address", text_of(from)},
                {"reason", why.message()},
                {"refused", std::exchange(refusals_, 0)}});
  }

  asio::Loop& loop_;
  const Party& party_;
  Log& log_;
  Protocol protocol_;
  tcp::acceptor acceptor_;
  std::list<std::shared_ptr<Connection>> shaking_;  // oldest first
  std::deque<std::unique_ptr<Stream>> ready_;
  std::optional<std::error_code> failure_;  // of the acceptor, for the next accept()
  bool closed_ = false;
  std::uint64_t refusals_ = 0;  // not logged yet
  MonoTime may_log_at_{};
  Notifier changed_;
};

class TlsListener final : public Listener {
 public:
  explicit TlsListener(std::shared_ptr<Accepting> accepting) : accepting_(std::move(accepting)) {
    accepting_->start();
  }
  ~TlsListener() override { accepting_->close(); }
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    const auto accepting = accepting_;
    co_return co_await accepting->next();
  }
  void close() override { accepting_->close(); }
  std::string address() const { return accepting_->address(); }

 private:
  std::shared_ptr<Accepting> accepting_;
};

}  // namespace

IoResult<std::unique_ptr<Listener>> listen_tls(asio::Loop& loop, const Party& party, Log& log,
                                               const std::string& address, Protocol protocol) {
  const auto at = parse(address);
  boost::system::error_code error;
  const auto host = at ? net::ip::make_address(at->host, error) : net::ip::address();
  if (!at || error) return io_error(std::errc::invalid_argument);
  const tcp::endpoint endpoint(host, at->port);
  tcp::acceptor acceptor(loop.context());
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC) != 0) {
    return std::unexpected(std::error_code(errno, std::system_category()));
  }
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(kMaxHandshakes, error);
  if (error) return std::unexpected(to_std(error));
  return std::make_unique<TlsListener>(
      std::make_shared<Accepting>(loop, party, log, protocol, std::move(acceptor)));
}

std::string address_of(const Listener& listener) {
  return dynamic_cast<const TlsListener&>(listener).address();
}

Task<IoResult<std::unique_ptr<Stream>>> TlsDialer::dial(std::string address, MonoTime deadline) {
  const auto to = parse(address);
  if (!to || to->port == 0) co_return io_error(std::errc::invalid_argument);
  if (protocol_ == Protocol::kHop && !party_.credentials()) {
    co_return std::unexpected(make_error_code(Error::kNotEnrolled));
  }
  std::vector<tcp::endpoint> endpoints;
  boost::system::error_code not_numeric;
  if (const auto host = net::ip::make_address(to->host, not_numeric); !not_numeric) {
    endpoints.emplace_back(host, to->port);
  } else {
    tcp::resolver resolver(loop_.context());
    bool late = false;
    const auto alarm = loop_.at(deadline, [&] {
      late = true;
      resolver.cancel();
    });
    const auto [error, found] =
        co_await resolver.async_resolve(to->host, std::to_string(to->port), kTuple);
    if (late) co_return io_error(std::errc::timed_out);
    if (error) co_return std::unexpected(to_std(error));
    for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  }

  auto failure = std::make_error_code(std::errc::host_unreachable);
  for (const auto& endpoint : endpoints) {
    tcp::socket socket(loop_.context());
    boost::system::error_code error;
    socket.open(endpoint.protocol(), error);
    if (error || !prepare(socket)) {
      failure = error ? to_std(error) : std::error_code(errno, std::system_category());
      continue;
    }
    bool late = false;
    auto alarm = loop_.at(deadline, [&] {
      late = true;
      boost::system::error_code ignored;
      socket.close(ignored);
    });
    const auto [connect_error] = co_await socket.async_connect(endpoint, kTuple);
    alarm.reset();
    if (late) co_return io_error(std::errc::timed_out);
    if (connect_error) {
      failure = to_std(connect_error);
      if (connect_error == net::error::operation_aborted) break;
      continue;
    }
    auto connection = std::make_shared<Connection>(std::move(socket), party_, protocol_, true);
    const auto done = co_await shake_hands(connection, loop_, deadline);
    if (done) co_return std::make_unique<TlsStream>(loop_, party_, protocol_, connection);
    co_return std::unexpected(done.error());
  }
  co_return std::unexpected(failure);
}

Task<IoResult<std::unique_ptr<Stream>>> DialerByScheme::dial(std::string address,
                                                             MonoTime deadline) {
  if (address.starts_with("unix:")) co_return co_await unix_.dial(std::move(address), deadline);
  if (address.starts_with("tls:")) co_return co_await tls_.dial(std::move(address), deadline);
  co_return io_error(std::errc::invalid_argument);
}

}  // namespace space::tls
