#pragma once
#include <expected>
#include <system_error>
#include <utility>

#include "ports/bridge.h"
#include "ports/log.h"

namespace space::bridge {

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
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Connects to the guest's listener and verifies it with the basic evidence: the socket file is the
// recorded inode in a folder that others cannot write, and the process that listens there is the
// recorded one, alive, with the recorded start time, pidfs inode and executable (BR-1, BR-2).
// Nothing is read or written.
//
// On a kernel without SO_PEERPIDFD (only ENOPROTOOPT says so, C027) the pid stands alone for the
// peer, which leaves the window of a reused pid with an equal start time.
//
// A full backlog is waited out until `deadline`.
Task<std::expected<Fd, BridgeError>> dial_guest(Timer& timer, Log& log, BridgeTarget target,
                                                MonoTime deadline);

// The process at the other end of the connected socket `fd` as the kernel shows it now: of an
// accepted connection who connected, of a dialled one who listens. Errors: no_such_process when it
// is gone; others when it cannot be read.
std::expected<identity::ProcessIdentity, std::error_code> peer_process(int fd, Log& log);

}  // namespace space::bridge
