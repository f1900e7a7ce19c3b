#include "adapters/crypto/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/text.h"

namespace space::crypto {
namespace {

using Kind = KeyFileError::Kind;

std::unexpected<KeyFileError> failed(Kind kind, int error = 0) {
  return std::unexpected(KeyFileError{kind, std::error_code(error, std::generic_category())});
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

bool write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

// Reads until `out` is full or the file ends.
std::optional<std::size_t> read_up_to(int fd, std::span<std::byte> out) {
  std::size_t size = 0;
  while (size < out.size()) {
    const auto got = ::read(fd, out.data() + size, out.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return size;
}

bool sync_folder_of(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && ::fsync(fd.get()) == 0;
}

}  // namespace

std::string describe(const std::string& path, const KeyFileError& error) {
  switch (error.kind) {
    case Kind::kNotFound:
    case Kind::kExists:
    case Kind::kIo:
      return path + ": " + error.code.message();
    case Kind::kUnsafe:
      return path + ": must be a file of this user with mode 0600";
    case Kind::kMalformed:
      return path + ": is not a key of the expected form";
  }
  std::unreachable();
}

std::expected<void, KeyFileError> create_key_file(const std::string& path, ByteView content,
                                                  Entropy& entropy) {
  std::array<std::byte, 8> suffix{};
  entropy.fill(suffix);
  const auto temporary = path + ".new-" + to_hex(suffix);
  const Descriptor fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed(Kind::kIo, errno);
  // fchmod, since the umask may have taken the owner's own bits.
  if (::fchmod(fd.get(), 0600) != 0 || !write_all(fd.get(), content) || ::fsync(fd.get()) != 0 ||
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return failed(error == EEXIST ? Kind::kExists : Kind::kIo, error);
  }
  if (!sync_folder_of(path)) return failed(Kind::kIo, errno);
  return {};
}

std::expected<std::size_t, KeyFileError> read_key_file(const std::string& path,
                                                       std::span<std::byte> out) {
  // O_NONBLOCK: opening a FIFO in the file's place must not wait for a writer.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    switch (errno) {
      case ENOENT:
        return failed(Kind::kNotFound, errno);
      case ELOOP:
        return failed(Kind::kUnsafe, errno);
      default:
        return failed(Kind::kIo, errno);
    }
  }
  struct ::stat status{};
  if (::fstat(fd.get(), &status) != 0) return failed(Kind::kIo, errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    return failed(Kind::kUnsafe);
  }
  const auto size = read_up_to(fd.get(), out);
  if (!size) return failed(Kind::kIo, errno);
  std::byte more{};
  const auto rest = read_up_to(fd.get(), std::span(&more, 1));
  if (!rest) return failed(Kind::kIo, errno);
  if (*rest != 0) return failed(Kind::kMalformed);
  return *size;
}

}  // namespace space::crypto
