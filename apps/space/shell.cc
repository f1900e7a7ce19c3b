#include "shell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>

#include "disk_files.h"

namespace space::app {
namespace {

constexpr auto kAsTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

std::error_code last_error() { return {errno, std::generic_category()}; }

}  // namespace

bool Shell::out(std::string_view bytes) {
  if (!reader_left_) reader_left_ = !write_fully(1, bytes).has_value();
  return !reader_left_;
}

void Shell::err(std::string_view bytes) {
  [[maybe_unused]] const auto ignored = write_fully(2, bytes);
}

bool Shell::out_is_terminal() const { return ::isatty(1) == 1; }

void Shell::open_stdin() {
  stdin_opened_ = true;
  struct stat status{};
  if (::fstat(0, &status) != 0 || S_ISREG(status.st_mode)) return;
  // Waiting needs a non-blocking descriptor. Pipes and terminals are opened anew, since the flag of
  // descriptor 0 is shared with the shell that started us.
  int descriptor = ::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) descriptor = ::fcntl(0, F_DUPFD_CLOEXEC, 3);
  if (descriptor < 0) return;
  stdin_.emplace(loop_.context());
  boost::system::error_code error;
  stdin_->assign(descriptor, error);
  if (error) {  // what epoll does not know never waits: /dev/null
    stdin_.reset();
    ::close(descriptor);
  }
}

Task<IoResult<std::size_t>> Shell::in(std::span<std::byte> buffer) {
  if (!stdin_opened_) open_stdin();
  if (!stdin_) {
    const auto count = ::read(0, buffer.data(), buffer.size());
    if (count < 0) co_return std::unexpected(last_error());
    co_return static_cast<std::size_t>(count);
  }
  const auto target = boost::asio::buffer(buffer.data(), buffer.size());
  const auto [error, count] = co_await stdin_->async_read_some(target, kAsTuple);
  if (error == boost::asio::error::eof) co_return 0U;
  if (error) co_return std::unexpected(std::error_code(error));
  co_return count;
}

Task<int> Shell::interrupted() {
  if (!signals_) signals_.emplace(loop_.context(), SIGINT, SIGTERM, SIGHUP);
  const auto [error, signal] = co_await signals_->async_wait(kAsTuple);
  co_return error ? 0 : signal;
}

void Shell::leave(int exit_code) { ::_exit(exit_code); }

}  // namespace space::app
