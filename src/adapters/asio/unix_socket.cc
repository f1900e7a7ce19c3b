#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "adapters/asio/loop.h"
#include "ports/notifier.h"

namespace space::asio {
namespace net = boost::asio;
namespace {

using Socket = net::local::stream_protocol::socket;
constexpr auto kTuple = net::as_tuple(net::use_awaitable);

std::error_code to_std(const boost::system::error_code& error) {
  if (error == net::error::operation_aborted)
    return std::make_error_code(std::errc::operation_canceled);
  if (error == net::error::eof) return std::make_error_code(std::errc::connection_reset);
  return {error.value(), std::system_category()};
}

std::unexpected<std::error_code> last_error() {
  return std::unexpected(std::error_code(errno, std::system_category()));
}

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::optional<std::string> unix_path(const std::string& address) {
  if (!address.starts_with("unix:") || address.size() <= 5) return std::nullopt;
  return address.substr(5);
}

// An address below /proc/self/fd, which fits sun_path whatever the real path's length.
sockaddr_un through_descriptor(int fd, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto text = "/proc/self/fd/" + std::to_string(fd);
  if (!name.empty()) text += "/" + name;
  const auto count = std::min(text.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path, text.data(), count);
  return address;
}
const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

class SocketStream final : public Stream {
 public:
  explicit SocketStream(Socket socket) : socket_(std::move(socket)) {
    boost::system::error_code ignored;  // a socket that cannot will fail at its first use
    socket_.non_blocking(true, ignored);
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (getsockopt(socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
        credentials.pid > 0) {
      peer_ = PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
    }
  }
  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    const auto [error, count] =
        co_await socket_.async_read_some(net::buffer(buffer.data(), buffer.size()), kTuple);
    if (error == net::error::eof) co_return std::size_t{0};
    if (error) co_return std::unexpected(to_std(error));
    co_return count;
  }
  Task<IoResult<void>> write_all(ByteView data) override {
    // At once what the socket takes: mostly all of it, and cheaper than a suspension.
    boost::system::error_code error;
    data = data.subspan(socket_.write_some(net::buffer(data.data(), data.size()), error));
    if (error == net::error::would_block) error = {};
    if (!error && !data.empty()) {
      std::tie(error, std::ignore) =
          co_await net::async_write(socket_, net::buffer(data.data(), data.size()), kTuple);
    }
    if (error) co_return std::unexpected(to_std(error));
    co_return IoResult<void>{};
  }
  void close() override {
    boost::system::error_code ignored;  // closing a broken socket is not news
    socket_.shutdown(Socket::shutdown_both, ignored);
    socket_.close(ignored);
  }
  std::optional<PeerCredentials> peer() const override { return peer_; }

 private:
  Socket socket_;
  std::optional<PeerCredentials> peer_;
};

class SocketListener final : public Listener {
 public:
  SocketListener(Loop& loop, int fd, int lock)
      : context_(loop.context()),
        acceptor_(context_, net::local::stream_protocol(), fd),
        lock_(lock) {}
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    for (;;) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      // A peer that left while it waited is its own affair.
      if (error == net::error::connection_aborted) continue;
      if (error) co_return std::unexpected(to_std(error));
      // Asio accepts without it; a program this process starts must not inherit the connection
      // (C028).
      if (::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC) != 0) co_return last_error();
      co_return std::make_unique<SocketStream>(std::move(socket));
    }
  }
  void close() override {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  net::io_context& context_;
  net::local::stream_protocol::acceptor acceptor_;
  Descriptor lock_;
};

}  // namespace

std::unique_ptr<Stream> adopt_stream(Loop& loop, int descriptor) {
  return std::make_unique<SocketStream>(
      Socket(loop.context(), net::local::stream_protocol(), descriptor));
}

Task<IoResult<std::unique_ptr<Stream>>> UnixDialer::dial(std::string address, MonoTime deadline) {
  const auto path = unix_path(address);
  if (!path) co_return io_error(std::errc::invalid_argument);
  for (;;) {
    const Descriptor target(::open(path->c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!target) co_return last_error();
    struct stat info{};
    if (fstat(target.get(), &info) != 0) co_return last_error();
    if (!S_ISSOCK(info.st_mode)) co_return io_error(std::errc::not_a_socket);
    Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) co_return last_error();
    const auto to = through_descriptor(target.get(), {});
    if (::connect(fd.get(), generic(to), sizeof to) == 0) {
      co_return adopt_stream(loop_, fd.release());
    }
    if (errno != EAGAIN) co_return last_error();
    // The backlog is full: Unix sockets give no readiness for that, so look again soon.
    if (loop_.now() >= deadline) co_return io_error(std::errc::timed_out);
    if (!co_await sleep_for(loop_, std::chrono::milliseconds(5))) {
      co_return io_error(std::errc::operation_canceled);
    }
  }
}

IoResult<std::unique_ptr<Listener>> listen_unix(Loop& loop, const std::string& address,
                                                unsigned mode) {
  const auto text = unix_path(address);
  if (!text) return io_error(std::errc::invalid_argument);
  const std::filesystem::path path(*text);
  const auto folder_path = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const auto name = path.filename().string();
  const Descriptor folder(::open(folder_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return last_error();

  // The lock says whether a listener is alive; the socket file alone cannot (C033).
  Descriptor lock(::openat(folder.get(), (name + ".lock").c_str(),
                           O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return last_error();
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return io_error(std::errc::address_in_use);
  struct stat info{};
  if (::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISSOCK(info.st_mode)) return io_error(std::errc::file_exists);
    const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto to = through_descriptor(folder.get(), name);
    if (::connect(probe.get(), generic(to), sizeof to) == 0 || errno == EAGAIN) {
      return io_error(std::errc::address_in_use);
    }
    if (::unlinkat(folder.get(), name.c_str(), 0) != 0) return last_error();
  }

  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return last_error();
  // The mode holds from the first moment: a bound socket takes it from its inode and the umask
  // (C030).
  const auto old_mask = ::umask(static_cast<mode_t>(~mode & 0777U));
  const auto at = through_descriptor(folder.get(), name);
  const int bound = ::bind(fd.get(), generic(at), sizeof at);
  const int bind_errno = errno;
  ::umask(old_mask);
  if (bound != 0) return std::unexpected(std::error_code(bind_errno, std::system_category()));
  if (::listen(fd.get(), 128) != 0) return last_error();
  return std::make_unique<SocketListener>(loop, fd.release(), lock.release());
}

Task<bool> process_ended(Loop& loop, int pidfd, MonoTime deadline) {
  net::posix::stream_descriptor descriptor(loop.context(), ::dup(pidfd));
  bool late = false;
  auto alarm = loop.at(deadline, [&] {
    late = true;
    descriptor.cancel();
  });
  const auto [error] =
      co_await descriptor.async_wait(net::posix::stream_descriptor::wait_read, kTuple);
  co_return !error && !late;
}

}  // namespace space::asio
