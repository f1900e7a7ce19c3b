#pragma once
#include <boost/asio/awaitable.hpp>
#include <expected>
#include <system_error>

namespace space {

// A coroutine of one loop. Lazy: runs when awaited or spawned in a TaskScope.
template <class T>
using Task = boost::asio::awaitable<T>;

// An OS or network outcome. Errors compare with std::errc.
template <class T>
using IoResult = std::expected<T, std::error_code>;

inline std::unexpected<std::error_code> io_error(std::errc code) {
  return std::unexpected(std::make_error_code(code));
}

}  // namespace space
