#include "shell.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>

namespace space::app {
namespace {

constexpr auto kAsTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

std::error_code last_error() { return {errno, std::generic_category()}; }

// Writes all, also to a descriptor that others made non-blocking.
IoResult<void> write_fully(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ::write(descriptor, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd wait{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return std::unexpected(last_error());
    }
  }
  return {};
}

class DiskSource final : public HttpBodySource {
 public:
  DiskSource(int descriptor, std::optional<std::uint64_t> size)
      : descriptor_(descriptor), size_(size) {}
  DiskSource(const DiskSource&) = delete;
  DiskSource& operator=(const DiskSource&) = delete;
  ~DiskSource() override { ::close(descriptor_); }
  std::optional<std::uint64_t> size() const override { return size_; }
  Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) override {
    const auto count = ::read(descriptor_, buffer.data(), buffer.size());
    if (count < 0) co_return std::unexpected(last_error());
    co_return static_cast<std::size_t>(count);
  }

 private:
  int descriptor_;
  std::optional<std::uint64_t> size_;
};

class DiskSink final : public cli::FileSink {
 public:
  // An empty `temporary` writes to the final place itself (devices, pipes).
  DiskSink(int descriptor, std::string temporary, std::string path)
      : descriptor_(descriptor), temporary_(std::move(temporary)), path_(std::move(path)) {}
  DiskSink(const DiskSink&) = delete;
  DiskSink& operator=(const DiskSink&) = delete;
  ~DiskSink() override {
    ::close(descriptor_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  IoResult<void> write(ByteView bytes) override { return write_fully(descriptor_, as_text(bytes)); }
  IoResult<void> commit() override {
    if (temporary_.empty()) return {};
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(descriptor_, 0666 & ~mask) != 0 ||
        ::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return std::unexpected(last_error());
    }
    temporary_.clear();
    return {};
  }

 private:
  int descriptor_;
  std::string temporary_;
  std::string path_;
};

}  // namespace

bool Shell::out(std::string_view bytes) {
  if (!reader_left_) reader_left_ = !write_fully(1, bytes).has_value();
  return !reader_left_;
}

void Shell::err(std::string_view bytes) {
  [[maybe_unused]] const auto ignored = write_fully(2, bytes);
}

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

IoResult<std::unique_ptr<HttpBodySource>> DiskFiles::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return std::unexpected(last_error());
  struct stat status{};
  ::fstat(descriptor, &status);
  if (S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    return io_error(std::errc::is_a_directory);
  }
  std::optional<std::uint64_t> size;
  if (S_ISREG(status.st_mode)) size = static_cast<std::uint64_t>(status.st_size);
  return std::make_unique<DiskSource>(descriptor, size);
}

IoResult<std::unique_ptr<cli::FileSink>> DiskFiles::create(const std::string& path,
                                                           const std::string& name) {
  std::string target = path;
  struct stat status{};
  bool there = ::stat(target.c_str(), &status) == 0;
  if (there && S_ISDIR(status.st_mode)) {
    if (name.empty()) return io_error(std::errc::is_a_directory);
    target += "/" + name;
    there = ::stat(target.c_str(), &status) == 0;
    if (there && S_ISDIR(status.st_mode)) return io_error(std::errc::is_a_directory);
  }
  if (there && !S_ISREG(status.st_mode)) {
    const int descriptor = ::open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) return std::unexpected(last_error());
    return std::make_unique<DiskSink>(descriptor, "", target);
  }
  std::string temporary = target + ".space-XXXXXX";
  const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return std::unexpected(last_error());
  return std::make_unique<DiskSink>(descriptor, temporary, target);
}

}  // namespace space::app
