#include "adapters/http/connection.h"

#include <algorithm>
#include <boost/asio/write.hpp>

namespace space::http {
namespace {

constexpr std::size_t kFramedReadBytes = 64U << 10;
constexpr std::size_t kKeptInputBytes = 4U << 10;

std::error_code explain(const boost::system::error_code& error, bool passed) {
  if (passed) return std::make_error_code(std::errc::timed_out);
  if (error == net::error::eof) return std::make_error_code(std::errc::connection_reset);
  return error;
}

}  // namespace

void Connection::trim_input() {
  if (input_.empty() && input_.capacity() > kKeptInputBytes) std::string().swap(input_);
}

Task<IoResult<std::size_t>> Connection::receive_into(net::mutable_buffer buffer,
                                                     MonoTime deadline) {
  bool passed = false;
  // Ends this read and all later ones, whichever is under way when the time is over.
  const auto alarm = loop_.at(deadline, [this, &passed] {
    passed = true;
    boost::system::error_code ignored;
    socket_.shutdown(Socket::shutdown_receive, ignored);
  });
  const auto [error, count] = co_await socket_.async_read_some(buffer, kAwait);
  if (error) co_return std::unexpected(explain(error, passed));
  co_return count;
}

Task<IoResult<void>> Connection::receive(std::size_t at_most, MonoTime deadline) {
  const auto before = input_.size();
  input_.resize_and_overwrite(before + at_most, [](char*, std::size_t size) { return size; });
  const auto count = co_await receive_into(net::buffer(input_.data() + before, at_most), deadline);
  input_.resize(before + count.value_or(0));
  if (!count) co_return std::unexpected(count.error());
  co_return IoResult<void>{};
}

Task<IoResult<std::size_t>> Connection::read_body(BodyFraming& framing, std::span<std::byte> out,
                                                  BootClock::duration limit) {
  if (out.empty()) co_return io_error(std::errc::invalid_argument);
  std::size_t filled = 0;
  while (filled < out.size()) {
    const auto framed = framing.read(input_);
    if (!framed) co_return io_error(std::errc::bad_message);
    consume(*framed);
    if (framing.done()) break;
    const auto wanted = std::min<std::uint64_t>(framing.payload(), out.size() - filled);
    if (const auto count = std::min<std::uint64_t>(wanted, input_.size()); count > 0) {
      std::ranges::copy(as_bytes(input_).first(count), out.subspan(filled).begin());
      consume(count);
      framing.took(count);
      filled += count;
      continue;
    }
    if (filled > 0) break;
    const auto deadline = loop_.now() + limit;
    if (wanted == 0) {
      const auto received = co_await receive(kFramedReadBytes, deadline);
      if (!received) co_return std::unexpected(received.error());
      continue;
    }
    const auto count =
        co_await receive_into(net::buffer(out.data(), static_cast<std::size_t>(wanted)), deadline);
    if (!count) co_return std::unexpected(count.error());
    framing.took(*count);
    filled = *count;
    break;
  }
  co_return filled;
}

Task<IoResult<void>> Connection::write(std::array<net::const_buffer, 3> buffers,
                                       BootClock::duration limit) {
  bool passed = false;
  const auto alarm = loop_.at(loop_.now() + limit, [this, &passed] {
    passed = true;
    boost::system::error_code ignored;
    socket_.close(ignored);
  });
  const auto [error, count] = co_await net::async_write(socket_, buffers, kAwait);
  if (error) co_return std::unexpected(explain(error, passed));
  co_return IoResult<void>{};
}

}  // namespace space::http
