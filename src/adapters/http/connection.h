#pragma once
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <span>
#include <string>
#include <string_view>

#include "adapters/asio/loop.h"
#include "adapters/http/body.h"
#include "ports/task.h"

namespace space::http {

namespace net = boost::asio;
using Protocol = net::generic::stream_protocol;  // TCP or Unix
using Socket = Protocol::socket;
inline constexpr auto kAwait = net::as_tuple(net::use_awaitable);

// One end of an HTTP connection: the socket, and the bytes that have come over it and are not used
// yet. Used by one task.
class Connection {
 public:
  // `loop` outlives it.
  Connection(asio::Loop& loop, Socket socket) : loop_(loop), socket_(std::move(socket)) {}

  asio::Loop& loop() { return loop_; }
  Socket& socket() { return socket_; }

  std::string_view input() const { return input_; }
  void consume(std::size_t count) { input_.erase(0, count); }
  // Gives the memory of an empty input back.
  void trim_input();
  // Adds what comes next, at most `at_most` bytes, to the input. Errors: connection_reset (the end
  // too), timed_out; after this one nothing is received any more, but may still be written.
  Task<IoResult<void>> receive(std::size_t at_most, MonoTime deadline);
  // The next bytes of a body; 0 only at its proper end. `limit` is for each wait for bytes. Errors:
  // those of `receive`, and bad_message.
  Task<IoResult<std::size_t>> read_body(BodyFraming& framing, std::span<std::byte> out,
                                        BootClock::duration limit);
  // Sends all. After any error, timed_out too, the connection is broken.
  Task<IoResult<void>> write(std::array<net::const_buffer, 3> buffers, BootClock::duration limit);

 private:
  Task<IoResult<std::size_t>> receive_into(net::mutable_buffer buffer, MonoTime deadline);

  asio::Loop& loop_;
  Socket socket_;
  std::string input_;
};

}  // namespace space::http
