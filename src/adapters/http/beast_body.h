#pragma once
// Included by the two files that use Beast, and by nothing else.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <memory>
#include <span>

#include "ports/clock.h"
#include "ports/task.h"

namespace space::http {

namespace net = boost::asio;
namespace beast = boost::beast;

inline constexpr auto kAwait = net::as_tuple(net::use_awaitable);

// Closes a socket at a deadline, which ends whatever waits on it.
template <class Socket>
class SocketDeadline {
 public:
  SocketDeadline(Timer& timer, Socket& socket, BootClock::duration limit)
      : alarm_(timer.at(timer.now() + limit, [this, &socket] {
          passed_ = true;
          boost::system::error_code ignored;
          socket.close(ignored);
        })) {}
  bool passed() const { return passed_; }
  std::error_code explain(const boost::system::error_code& error) const {
    if (passed_) return std::make_error_code(std::errc::timed_out);
    if (error.category() ==
        beast::http::make_error_code(beast::http::error::bad_target).category()) {
      const bool broken_off = error == beast::http::error::end_of_stream ||
                              error == beast::http::error::partial_message;
      return std::make_error_code(broken_off ? std::errc::connection_reset
                                             : std::errc::bad_message);
    }
    if (error == net::error::eof) return std::make_error_code(std::errc::connection_reset);
    return error;
  }

 private:
  bool passed_ = false;
  std::unique_ptr<Timer::Alarm> alarm_;
};

// The next bytes of a message's body; 0 only at its proper end.
template <class Socket, bool IsRequest>
Task<IoResult<std::size_t>> read_body_some(
    Socket& socket, beast::flat_buffer& buffer,
    beast::http::parser<IsRequest, beast::http::buffer_body>& parser, std::span<std::byte> out,
    Timer& timer, BootClock::duration limit) {
  if (out.empty()) co_return io_error(std::errc::invalid_argument);
  SocketDeadline<Socket> deadline(timer, socket, limit);
  auto& body = parser.get().body();
  body.data = out.data();
  body.size = out.size();
  while (!parser.is_done() && body.size == out.size()) {
    auto [error, count] = co_await beast::http::async_read_some(socket, buffer, parser, kAwait);
    if (error == beast::http::error::need_buffer) error = {};
    if (error) {
      body.data = nullptr;
      co_return std::unexpected(deadline.explain(error));
    }
  }
  const auto count = out.size() - body.size;
  body.data = nullptr;
  body.size = 0;
  co_return count;
}

}  // namespace space::http
