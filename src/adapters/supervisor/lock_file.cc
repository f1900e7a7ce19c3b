#include "adapters/supervisor/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace space::supervisor {
namespace {
constexpr std::size_t kMaxSmallFile = 1U << 20;
std::error_code last_error() { return {errno, std::generic_category()}; }
}  // namespace

std::expected<std::optional<LockFile>, std::error_code> LockFile::acquire(
    const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return std::unexpected(last_error());
  LockFile lock(descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return std::nullopt;
  return std::unexpected(last_error());
}

bool LockFile::held(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool taken = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return taken;
}

LockFile::LockFile(LockFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
LockFile::~LockFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::error_code write_atomically(const std::filesystem::path& path, std::string_view content,
                                 unsigned mode) {
  const std::string temporary = path.string() + ".new";
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return last_error();
  std::error_code error;
  std::string_view rest = content;
  while (!rest.empty() && !error) {
    const auto count = ::write(descriptor, rest.data(), rest.size());
    if (count < 0) {
      error = last_error();
    } else {
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  if (!error && (::fchmod(descriptor, mode) != 0 || ::fsync(descriptor) != 0)) error = last_error();
  ::close(descriptor);
  if (!error && ::rename(temporary.c_str(), path.c_str()) != 0) error = last_error();
  if (error) ::unlink(temporary.c_str());
  return error;
}

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto count = ::read(descriptor, buffer.data(), buffer.size());
    if (count == 0) break;
    if (count < 0 || text.size() + static_cast<std::size_t>(count) > kMaxSmallFile) {
      ::close(descriptor);
      return std::nullopt;
    }
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  return text;
}

}  // namespace space::supervisor
