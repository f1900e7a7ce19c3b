#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ports/runtime.h"

// Small helpers over system calls for this folder. Blocking: used by space-stage, and by the
// manager only for small files.
namespace space::oci {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

std::unexpected<RuntimeFailure> failure(RuntimeError error, std::string detail);
// From errno; ENOSPC and EDQUOT become kNoSpace. `what` names the step.
std::unexpected<RuntimeFailure> errno_failure(std::string_view what);

// The whole file, refused beyond `limit` bytes. Works on /proc files.
RuntimeResult<std::string> read_file(const std::string& path, std::size_t limit);
RuntimeResult<void> write_all(int fd, std::string_view data);
// One write(2) into an existing kernel file.
RuntimeResult<void> write_kernel_file(const std::string& path, std::string_view data);
// Replaces `path`: every reader sees the old or the new content. After a crash of the machine the
// file may be empty or missing.
RuntimeResult<void> replace_file(const std::string& path, std::string_view data);
RuntimeResult<void> write_file(const std::string& path, std::string_view data, std::uint32_t mode);
RuntimeResult<void> sync_folder(const std::string& path);
RuntimeResult<void> make_folder(const std::string& path, std::uint32_t mode);
bool exists(const std::string& path);
// Removes a tree without following links or crossing into mounts; a missing one is success.
RuntimeResult<void> remove_tree(const std::string& path);
void sleep_ms(int milliseconds);
// Milliseconds of the boot-time clock.
std::int64_t now_ms();

}  // namespace space::oci
