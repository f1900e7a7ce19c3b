#include "adapters/bridge/bridge_process_launcher.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "adapters/bridge/guest_dial.h"
#include "adapters/bridge/spawn.h"
#include "adapters/evidence/process_identity.h"

namespace space::bridge {
namespace net = boost::asio;
namespace {

using Protocol = net::local::stream_protocol;

// The leg to spaced-host together with its process.
class BridgeStream final : public Stream {
 public:
  BridgeStream(std::unique_ptr<Stream> stream, Child child)
      : stream_(std::move(stream)), child_(std::move(child)) {}
  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    return stream_->read_some(buffer);
  }
  Task<IoResult<void>> write_all(ByteView data) override { return stream_->write_all(data); }
  void close() override {
    stream_->close();
    child_.end();
  }
  std::optional<PeerCredentials> peer() const override { return stream_->peer(); }

 private:
  std::unique_ptr<Stream> stream_;
  Child child_;
};

// A listening socket in a folder of root alone, connectable by `uid`. Gone from the folder with
// this.
class Door {
 public:
  static std::optional<Door> open(const std::string& folder, const std::string& name,
                                  std::uint32_t uid) {
    Door door;
    door.folder_ = Fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    door.listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!door.folder_ || !door.listener_) return std::nullopt;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto path = "/proc/self/fd/" + std::to_string(door.folder_.get()) + "/" + name;
    if (path.size() >= sizeof address.sun_path) return std::nullopt;
    std::memcpy(address.sun_path, path.data(), path.size());
    ::unlinkat(door.folder_.get(), name.c_str(), 0);
    const auto mask = ::umask(0177);
    const int bound =
        ::bind(door.listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::umask(mask);
    if (bound != 0) return std::nullopt;
    door.name_ = name;
    if (::fchownat(door.folder_.get(), name.c_str(), uid, uid, AT_SYMLINK_NOFOLLOW) != 0 ||
        ::listen(door.listener_.get(), 1) != 0) {
      return std::nullopt;
    }
    door.path_ = Fd(::openat(door.folder_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!door.path_) return std::nullopt;
    return door;
  }
  Door(Door&& other) noexcept = default;
  Door& operator=(Door&&) = delete;
  ~Door() { remove(); }

  void remove() {
    if (!name_.empty() && folder_) ::unlinkat(folder_.get(), name_.c_str(), 0);
    name_.clear();
  }
  int path() const { return path_.get(); }
  int take_listener() { return listener_.release(); }

 private:
  Door() = default;
  Fd folder_;
  Fd listener_;
  Fd path_;  // O_PATH of the socket file: connecting through it needs no right to search the
             // folders
  std::string name_;
};

// One connection, unless the child ends or the deadline passes first.
Task<std::expected<Fd, BridgeError>> accept_child(asio::Loop& loop, int listener, int pidfd,
                                                  MonoTime deadline) {
  struct Wait {
    Wait(net::io_context& context, int listener_fd, int child)
        : acceptor(context, Protocol(), listener_fd), ended(context, child) {}
    Protocol::acceptor acceptor;
    net::posix::stream_descriptor ended;
    bool gone = false;
  };
  const auto wait =
      std::make_shared<Wait>(loop.context(), listener, ::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
  wait->ended.async_wait(net::posix::stream_descriptor::wait_read,
                         [wait](const boost::system::error_code& error) {
                           if (error) return;
                           wait->gone = true;
                           wait->acceptor.close();
                         });
  const auto alarm = loop.at(deadline, [wait] { wait->acceptor.close(); });
  auto [error, socket] = co_await wait->acceptor.async_accept(net::as_tuple(net::use_awaitable));
  wait->ended.close();
  if (!error) {
    const Fd accepted(socket.release());
    co_return Fd(::fcntl(accepted.get(), F_DUPFD_CLOEXEC, 0));
  }
  co_return std::unexpected(wait->gone ? BridgeError::kBridgeNotStarted : BridgeError::kTimedOut);
}

}  // namespace

BridgeProcessLauncher::BridgeProcessLauncher(asio::Loop& loop, Log& log, LauncherOptions options)
    : loop_(loop), log_(log), options_(std::move(options)) {}

Task<std::expected<BridgeLink, BridgeError>> BridgeProcessLauncher::launch(BridgeTarget target,
                                                                           MonoTime deadline) {
  const auto failed = [this](std::string_view what, std::error_code error) {
    log_.event(Level::kError, "bridge.not_started", {{"step", what}, {"reason", error.message()}});
    return std::unexpected(BridgeError::kBridgeNotStarted);
  };
  const auto last_error = [] { return std::error_code(errno, std::generic_category()); };
  if (options_.uid == 0) co_return failed("uid", std::make_error_code(std::errc::invalid_argument));
  if (!folder_ready_) {
    std::error_code error;
    std::filesystem::remove_all(options_.folder, error);  // sockets of an earlier run
    if (::mkdir(options_.folder.c_str(), 0700) != 0) co_return failed("folder", last_error());
    folder_ready_ = true;
  }
  const auto guest_process = target.guest_process;
  auto guest = co_await dial_guest(loop_, log_, std::move(target), deadline);
  if (!guest) co_return std::unexpected(guest.error());

  const Fd program(::open(options_.program.c_str(), O_PATH | O_CLOEXEC));
  struct stat executable{};
  if (!program || ::fstat(program.get(), &executable) != 0) co_return failed("open", last_error());
  auto door =
      Door::open(options_.folder, "bridge-" + std::to_string(next_++) + ".sock", options_.uid);
  if (!door) co_return failed("listen", last_error());
  auto child =
      spawn_unprivileged(program.get(), "spaced-host", options_.uid, door->path(), guest->get());
  if (!child) co_return failed("spawn", child.error());
  auto accepted = co_await accept_child(loop_, door->take_listener(), child->pidfd(), deadline);
  door->remove();
  if (!accepted) co_return std::unexpected(accepted.error());

  ucred credentials{};
  socklen_t size = sizeof credentials;
  const auto peer = peer_process(accepted->get(), log_);
  const auto spawned = evidence::read_process_identity(child->pid(), child->pidfd());
  if (::getsockopt(accepted->get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
      credentials.pid != child->pid() || credentials.uid != options_.uid || !peer || !spawned ||
      *peer != *spawned || spawned->exe_device != executable.st_dev ||
      spawned->exe_inode != executable.st_ino) {
    co_return std::unexpected(BridgeError::kWrongBridgePeer);
  }
  // The guest's process must have lived through all of it (C026).
  if (!evidence::alive(guest_process)) co_return std::unexpected(BridgeError::kProcessGone);
  auto stream = asio::adopt_stream(loop_, accepted->release());
  BridgeLink link;
  link.stream = std::make_unique<BridgeStream>(std::move(stream), *std::move(child));
  link.process = *spawned;
  link.evidence = "basic";
  co_return link;
}

}  // namespace space::bridge
