#include "adapters/bridge/guest_dial.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "adapters/evidence/process_identity.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace space::bridge {
namespace {

constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

// What an error on the way to the socket file says of the listener. Only what was found counts
// against it; a lack of ours (descriptors, memory) is a bridge that could not be started.
BridgeError path_error(int error) {
  if (error == ENOENT) return BridgeError::kNoListener;
  if (error == ELOOP || error == ENOTDIR) return BridgeError::kPathChanged;
  return BridgeError::kBridgeNotStarted;
}

// The recorded socket file, opened without following a link at its end; the folder above it must be
// one that only its owner can change.
std::expected<Fd, BridgeError> open_socket(const identity::TransportIdentity& transport) {
  const std::filesystem::path path = transport.socket_path;
  const Fd folder(
      ::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!folder || ::fstat(folder.get(), &info) != 0) {
    return std::unexpected(path_error(errno));
  }
  if ((info.st_mode & kWritableByOthers) != 0) return std::unexpected(BridgeError::kPathChanged);
  Fd socket(::openat(folder.get(), path.filename().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!socket || ::fstat(socket.get(), &info) != 0) {
    return std::unexpected(path_error(errno));
  }
  if (!S_ISSOCK(info.st_mode) || info.st_dev != transport.path_device ||
      info.st_ino != transport.path_inode) {
    return std::unexpected(BridgeError::kPathChanged);
  }
  return socket;
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::expected<identity::ProcessIdentity, std::error_code> peer_process(int fd, Log& log) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || credentials.pid <= 0) {
    return std::unexpected(std::make_error_code(std::errc::no_such_process));
  }
  int raw = -1;
  size = sizeof raw;
  const bool has_pidfd = ::getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &raw, &size) == 0;
  const int error = errno;
  const Fd pidfd(has_pidfd ? raw : -1);
  if (has_pidfd) return evidence::read_process_identity(credentials.pid, pidfd.get());
  if (error != ENOPROTOOPT) {
    // EINVAL is a peer that was reaped already.
    return std::unexpected(
        std::error_code(error == EINVAL ? ESRCH : error, std::generic_category()));
  }
  static bool told = false;
  if (!std::exchange(told, true)) {
    log.event(Level::kWarning, "evidence.weaker",
              {{"reason", "this kernel has no SO_PEERPIDFD: a peer is known by its pid alone"}});
  }
  return evidence::read_process_identity(credentials.pid);
}

Task<std::expected<Fd, BridgeError>> dial_guest(Timer& timer, Log& log, BridgeTarget target,
                                                MonoTime deadline) {
  const auto path = open_socket(target.transport);
  if (!path) co_return std::unexpected(path.error());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name = "/proc/self/fd/" + std::to_string(path->get());
  std::memcpy(address.sun_path, name.data(), name.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) co_return std::unexpected(BridgeError::kBridgeNotStarted);
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    // The backlog is full; Unix sockets give no readiness for that.
    if (errno == ECONNREFUSED) co_return std::unexpected(BridgeError::kNoListener);
    if (errno != EAGAIN && errno != EINTR) {
      co_return std::unexpected(BridgeError::kBridgeNotStarted);
    }
    if (timer.now() >= deadline || !co_await sleep_for(timer, std::chrono::milliseconds(5))) {
      co_return std::unexpected(BridgeError::kTimedOut);
    }
  }

  const auto& expected = target.guest_process;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.pid != expected.pid) {
    co_return std::unexpected(BridgeError::kWrongPeerProcess);
  }
  const auto process = peer_process(fd.get(), log);
  if (!process) {
    co_return std::unexpected(process.error() == std::errc::no_such_process
                                  ? BridgeError::kProcessGone
                                  : BridgeError::kBridgeNotStarted);
  }
  if (process->start_time_ticks != expected.start_time_ticks ||
      process->pidfs_inode != expected.pidfs_inode) {
    co_return std::unexpected(BridgeError::kProcessGone);
  }
  if (process->exe_device != expected.exe_device || process->exe_inode != expected.exe_inode) {
    co_return std::unexpected(BridgeError::kExecutableChanged);
  }
  co_return fd;
}

}  // namespace space::bridge
