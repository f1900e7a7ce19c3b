#include "adapters/runtime_oci/sys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace space::oci {

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::unexpected<RuntimeFailure> failure(RuntimeError error, std::string detail) {
  return std::unexpected(RuntimeFailure{error, std::move(detail)});
}

std::unexpected<RuntimeFailure> errno_failure(std::string_view what) {
  const int code = errno;
  const bool full = code == ENOSPC || code == EDQUOT;
  return failure(full ? RuntimeError::kNoSpace : RuntimeError::kFailed,
                 std::string(what) + ": " + std::generic_category().message(code));
}

RuntimeResult<std::string> read_file(const std::string& path, std::size_t limit) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_failure("open " + path);
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto size = ::read(fd.get(), buffer.data(), buffer.size());
    if (size < 0) return errno_failure("read " + path);
    if (size == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
    if (text.size() > limit) return failure(RuntimeError::kFailed, path + " is too large");
  }
}

RuntimeResult<void> write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const auto size = ::write(fd, data.data(), data.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno_failure("write");
    data.remove_prefix(static_cast<std::size_t>(size));
  }
  return {};
}

RuntimeResult<void> write_kernel_file(const std::string& path, std::string_view data) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), data.data(), data.size()) < 0) return errno_failure("write " + path);
  return {};
}

RuntimeResult<void> write_file(const std::string& path, std::string_view data, std::uint32_t mode) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd || ::fchmod(fd.get(), mode) != 0) return errno_failure("create " + path);
  return write_all(fd.get(), data);
}

RuntimeResult<void> replace_file(const std::string& path, std::string_view data) {
  const std::string next = path + ".next";
  {
    const Fd fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd) return errno_failure("create " + next);
    if (auto written = write_all(fd.get(), data); !written) return written;
  }
  if (::rename(next.c_str(), path.c_str()) != 0) return errno_failure("rename " + next);
  return {};
}

RuntimeResult<void> sync_folder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return errno_failure("sync " + path);
  return {};
}

RuntimeResult<void> make_folder(const std::string& path, std::uint32_t mode) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return errno_failure("mkdir " + path);
  if (::chmod(path.c_str(), mode) != 0) return errno_failure("chmod " + path);
  return {};
}

bool exists(const std::string& path) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0;
}

RuntimeResult<void> remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return failure(RuntimeError::kFailed, "remove " + path + ": " + error.message());
  return {};
}

void sleep_ms(int milliseconds) {
  const timespec time{.tv_sec = milliseconds / 1000, .tv_nsec = (milliseconds % 1000) * 1'000'000L};
  ::nanosleep(&time, nullptr);
}

std::int64_t now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

}  // namespace space::oci
