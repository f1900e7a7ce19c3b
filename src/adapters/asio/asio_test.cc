#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "adapters/asio/loop.h"

namespace space::asio {
namespace {

class UnixSocketTest : public ::testing::Test {
 protected:
  UnixSocketTest() {
    char name[] = "/tmp/space-asio-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~UnixSocketTest() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
  Loop loop_;
};

Task<int> echo_once(Loop& loop, Listener& listener, std::string address) {
  UnixDialer dialer(loop);
  auto client = co_await dialer.dial(address, loop.now() + std::chrono::seconds(60));
  if (!client) co_return 10;
  auto server = co_await listener.accept();
  if (!server) co_return 11;
  const auto sent = to_bytes("hello");
  if (!co_await (*client)->write_all(sent)) co_return 12;
  Bytes buffer(16);
  const auto count = co_await (*server)->read_some(buffer);
  if (!count || *count != 5) co_return 13;
  if ((*server)->peer()->pid != ::getpid()) co_return 14;
  (*client)->close();
  const auto end = co_await (*server)->read_some(buffer);
  co_return end && *end == 0 ? 0 : 15;
}

TEST_F(UnixSocketTest, ConnectsThroughAPathOfAnyLength) {
  auto deep = folder_;
  for (int i = 0; i < 6; ++i) deep /= std::string(40, 'd');
  std::filesystem::create_directories(deep);
  const auto address = "unix:" + (deep / "a.sock").string();
  ASSERT_GT(address.size(), 200U);
  auto listener = listen_unix(loop_, address, 0600);
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_EQ(loop_.run(echo_once(loop_, **listener, address), {}), 0);
}

TEST_F(UnixSocketTest, C033_ALiveListenerIsLeftAlone) {
  const auto address = "unix:" + (folder_ / "a.sock").string();
  auto first = listen_unix(loop_, address, 0600);
  ASSERT_TRUE(first);
  auto second = listen_unix(loop_, address, 0600);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(), std::errc::address_in_use);
  EXPECT_EQ(loop_.run(echo_once(loop_, **first, address), {}), 0);
}

TEST_F(UnixSocketTest, C033_ALeftoverSocketIsReplaced) {
  const auto path = folder_ / "a.sock";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.string().copy(at.sun_path, sizeof at.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ::close(fd);
  EXPECT_TRUE(listen_unix(loop_, "unix:" + path.string(), 0600));
}

TEST_F(UnixSocketTest, C033_AFileOrASymlinkIsRefusedAndKept) {
  const auto file = folder_ / "file";
  std::ofstream(file) << "data";
  std::filesystem::create_symlink("/nowhere", folder_ / "link");
  for (const auto* name : {"file", "link"}) {
    const auto result = listen_unix(loop_, "unix:" + (folder_ / name).string(), 0600);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), std::errc::file_exists);
  }
  EXPECT_EQ(std::filesystem::file_size(file), 4U);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
}

TEST_F(UnixSocketTest, C030_TheSocketHasItsModeFromTheStart) {
  const auto old_mask = ::umask(0);
  const auto path = folder_ / "a.sock";
  const auto listener = listen_unix(loop_, "unix:" + path.string(), 0600);
  ::umask(old_mask);
  ASSERT_TRUE(listener);
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

Task<int> wait_for_alarm(Loop& loop) {
  const auto start = loop.now();
  co_await sleep_for(loop, std::chrono::milliseconds(20));
  co_return loop.now() - start >= std::chrono::milliseconds(20) ? 0 : 1;
}

TEST_F(UnixSocketTest, AnAlarmIsNeverEarly) { EXPECT_EQ(loop_.run(wait_for_alarm(loop_), {}), 0); }

}  // namespace
}  // namespace space::asio
