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

// The recorded socket file, opened without following a link at its end; the folder above it must be
// one that only its owner can change.
std::expected<Fd, BridgeError> open_socket(const identity::TransportIdentity& transport) {
  const std::filesystem::path path = transport.socket_path;
  const Fd folder(
      ::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!folder || ::fstat(folder.get(), &info) != 0) {
    return std::unexpected(errno == ENOENT ? BridgeError::kNoListener : BridgeError::kPathChanged);
  }
  if ((info.st_mode & kWritableByOthers) != 0) return std::unexpected(BridgeError::kPathChanged);
  Fd socket(::openat(folder.get(), path.filename().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!socket || ::fstat(socket.get(), &info) != 0) {
    return std::unexpected(errno == ENOENT ? BridgeError::kNoListener : BridgeError::kPathChanged);
  }
  if (!S_ISSOCK(info.st_mode) || info.st_dev != transport.path_device ||
      info.st_ino != transport.path_inode) {
    return std::unexpected(BridgeError::kPathChanged);
  }
  return socket;
}

// A pidfd of the peer. kWeaker: this kernel has no SO_PEERPIDFD.
enum class PidfdError { kRefused, kWeaker };
std::expected<Fd, PidfdError> peer_pidfd(int fd) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) return Fd(pidfd);
  return std::unexpected(errno == ENOPROTOOPT ? PidfdError::kWeaker : PidfdError::kRefused);
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<identity::ProcessIdentity> peer_process(int fd, Log& log) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 || credentials.pid <= 0) {
    return std::nullopt;
  }
  const auto pidfd = peer_pidfd(fd);
  if (!pidfd && pidfd.error() == PidfdError::kRefused) return std::nullopt;
  if (!pidfd) {
    static bool told = false;
    if (!std::exchange(told, true)) {
      log.event(Level::kWarning, "evidence.weaker",
                {{"reason", "this kernel has no SO_PEERPIDFD: a peer is known by its pid alone"}});
    }
  }
  const auto process = pidfd ? evidence::read_process_identity(credentials.pid, pidfd->get())
                             : evidence::read_process_identity(credentials.pid);
  if (!process) return std::nullopt;
  return *process;
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
    if (errno != EAGAIN && errno != EINTR) co_return std::unexpected(BridgeError::kNoListener);
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
  if (!process) co_return std::unexpected(BridgeError::kProcessGone);
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
