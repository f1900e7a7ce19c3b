#include "adapters/runtime_oci/disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "adapters/runtime_oci/command.h"
#include "base/check.h"
#include "base/result.h"

namespace space::oci {
namespace {
constexpr std::size_t kCopyChunk = 64U << 20;
constexpr int kLoopAttempts = 100;
constexpr std::string_view kMark = "space template ";
constexpr std::size_t kMaxMarked = 200;

RuntimeResult<void> copy_range(int from, int to, off_t begin, off_t end) {
  off_t read_at = begin;
  off_t write_at = begin;
  while (read_at < end) {
    const auto chunk = std::min(static_cast<std::size_t>(end - read_at), kCopyChunk);
    const auto done = ::copy_file_range(from, &read_at, to, &write_at, chunk, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno_failure("copy");
    if (done == 0) return failure(RuntimeError::kFailed, "copy: the source became shorter");
  }
  return {};
}
}  // namespace

RuntimeResult<std::string> empty_image(const std::string& templates_folder, std::uint64_t bytes) {
  if (bytes < kMinDiskBytes) {
    return failure(RuntimeError::kUnsupported, "disk_bytes must be at least 16 MiB");
  }
  const std::uint64_t mib = (bytes + (1U << 20) - 1) >> 20;
  std::string path = templates_folder + "/ext4-" + std::to_string(mib) + "m.img";
  if (exists(path)) return path;
  const std::string next = path + "." + std::to_string(::getpid());
  {
    const Fd fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!fd) return errno_failure("create " + next);
    if (::ftruncate(fd.get(), static_cast<off_t>(mib << 20)) != 0) return errno_failure("truncate");
  }
  // No reserved blocks: the disk is the sandbox's own. The journal keeps it whole over a crash.
  SPACE_TRY(const int status,
            run_command({"mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", "-O", "^resize_inode",
                         "-E", "nodiscard,lazy_itable_init=1,root_owner=0:0", next}));
  const Fd made(::open(next.c_str(), O_RDONLY | O_CLOEXEC));
  if (status != 0 || !made || ::fsync(made.get()) != 0 ||
      ::rename(next.c_str(), path.c_str()) != 0) {
    ::unlink(next.c_str());
    return failure(RuntimeError::kFailed, "mkfs.ext4 failed");
  }
  return path;
}

RuntimeResult<void> copy_sparse(const std::string& from, const std::string& to) {
  const Fd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source) return errno_failure("open " + from);
  const Fd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!target) return errno_failure("create " + to);
  if (::ioctl(target.get(), FICLONE, source.get()) == 0) return {};
  struct stat info{};
  if (::fstat(source.get(), &info) != 0) return errno_failure("stat " + from);
  if (::ftruncate(target.get(), info.st_size) != 0) return errno_failure("truncate " + to);
  for (off_t at = 0; at < info.st_size;) {
    const off_t data = ::lseek(source.get(), at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // the rest is a hole
    const off_t hole = data < 0 ? -1 : ::lseek(source.get(), data, SEEK_HOLE);
    if (hole < 0) return errno_failure("seek " + from);
    if (auto copied = copy_range(source.get(), target.get(), data, hole); !copied) return copied;
    at = hole;
  }
  return {};
}

RuntimeResult<void> mark_template(const std::string& image, const std::string& name) {
  const std::string mark = std::string(kMark) + name + "\n";
  const Fd fd(::open(image.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return errno_failure("open " + image);
  SPACE_ASSERT(name.size() <= kMaxMarked);
  if (::pwrite(fd.get(), mark.data(), mark.size(), 0) != std::ssize(mark)) {
    return errno_failure("mark " + image);
  }
  return {};
}

RuntimeResult<std::string> marked_template(const std::string& image) {
  const Fd fd(::open(image.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_failure("open " + image);
  std::array<char, kMark.size() + kMaxMarked + 1> buffer{};
  const auto size = ::pread(fd.get(), buffer.data(), buffer.size(), 0);
  if (size < 0) return errno_failure("read " + image);
  std::string_view text(buffer.data(), static_cast<std::size_t>(size));
  if (text.find_first_not_of('\0') == std::string_view::npos) return std::string();
  const auto end = text.find('\n');
  if (!text.starts_with(kMark) || end == std::string_view::npos) {
    return failure(RuntimeError::kFailed, image + " is marked by somebody else");
  }
  return std::string(text.substr(kMark.size(), end - kMark.size()));
}

RuntimeResult<LoopDevice> attach_loop(const std::string& image) {
  const Fd file(::open(image.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return errno_failure("open " + image);
  const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control) return errno_failure("open /dev/loop-control");
  for (int attempt = 0; attempt < kLoopAttempts; ++attempt) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return errno_failure("find a free loop device");
    LoopDevice device;
    device.path = "/dev/loop" + std::to_string(number);
    device.fd = Fd(::open(device.path.c_str(), O_RDWR | O_CLOEXEC));
    if (!device.fd) return errno_failure("open " + device.path);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(file.get());
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device.fd.get(), LOOP_CONFIGURE, &config) == 0) return device;
    if (errno != EBUSY) return errno_failure("set up " + device.path);  // EBUSY: another won it
  }
  return failure(RuntimeError::kFailed, "no free loop device");
}

RuntimeResult<void> wait_loop_gone(const std::string& image, std::int64_t deadline_ms) {
  const auto used = [&image] {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block", error)) {
      if (!entry.path().filename().string().starts_with("loop")) continue;
      const auto file = read_file(entry.path().string() + "/loop/backing_file", 8192);
      if (file && *file == image + "\n") return true;
    }
    return false;
  };
  while (used()) {
    if (now_ms() >= deadline_ms) {
      return failure(RuntimeError::kTimedOut, image + " is still mounted");
    }
    sleep_ms(1);
  }
  return {};
}

}  // namespace space::oci
