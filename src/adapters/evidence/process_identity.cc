#include "adapters/evidence/process_identity.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace space::evidence {
namespace {

// fs type of pidfs (Linux 6.9); before it a pidfd is an anonymous inode shared by all.
constexpr std::uint64_t kPidfsMagic = 0x50494446;

std::error_code last_error() { return {errno, std::generic_category()}; }

class Closer {
 public:
  explicit Closer(int fd) : fd_(fd) {}
  ~Closer() {
    if (fd_ >= 0) ::close(fd_);
  }
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

bool pidfd_alive(int pidfd) {
  pollfd wait{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, 0) == 0;
}

// Field 22 of /proc/PID/stat. The name in field 2 may hold anything, so fields count from its last
// ')'.
std::optional<std::uint64_t> start_time(int procdir) {
  const Closer file(::openat(procdir, "stat", O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return std::nullopt;
  std::array<char, 1024> buffer{};
  const auto size = ::read(file.get(), buffer.data(), buffer.size());
  if (size <= 0) return std::nullopt;
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  for (int field = 3; field <= 22; ++field) {
    if (!text.starts_with(' ')) return std::nullopt;
    text.remove_prefix(1);
    if (field < 22) text.remove_prefix(std::min(text.find(' '), text.size()));
  }
  return parse_decimal(text.substr(0, text.find(' ')));
}

}  // namespace

std::expected<identity::ProcessIdentity, std::error_code> read_process_identity(pid_t pid,
                                                                                int pidfd) {
  identity::ProcessIdentity process;
  process.pid = pid;
  struct statfs file_system{};
  struct stat inode{};
  if (::fstatfs(pidfd, &file_system) != 0 || ::fstat(pidfd, &inode) != 0) {
    return std::unexpected(last_error());
  }
  if (static_cast<std::uint64_t>(file_system.f_type) == kPidfsMagic) {
    process.pidfs_inode = inode.st_ino;
  }
  const std::string path = "/proc/" + std::to_string(pid);
  const Closer procdir(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (procdir.get() < 0) return std::unexpected(std::make_error_code(std::errc::no_such_process));
  const auto ticks = start_time(procdir.get());
  const bool exe_read = ::fstatat(procdir.get(), "exe", &inode, 0) == 0;
  const auto exe_error = last_error();
  if (!pidfd_alive(pidfd) || !ticks) {
    return std::unexpected(std::make_error_code(std::errc::no_such_process));
  }
  if (!exe_read) return std::unexpected(exe_error);
  process.start_time_ticks = *ticks;
  process.exe_device = inode.st_dev;
  process.exe_inode = inode.st_ino;
  return process;
}

std::expected<identity::ProcessIdentity, std::error_code> read_process_identity(pid_t pid) {
  const Closer pidfd(pid > 0 ? pidfd_open(pid) : -1);
  if (pidfd.get() < 0) return std::unexpected(std::make_error_code(std::errc::no_such_process));
  return read_process_identity(pid, pidfd.get());
}

std::expected<int, std::error_code> open_process(const identity::ProcessIdentity& expected) {
  Closer pidfd(expected.pid > 0 ? pidfd_open(expected.pid) : -1);
  if (pidfd.get() < 0) return std::unexpected(std::make_error_code(std::errc::no_such_process));
  const auto now = read_process_identity(expected.pid, pidfd.get());
  if (!now) return std::unexpected(now.error());
  if (now->start_time_ticks != expected.start_time_ticks ||
      now->pidfs_inode != expected.pidfs_inode) {
    return std::unexpected(std::make_error_code(std::errc::no_such_process));
  }
  return pidfd.release();
}

bool alive(const identity::ProcessIdentity& expected) {
  const auto pidfd = open_process(expected);
  if (pidfd) ::close(*pidfd);
  return pidfd.has_value();
}

}  // namespace space::evidence
