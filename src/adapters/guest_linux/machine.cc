#include "adapters/guest_linux/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "adapters/guest_linux/descriptor.h"

namespace space::guest_linux {
namespace net = boost::asio;

namespace {

std::error_code last_error() { return {errno, std::system_category()}; }

class FolderListener final : public Listener {
 public:
  FolderListener(asio::Loop& loop, int fd)
      : loop_(loop), acceptor_(loop.context(), net::local::stream_protocol(), fd) {}
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    auto [error, socket] = co_await acceptor_.async_accept(net::as_tuple(net::use_awaitable));
    if (error == net::error::operation_aborted) co_return io_error(std::errc::operation_canceled);
    if (error) co_return std::unexpected(std::error_code(error.value(), std::system_category()));
    co_return asio::adopt_stream(loop_, socket.release());
  }
  void close() override {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  asio::Loop& loop_;
  net::local::stream_protocol::acceptor acceptor_;
};

}  // namespace

void LinuxClock::set(WallTime now) {
  const auto since = now.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = std::chrono::nanoseconds(since - seconds).count();
  // Refused in a container, which shares its host's clock.
  ::clock_settime(CLOCK_REALTIME, &time);
}

std::error_code bring_loopback_up() {
  const Descriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return last_error();
  ifreq request{};
  ::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  if (::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return last_error();
  if ((request.ifr_flags & IFF_UP) != 0) return {};
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return last_error();
  return {};
}

std::string boot_id() {
  const Descriptor fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[36];
  if (!fd || ::read(fd.get(), text, sizeof text) != sizeof text) return {};
  return {text, sizeof text};
}

IoResult<std::unique_ptr<Listener>> listen_in(asio::Loop& loop, int folder,
                                              const std::string& name) {
  Descriptor owned(folder);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return io_error(std::errc::filename_too_long);
  ::memcpy(address.sun_path, name.data(), name.size());
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Descriptor here(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd || !here || ::fchdir(owned.get()) != 0) return std::unexpected(last_error());
  const auto old_mask = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const auto error = last_error();
  ::umask(old_mask);
  if (::fchdir(here.get()) != 0) return std::unexpected(last_error());
  if (bound != 0) return std::unexpected(error);
  if (::listen(fd.get(), 128) != 0) return std::unexpected(last_error());
  return std::make_unique<FolderListener>(loop, fd.release());
}

}  // namespace space::guest_linux
