#include "adapters/supervisor/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "adapters/supervisor/backoff.h"
#include "adapters/supervisor/lock_file.h"

namespace space::supervisor {
namespace {

using std::chrono::milliseconds;

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

class SupervisorTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "supervisorXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Part shell(const std::string& name, const std::string& script) const {
    return Part{.name = name,
                .program = "/bin/sh",
                .arguments = {"-c", script},
                .uid = std::nullopt,
                .log = folder_ / (name + ".log")};
  }
  std::string content(const std::string& name) const {
    return read_small_file(folder_ / name).value_or("");
  }
  // Runs the supervisor in a child process.
  pid_t start(const std::vector<Part>& parts) const {
    const pid_t pid = ::fork();
    if (pid == 0) {
      NoLog log;
      const Setting setting{.working_directory = folder_,
                            .environment = {"PATH=/usr/bin:/bin", "MARK=yes"}};
      run(parts, setting, log, [](const auto&) {}, milliseconds(300));
      ::_exit(0);
    }
    return pid;
  }
  static bool within_a_minute(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }
  static int end(pid_t pid, int signal) {
    ::kill(pid, signal);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  static std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  std::filesystem::path folder_;
};

TEST(Backoff, DoublesToFiveSecondsAndStartsAgainAfterAGoodLife) {
  Backoff backoff;
  EXPECT_EQ(backoff.next(milliseconds(1)), milliseconds(50));
  EXPECT_EQ(backoff.next(milliseconds(1)), milliseconds(100));
  for (int i = 0; i < 20; ++i) backoff.next(milliseconds(1));
  EXPECT_EQ(backoff.next(milliseconds(9'999)), milliseconds(5'000));
  EXPECT_EQ(backoff.next(milliseconds(10'000)), milliseconds(50));
}

TEST_F(SupervisorTest, APartThatEndsIsStartedAgain) {
  const pid_t pid = start({shell("part", "echo $MARK >> starts; pwd >> where; exit 3")});
  EXPECT_TRUE(within_a_minute([&] { return lines(content("starts")) >= 3; }));
  EXPECT_EQ(end(pid, SIGTERM), 0);
  EXPECT_TRUE(content("starts").starts_with("yes\n"));
  EXPECT_TRUE(content("where").starts_with(std::filesystem::canonical(folder_).string() + "\n"));
}

TEST_F(SupervisorTest, PartsEndInReverseOrderAndOneThatWillNotIsKilled) {
  const std::string loop = "while :; do sleep 0.02; done";
  const pid_t pid =
      start({shell("first", "trap 'echo first >> ends; exit 0' TERM; echo up >> ups; " + loop),
             shell("second", "trap 'echo second >> ends; exit 0' TERM; echo up >> ups; " + loop),
             shell("stubborn", "trap '' TERM; echo up >> ups; " + loop)});
  EXPECT_TRUE(within_a_minute([&] { return lines(content("ups")) == 3; }));
  EXPECT_EQ(end(pid, SIGTERM), 0);
  EXPECT_EQ(content("ends"), "second\nfirst\n");
}

TEST_F(SupervisorTest, PartsDieWithTheirSupervisorSoThatASuccessorHasNoRival) {
  const pid_t pid = start({shell("part", "echo $$ > pid; exec sleep 1000")});
  EXPECT_TRUE(within_a_minute([&] { return lines(content("pid")) == 1; }));
  const pid_t part = static_cast<pid_t>(std::stol(content("pid")));
  end(pid, SIGKILL);
  EXPECT_TRUE(within_a_minute([&] {
    std::ifstream stat("/proc/" + std::to_string(part) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    return !stat || state == "Z" || name != "(sleep)";
  }));
}

TEST_F(SupervisorTest, APartWithAUidRunsAsItFromAFolderClosedToIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::filesystem::create_directory(folder_ / "closed");
  std::filesystem::copy_file("/bin/sh", folder_ / "closed/sh");
  std::filesystem::permissions(folder_ / "closed", std::filesystem::perms::owner_all);
  Part part = shell("part", "id -u; id -G; exec sleep 1000");
  part.program = folder_ / "closed/sh";
  part.uid = 64'001;
  const pid_t pid = start({part});
  EXPECT_TRUE(within_a_minute([&] { return lines(content("part.log")) >= 2; }));
  EXPECT_EQ(end(pid, SIGTERM), 0);
  EXPECT_EQ(content("part.log"), "64001\n64001\n");
}

TEST_F(SupervisorTest, TheLockEndsWithItsHolder) {
  const auto path = folder_ / "lock";
  EXPECT_FALSE(LockFile::held(path));
  {
    const auto lock = LockFile::acquire(path);
    ASSERT_TRUE(lock && lock->has_value());
    EXPECT_TRUE(LockFile::held(path));
    const auto second = LockFile::acquire(path);
    ASSERT_TRUE(second);
    EXPECT_FALSE(second->has_value());
  }
  EXPECT_FALSE(LockFile::held(path));
  std::filesystem::create_symlink("/etc/passwd", folder_ / "link");
  EXPECT_FALSE(LockFile::acquire(folder_ / "link"));
}

TEST_F(SupervisorTest, AFileIsReplacedWholeWithItsMode) {
  EXPECT_FALSE(write_atomically(folder_ / "f", "one", 0600));
  EXPECT_FALSE(write_atomically(folder_ / "f", "two", 0644));
  EXPECT_EQ(content("f"), "two");
  EXPECT_EQ(std::filesystem::status(folder_ / "f").permissions(), std::filesystem::perms(0644));
  EXPECT_TRUE(write_atomically(folder_ / "none/f", "x", 0600));
}

}  // namespace
}  // namespace space::supervisor
