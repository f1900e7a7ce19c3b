#include "adapters/bridge/bridge_process_launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "adapters/bridge/guest_dial.h"
#include "adapters/evidence/process_identity.h"

namespace space::bridge {
namespace {

namespace fs = std::filesystem;
constexpr std::uint32_t kUid = 64'321;

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

int bind_and_listen(const fs::path& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto text = path.string();
  std::memcpy(address.sun_path, text.data(), text.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 8) != 0) {
    return -1;
  }
  return fd;
}

// Stands for a guest: a process that listens and does nothing else.
class BridgeProcessLauncherTest : public ::testing::Test {
 protected:
  BridgeProcessLauncherTest() {
    if (::geteuid() != 0) return;
    char name[] = "/tmp/space-bridge-XXXXXX";
    folder_ = ::mkdtemp(name);
    fs::create_directory(folder_ / "vsock");
    ::chmod((folder_ / "vsock").c_str(), 0700);
    socket_ = folder_ / "vsock" / "v.sock";
    guest_ = start_guest(socket_);
    target_.guest_process = *evidence::read_process_identity(guest_);
    target_.transport = transport();
  }
  ~BridgeProcessLauncherTest() override {
    end_guest();
    if (!folder_.empty()) fs::remove_all(folder_);
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }

  static pid_t start_guest(const fs::path& socket) {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (bind_and_listen(socket) < 0 || ::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return pid;
  }
  void end_guest() {
    if (guest_ <= 0) return;
    ::kill(guest_, SIGKILL);
    ::waitpid(guest_, nullptr, 0);
    guest_ = 0;
  }
  identity::TransportIdentity transport() const {
    struct stat info{};
    EXPECT_EQ(::stat(socket_.c_str(), &info), 0);
    identity::TransportIdentity made;
    made.socket_path = socket_;
    made.path_device = info.st_dev;
    made.path_inode = info.st_ino;
    return made;
  }
  Task<int> dial_task(std::expected<Fd, BridgeError>& result) {
    result = co_await dial_guest(loop_, log_, target_, loop_.now() + std::chrono::seconds(60));
    co_return 0;
  }
  std::optional<BridgeError> dial() {
    std::expected<Fd, BridgeError> result = std::unexpected(BridgeError::kTimedOut);
    loop_.run(dial_task(result), {});
    if (result) return std::nullopt;
    return result.error();
  }
  Task<int> launch_task(std::string program, std::expected<BridgeLink, BridgeError>& result) {
    LauncherOptions options;
    options.program = std::move(program);
    options.folder = folder_ / "bridges";
    options.uid = kUid;
    BridgeProcessLauncher launcher(loop_, log_, options);
    result = co_await launcher.launch(target_, loop_.now() + std::chrono::seconds(60));
    co_return 0;
  }
  std::expected<BridgeLink, BridgeError> launch(std::string program) {
    std::expected<BridgeLink, BridgeError> result = std::unexpected(BridgeError::kTimedOut);
    loop_.run(launch_task(std::move(program), result), {});
    return result;
  }
  static std::map<std::string, std::string> status_of(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/status");
    std::map<std::string, std::string> fields;
    for (std::string line; std::getline(in, line);) {
      const auto colon = line.find(":\t");
      if (colon != std::string::npos) fields[line.substr(0, colon)] = line.substr(colon + 2);
    }
    return fields;
  }

  asio::Loop loop_;
  NoLog log_;
  fs::path folder_;
  fs::path socket_;
  pid_t guest_ = 0;
  BridgeTarget target_;
};

TEST_F(BridgeProcessLauncherTest, BR1_BR2_TheRecordedListenerIsAccepted) {
  EXPECT_EQ(dial(), std::nullopt);
}

TEST_F(BridgeProcessLauncherTest, BR2_ASocketBoundAnewAtThePathIsAnother) {
  fs::remove(socket_);
  const int other = bind_and_listen(socket_);
  EXPECT_EQ(dial(), BridgeError::kPathChanged);
  ::close(other);
}

TEST_F(BridgeProcessLauncherTest, BR2_ALinkAtThePathIsNotFollowed) {
  fs::rename(socket_, folder_ / "vsock" / "moved.sock");
  fs::create_symlink("moved.sock", socket_);
  EXPECT_EQ(dial(), BridgeError::kPathChanged);
}

TEST_F(BridgeProcessLauncherTest, BR2_AFolderThatOthersMayWriteIsRefused) {
  ::chmod((folder_ / "vsock").c_str(), 0777);
  EXPECT_EQ(dial(), BridgeError::kPathChanged);
}

TEST_F(BridgeProcessLauncherTest, BR1_AListenerOfAnotherProcessIsRefused) {
  fs::remove(socket_);
  const int other = bind_and_listen(socket_);
  target_.transport = transport();
  EXPECT_EQ(dial(), BridgeError::kWrongPeerProcess);
  ::close(other);
}

TEST_F(BridgeProcessLauncherTest, BR1_AReusedPidIsAnotherProcess) {
  ++target_.guest_process.start_time_ticks;
  EXPECT_EQ(dial(), BridgeError::kProcessGone);
  --target_.guest_process.start_time_ticks;
  ++target_.guest_process.pidfs_inode;
  EXPECT_EQ(dial(), BridgeError::kProcessGone);
}

TEST_F(BridgeProcessLauncherTest, BR1_AChangedExecutableIsRefused) {
  ++target_.guest_process.exe_inode;
  EXPECT_EQ(dial(), BridgeError::kExecutableChanged);
}

TEST_F(BridgeProcessLauncherTest, BR1_AGuestThatEndedIsNoListener) {
  end_guest();
  EXPECT_EQ(dial(), BridgeError::kNoListener);
}

TEST_F(BridgeProcessLauncherTest, P21_SpacedHostHasNoPrivilegesAndEndsWithItsLink) {
  auto link = launch(SPACE_TEST_SPACED_HOST);
  ASSERT_TRUE(link) << to_string(link.error());
  const auto pid = link->process.pid;
  auto status = status_of(pid);
  for (const auto* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    EXPECT_EQ(status[set], "0000000000000000") << set;
  }
  std::istringstream uids(status["Uid"]);
  for (std::uint32_t uid = 0; uids >> uid;) EXPECT_EQ(uid, kUid);
  EXPECT_EQ(status["Groups"].find_first_not_of(' '), std::string::npos) << status["Groups"];
  EXPECT_EQ(status["NoNewPrivs"], "1");
  // Nothing is left of the socket it came through.
  EXPECT_TRUE(fs::is_empty(folder_ / "bridges"));
  const int pidfd = *evidence::open_process(link->process);
  // The filter comes after the connection: it is there soon.
  for (int i = 0; i < 6'000 && status_of(pid)["Seccomp"] != "2"; ++i) ::usleep(10'000);
  EXPECT_EQ(status_of(pid)["Seccomp"], "2");
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    const auto opened = fs::read_symlink(entry.path()).string();
    EXPECT_TRUE(opened.starts_with("socket:") || opened.starts_with("anon_inode:") ||
                opened.starts_with("pipe:") || opened == "/dev/null" ||
                entry.path().filename() == "2")
        << entry.path() << " -> " << opened;
  }
  link->stream.reset();
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  ::close(pidfd);
}

TEST_F(BridgeProcessLauncherTest, AProgramThatDoesNotConnectBackIsNoBridge) {
  const auto link = launch("/bin/true");
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error(), BridgeError::kBridgeNotStarted);
}

}  // namespace
}  // namespace space::bridge
