#pragma once
#include <gtest/gtest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <string_view>

#include "adapters/http/server.h"
#include "ports/task_scope.h"

// The HTTP server behind a real socket, and clients that send exactly the bytes they are told to.
namespace space::edge_test {

using boost::asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;
inline constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

// A client. Every wait is bounded by a minute, so that a server that hangs fails a test.
class RawClient {
 public:
  explicit RawClient(asio::Loop& loop) : loop_(loop), socket_(loop.context()) {}

  // Connects, from the loopback address `from`.
  Task<bool> connect(std::uint16_t port, const std::string& from = "127.0.0.1") {
    boost::system::error_code error;
    socket_.open(tcp::v4());
    socket_.bind(tcp::endpoint(boost::asio::ip::make_address(from), 0), error);
    const tcp::endpoint server(boost::asio::ip::address_v4::loopback(), port);
    const auto [failed] = co_await socket_.async_connect(server, kAwait);
    co_return !error && !failed;
  }
  Task<void> send(std::string bytes) {
    const auto alarm = limit();
    co_await boost::asio::async_write(socket_, boost::asio::buffer(bytes), kAwait);
  }
  // One byte in a segment.
  Task<void> send_slowly(std::string bytes) {
    socket_.set_option(tcp::no_delay(true));
    for (const char c : bytes) {
      co_await send(std::string(1, c));
      co_await sleep_for(loop_, std::chrono::microseconds(1));
    }
  }
  // What comes until `received` contains `text`; false when it never does.
  Task<bool> await_text(std::string text) {
    const auto alarm = limit();
    while (!received.contains(text)) {
      if (!co_await receive()) co_return false;
    }
    co_return true;
  }
  // What comes until the server closes; false when it does not.
  Task<bool> await_close() {
    const auto alarm = limit();
    while (co_await receive()) {
    }
    co_return closed_;
  }
  // As a process does that is killed; `reset` breaks the connection off at once.
  void leave(bool reset = false) {
    if (reset) socket_.set_option(boost::asio::socket_base::linger(true, 0));
    socket_.close();
  }
  tcp::socket& socket() { return socket_; }

  std::string received;

 private:
  std::unique_ptr<Timer::Alarm> limit() {
    return loop_.at(loop_.now() + seconds(60), [this] { socket_.cancel(); });
  }
  Task<bool> receive() {
    std::array<char, 16'384> buffer{};
    const auto [error, count] =
        co_await socket_.async_read_some(boost::asio::buffer(buffer), kAwait);
    closed_ = error == boost::asio::error::eof || error == boost::asio::error::connection_reset;
    received.append(buffer.data(), count);
    co_return !error;
  }

  asio::Loop& loop_;
  tcp::socket socket_;
  bool closed_ = false;
};

// How many answers the bytes hold, counting only final ones.
inline std::size_t answers_in(std::string_view bytes) {
  std::size_t count = 0;
  for (const auto status : {'2', '3', '4', '5'}) {
    const auto begin = std::string("HTTP/1.1 ") + status;
    for (auto at = bytes.find(begin); at != std::string_view::npos;
         at = bytes.find(begin, at + 1)) {
      ++count;
    }
  }
  return count;
}

// One server on a free port with `handler` behind it.
class EdgeServer {
 public:
  EdgeServer(HttpHandler& handler, http::Server::Limits limits)
      : server_(loop, handler, log_, limits), tasks_(loop) {}
  // Runs `test`, a coroutine that returns nothing, to its end.
  void run(Task<void> test) {
    const auto bound = server_.listen("127.0.0.1:0");
    ASSERT_TRUE(bound) << bound.error();
    port = *bound;
    EXPECT_EQ(loop.run(all(std::move(test)), [] {}), 0);
  }

  asio::Loop loop;
  std::uint16_t port = 0;

 private:
  Task<int> all(Task<void> test) {
    tasks_.spawn("server", server_.run());
    co_await std::move(test);
    co_await server_.stop();
    co_await tasks_.stop();
    co_return 0;
  }
  NoLog log_;
  http::Server server_;
  TaskScope tasks_;
};

}  // namespace space::edge_test
