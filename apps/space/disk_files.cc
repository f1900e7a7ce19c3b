#include "disk_files.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace space::app {
namespace {

namespace fs = std::filesystem;

std::error_code last_error() { return {errno, std::generic_category()}; }

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

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

// A file below an open folder: written beside its place and renamed there.
class BelowSink final : public cli::FileSink {
 public:
  BelowSink(int folder, int descriptor, std::string temporary, std::string name, std::uint32_t mode)
      : folder_(folder),
        descriptor_(descriptor),
        temporary_(std::move(temporary)),
        name_(std::move(name)),
        mode_(mode) {}
  ~BelowSink() override {
    if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
  }
  IoResult<void> write(ByteView bytes) override {
    return write_fully(descriptor_.get(), as_text(bytes));
  }
  IoResult<void> commit() override {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(descriptor_.get(), mode_ & 0777U & ~mask) != 0 ||
        ::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0) {
      return std::unexpected(last_error());
    }
    temporary_.clear();
    return {};
  }

 private:
  Descriptor folder_;
  Descriptor descriptor_;
  std::string temporary_;
  std::string name_;
  std::uint32_t mode_;
};

class DiskFolder final : public cli::FolderSink {
 public:
  explicit DiskFolder(int root) : root_(root) {}

  IoResult<void> make_folder(const std::string& path) override {
    const auto parent = parent_of(path);
    if (!parent) return std::unexpected(last_error());
    if (::mkdirat(parent.get(), base_of(path).c_str(), 0777) == 0) return {};
    struct stat status{};
    if (errno != EEXIST ||
        ::fstatat(parent.get(), base_of(path).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return std::unexpected(last_error());
    }
    if (!S_ISDIR(status.st_mode)) return io_error(std::errc::not_a_directory);
    return {};
  }

  IoResult<std::unique_ptr<cli::FileSink>> create(const std::string& path,
                                                  std::uint32_t mode) override {
    const auto parent = parent_of(path);
    if (!parent) return std::unexpected(last_error());
    const auto name = base_of(path);
    struct stat status{};
    if (::fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(status.st_mode)) {
      return io_error(std::errc::is_a_directory);
    }
    auto temporary = ".space-" + std::to_string(::getpid()) + "-" + std::to_string(++made_);
    const int descriptor = ::openat(parent.get(), temporary.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (descriptor < 0) return std::unexpected(last_error());
    const int folder = ::fcntl(parent.get(), F_DUPFD_CLOEXEC, 3);
    return std::make_unique<BelowSink>(folder, descriptor, std::move(temporary), name, mode);
  }

  IoResult<void> make_symlink(const std::string& path, const std::string& target) override {
    const auto parent = parent_of(path);
    if (!parent) return std::unexpected(last_error());
    const auto name = base_of(path);
    struct stat status{};
    if (::fstatat(parent.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode)) {
      ::unlinkat(parent.get(), name.c_str(), 0);
    }
    if (::symlinkat(target.c_str(), parent.get(), name.c_str()) != 0) {
      return std::unexpected(last_error());
    }
    return {};
  }

 private:
  static std::string base_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  // The folder that holds `path`, reached from the root without a symlink and without "..".
  Descriptor parent_of(const std::string& path) const {
    const auto slash = path.rfind('/');
    const auto parent = slash == std::string::npos ? std::string(".") : path.substr(0, slash);
    open_how how{};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    return Descriptor(
        static_cast<int>(::syscall(SYS_openat2, root_.get(), parent.c_str(), &how, sizeof how)));
  }

  Descriptor root_;
  std::uint64_t made_ = 0;
};

}  // namespace

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

IoResult<std::vector<cli::LocalEntry>> DiskFiles::walk(const std::string& path) {
  std::vector<cli::LocalEntry> entries;
  std::error_code error;
  fs::recursive_directory_iterator at(path, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const auto status = at->symlink_status(error);
    if (error) break;
    cli::LocalEntry entry;
    entry.path = at->path().lexically_relative(path).generic_string();
    entry.mode = static_cast<std::uint32_t>(status.permissions()) & 07777U;
    entry.type = fs::is_symlink(status)        ? cli::LocalType::kSymlink
                 : fs::is_directory(status)    ? cli::LocalType::kFolder
                 : fs::is_regular_file(status) ? cli::LocalType::kFile
                                               : cli::LocalType::kOther;
    entries.push_back(std::move(entry));
  }
  if (error) return std::unexpected(error);
  std::ranges::sort(entries, {}, &cli::LocalEntry::path);
  return entries;
}

IoResult<std::unique_ptr<cli::FolderSink>> DiskFiles::create_folder(const std::string& path,
                                                                    const std::string& name) {
  std::error_code error;
  fs::path target(path);
  if (fs::is_directory(target, error) && !name.empty()) target /= name;
  fs::create_directory(target, error);
  if (error) return std::unexpected(error);
  const int root = ::open(target.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return std::unexpected(last_error());
  return std::make_unique<DiskFolder>(root);
}

}  // namespace space::app
