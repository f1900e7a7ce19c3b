#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <filesystem>
#include <fstream>

#include "adapters/crypto/system_entropy.h"
#include "adapters/guest_linux/files.h"
#include "adapters/guest_linux/machine.h"
#include "adapters/guest_linux/processes.h"
#include "adapters/guest_linux/users.h"
#include "base/text.h"
#include "services/spaced_guest/guest_agent.h"
#include "services/spaced_guest/testing/bridge.h"

// The whole agent on real files, processes and sockets, in a folder of its own.
namespace space::guest {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using policy::Operation;
using wire::hop::Outcome;

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

class NoClock final : public GuestClock {
 public:
  void set(WallTime) override {}
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

class GuestLinuxTest : public ::testing::Test {
 protected:
  GuestLinuxTest() {
    ::signal(SIGPIPE, SIG_IGN);
    char name[] = "/tmp/space-guest-XXXXXX";
    folder_ = ::mkdtemp(name);
    listener_ =
        *guest_linux::listen_in(loop_, ::open(folder_.c_str(), O_PATH | O_DIRECTORY), "v.sock");
    files_folder_ = folder_ + "/files";
    fs::create_directory(files_folder_);
    GuestAgent::Options options;
    options.sandbox = *identity::SandboxId::parse("abc");
    agent_ = std::make_unique<GuestAgent>(
        options, secret_of('s'),
        GuestAgent::World{loop_, entropy_, log_, files_, processes_, clock_});
    scope_.spawn("serve", agent_->serve(*listener_));
    run(connect());
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to act for other users";
  }
  ~GuestLinuxTest() override {
    listener_->close();
    run(bridge_.stop());
    run(agent_->stop());
    run(scope_.stop());
    fs::remove_all(folder_);
  }
  Task<void> connect() {
    asio::UnixDialer dialer(loop_);
    auto stream = co_await dialer.dial("unix:" + folder_ + "/v.sock", bridge_.deadline());
    EXPECT_TRUE(stream);
    if (stream) EXPECT_TRUE(co_await bridge_.connect(*std::move(stream)));
  }
  void run(Task<void> task) {
    bool done = false;
    boost::asio::co_spawn(loop_.context(), std::move(task), [&](const std::exception_ptr& error) {
      EXPECT_FALSE(error);
      done = true;
    });
    const auto cap = loop_.now() + std::chrono::seconds(60);
    while (!done && loop_.now() < cap) {
      loop_.context().restart();
      loop_.context().run_one_for(std::chrono::milliseconds(100));
    }
    ASSERT_TRUE(done);
  }
  template <class T>
  T run(Task<T> task) {
    T result{};
    run(store(std::move(task), result));
    return result;
  }
  template <class T>
  static Task<void> store(Task<T> task, T& result) {
    result = co_await std::move(task);
  }
  void run_for(BootClock::duration duration) { run(pass(loop_, duration)); }
  static Task<void> pass(Timer& timer, BootClock::duration duration) {
    co_await sleep_for(timer, duration);
  }

  template <class T>
  frame::End call(Operation operation, T request) {
    return run(bridge_.call(operation, std::move(request)));
  }
  static wire::ProcessStartRequest shell(std::string script, std::uint32_t timeout_ms = 0) {
    wire::ProcessStartRequest request;
    request.spec.command = "/bin/sh";
    request.spec.arguments = {"-c", std::move(script)};
    request.spec.user = "root";
    request.timeout_ms = timeout_ms;
    return request;
  }
  Exec exec(const wire::ProcessStartRequest& request) {
    return run(collect(bridge_.open(Operation::kProcessStart, request)));
  }
  Exec exec(std::string script, std::uint32_t timeout_ms = 0) {
    return exec(shell(std::move(script), timeout_ms));
  }
  std::shared_ptr<hop::Channel> open_upload(const std::string& path, std::string user = "root",
                                            std::optional<std::uint64_t> size = {}) {
    auto channel = bridge_.open(Operation::kFileWrite,
                                wire::FileWriteRequest{path, std::move(user), {}, size});
    // OPENED, or how it failed, is there.
    for (int i = 0; i < 100 && !channel->ready() && !channel->over(); ++i) {
      run_for(std::chrono::milliseconds(1));
    }
    return channel;
  }
  frame::End upload(const std::string& path, std::string content, std::string user = "root") {
    auto channel = open_upload(path, std::move(user));
    run(send_upload(channel, std::move(content), true));
    const auto exec = run(collect(channel));
    EXPECT_TRUE(exec.end);
    return exec.end.value_or(frame::End{Outcome::kInternal, "cut", {}});
  }
  std::string download(const std::string& path, std::size_t expected) {
    const auto end = call(Operation::kFileRead, wire::FileReadRequest{path, "root", 0, {}});
    EXPECT_EQ(end.outcome, Outcome::kOk) << end.message;
    if (expected == 0) {
      EXPECT_EQ(wire::decode<wire::FileReadResult>(end.result)->size, 0U);
      return {};
    }
    return to_text(end.result);
  }
  // Living processes whose command line holds `mark`.
  static std::vector<pid_t> living(const std::string& mark) {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto pid = parse_decimal(entry.path().filename().string());
      if (pid && read_file(entry.path() / "cmdline").contains(mark)) {
        found.push_back(static_cast<pid_t>(*pid));
      }
    }
    return found;
  }
  void wait_until_none_lives(const std::string& mark) {
    for (int i = 0; i < 500 && !living(mark).empty(); ++i) run_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(living(mark).empty());
  }
  // A command-line text of this test run alone, which `sleep` takes for a long time.
  static std::string long_time(int which) {
    return "9" + std::to_string(which) + std::to_string(::getpid());
  }

  asio::Loop loop_;
  crypto::SystemEntropy entropy_;
  NoLog log_;
  NoClock clock_;
  guest_linux::LinuxFiles files_{loop_, entropy_};
  guest_linux::LinuxProcesses processes_{loop_};
  TaskScope scope_{loop_};
  std::string folder_;
  std::string files_folder_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<GuestAgent> agent_;
  Bridge bridge_{loop_};
};

TEST_F(GuestLinuxTest, C055_C056_C057_ContentOfEverySizeComesBackByteForByte) {
  std::string every_byte;
  for (int i = 0; i < 256; ++i) every_byte += static_cast<char>(i);
  const std::vector<std::string> contents = {"",
                                             "x",
                                             "\xff\xd8\x00\x80\xc0",
                                             "a\r\nb\r\n",
                                             "no final newline",
                                             every_byte,
                                             std::string(17'000, 'a'),
                                             std::string(18'433, 'b'),
                                             std::string(65'535, 'c'),
                                             std::string(65'536, 'd'),
                                             std::string((1 << 20) - 1, 'e')};
  for (const auto& content : contents) {
    const auto path = files_folder_ + "/sub/folder/f";
    const auto end = upload(path, content);
    ASSERT_EQ(end.outcome, Outcome::kOk) << end.message;
    EXPECT_EQ(wire::decode<wire::FileEntry>(end.result)->size, content.size());
    EXPECT_TRUE(download(path, content.size()) == content) << content.size();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms(0644));
  }
  const auto large = std::string(10 << 20, 'z');
  ASSERT_EQ(upload(files_folder_ + "/large", large).outcome, Outcome::kOk);
  EXPECT_TRUE(read_file(files_folder_ + "/large") == large);
}

TEST_F(GuestLinuxTest, C058_ACutUploadLeavesTheOldFileAndNothingElse) {
  const auto path = files_folder_ + "/data.bin";
  write_file(path, "version 1");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_EQ(::chown(path.c_str(), 1, 2), 0);
  auto channel = open_upload(path, "root", 10U << 20);
  run(send_upload(channel, std::string(3U << 20, '2'), false));
  channel->reset(frame::ResetCode::kCancelled);
  run_for(std::chrono::milliseconds(50));
  auto unannounced = open_upload(path);
  run(send_upload(unannounced, "cut", false));
  unannounced->reset(frame::ResetCode::kCancelled);
  run_for(std::chrono::milliseconds(50));
  auto short_one = open_upload(path, "root", 10);
  run(send_upload(short_one, "less", true));
  EXPECT_EQ(run(collect(short_one)).end->outcome, Outcome::kInvalidArgument);
  EXPECT_EQ(read_file(path), "version 1");
  EXPECT_EQ(std::distance(fs::directory_iterator(files_folder_), {}), 1);
  ASSERT_EQ(upload(path, "version 2").outcome, Outcome::kOk);
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0640U);
  EXPECT_EQ(info.st_uid, 1U);
  EXPECT_EQ(info.st_gid, 2U);
  EXPECT_EQ(read_file(path), "version 2");
}

TEST_F(GuestLinuxTest, C059_OddNamesAreJustNames) {
  const std::vector<std::string> names = {"a b.txt",
                                          "данные.csv",
                                          "\xc3\xb6.txt",
                                          "o\xcc\x88.txt",
                                          "q\".txt",
                                          "100%.txt",
                                          "a+b&c=d#e.txt",
                                          "x\r\ny",
                                          " lead",
                                          std::string(255, 'n'),
                                          "byte\xff",
                                          "-rf",
                                          "~x",
                                          "..."};
  for (const auto& name : names) {
    const auto path = files_folder_ + "/" + name;
    ASSERT_EQ(upload(path, name).outcome, Outcome::kOk) << name;
    EXPECT_EQ(download(path, name.size()), name);
    const auto end = call(Operation::kFileStat, wire::FileStatRequest{path, "root"});
    EXPECT_EQ(wire::decode<wire::FileEntry>(end.result)->name, name);
  }
  const auto listed = call(Operation::kFileList, wire::FileListRequest{files_folder_, "root", 1});
  const auto list = wire::decode<wire::FileListResult>(listed.result);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->entries.size(), names.size());
  for (const auto& name : names) {
    const auto path = files_folder_ + "/" + name;
    EXPECT_EQ(call(Operation::kFileRemove, wire::FileRemoveRequest{path, "root"}).outcome,
              Outcome::kOk);
  }
  EXPECT_TRUE(fs::is_empty(files_folder_));
}

TEST_F(GuestLinuxTest, C060_WritesFollowUnixRulesOfTheUser) {
  const auto secret = folder_ + "/secret";
  write_file(secret, "root's");
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  fs::create_symlink(secret, files_folder_ + "/link");
  fs::create_symlink(files_folder_ + "/target", files_folder_ + "/dangling");
  EXPECT_EQ(upload(files_folder_ + "/link", "x", "nobody").outcome, Outcome::kPermissionDenied);
  EXPECT_EQ(upload(files_folder_ + "/new", "x", "nobody").outcome, Outcome::kPermissionDenied);
  const auto read = call(Operation::kFileRead, wire::FileReadRequest{secret, "nobody", 0, {}});
  EXPECT_EQ(read.outcome, Outcome::kPermissionDenied);
  const auto removed = call(Operation::kFileRemove, wire::FileRemoveRequest{secret, "nobody"});
  EXPECT_EQ(removed.outcome, Outcome::kPermissionDenied);
  EXPECT_EQ(read_file(secret), "root's");
  EXPECT_EQ(upload(files_folder_ + "/dangling", "through").outcome, Outcome::kOk);
  EXPECT_EQ(read_file(files_folder_ + "/target"), "through");
  EXPECT_TRUE(fs::is_symlink(files_folder_ + "/dangling"));
  EXPECT_EQ(::getuid(), 0U);
  EXPECT_EQ(upload(files_folder_ + "/own", "x", "no such user").outcome, Outcome::kInvalidArgument);
  // What a user makes is theirs.
  ASSERT_EQ(::chmod(files_folder_.c_str(), 0777), 0);
  ASSERT_EQ(upload(files_folder_ + "/deep/er/own", "x", "nobody").outcome, Outcome::kOk);
  struct stat info{};
  ASSERT_EQ(::stat((files_folder_ + "/deep/er/own").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 65534U);
  ASSERT_EQ(::stat((files_folder_ + "/deep").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 65534U);
  // Writable by all, but not its writer's: the owner stays, special bits go.
  ASSERT_EQ(::chmod((files_folder_ + "/target").c_str(), 04777), 0);
  ASSERT_EQ(upload(files_folder_ + "/target", "theirs", "nobody").outcome, Outcome::kOk);
  ASSERT_EQ(::stat((files_folder_ + "/target").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0U);
  EXPECT_EQ(info.st_mode & 07777U, 0777U);
}

TEST_F(GuestLinuxTest, ErrorsNameWhatIsWrong) {
  const auto outcome_of_read = [&](const std::string& path) {
    return call(Operation::kFileRead, wire::FileReadRequest{path, "root", 0, {}}).outcome;
  };
  EXPECT_EQ(outcome_of_read(files_folder_ + "/none"), Outcome::kNotFound);
  EXPECT_EQ(outcome_of_read(files_folder_), Outcome::kIsDirectory);
  EXPECT_EQ(outcome_of_read("/dev/null"), Outcome::kInvalidArgument);
  ASSERT_EQ(::mkfifo((files_folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(outcome_of_read(files_folder_ + "/fifo"), Outcome::kInvalidArgument);
  write_file(files_folder_ + "/file", "x");
  EXPECT_EQ(outcome_of_read(files_folder_ + "/file/below"), Outcome::kNotDirectory);
  EXPECT_EQ(upload(files_folder_, "x").outcome, Outcome::kIsDirectory);
  EXPECT_EQ(upload(files_folder_ + "/" + std::string(256, 'n'), "x").outcome,
            Outcome::kInvalidArgument);
  const auto make = [&](const std::string& path) {
    return call(Operation::kFileMakeDir, wire::FileMakeDirRequest{path, "root"}).outcome;
  };
  EXPECT_EQ(make(files_folder_ + "/a/b/c"), Outcome::kOk);
  EXPECT_EQ(make(files_folder_ + "/a/b/c"), Outcome::kAlreadyExists);
  EXPECT_EQ(make(files_folder_ + "/file"), Outcome::kNotDirectory);
  const auto list = [&](const std::string& path) {
    return call(Operation::kFileList, wire::FileListRequest{path, "root", 1}).outcome;
  };
  EXPECT_EQ(list(files_folder_ + "/file"), Outcome::kNotDirectory);
  EXPECT_EQ(list(files_folder_ + "/none"), Outcome::kNotFound);
}

TEST_F(GuestLinuxTest, AMoveRenamesAtOnceAndMakesTheWay) {
  const auto move = [&](const std::string& from, const std::string& to) {
    return call(Operation::kFileMove,
                wire::FileMoveRequest{files_folder_ + from, files_folder_ + to, "root"});
  };
  write_file(files_folder_ + "/old", "content");
  const auto moved = move("/old", "/new/way/name");
  ASSERT_EQ(moved.outcome, Outcome::kOk) << moved.message;
  EXPECT_EQ(wire::decode<wire::FileEntry>(moved.result)->path, files_folder_ + "/new/way/name");
  EXPECT_FALSE(fs::exists(files_folder_ + "/old"));
  EXPECT_EQ(read_file(files_folder_ + "/new/way/name"), "content");
  write_file(files_folder_ + "/other", "replaces");
  EXPECT_EQ(move("/other", "/new/way/name").outcome, Outcome::kOk);
  EXPECT_EQ(read_file(files_folder_ + "/new/way/name"), "replaces");
  EXPECT_EQ(move("/new", "/folder").outcome, Outcome::kOk);
  fs::create_symlink("nowhere", files_folder_ + "/link");
  EXPECT_EQ(move("/link", "/link2").outcome, Outcome::kOk);
  EXPECT_TRUE(fs::is_symlink(files_folder_ + "/link2"));
  EXPECT_EQ(move("/none", "/made/for/nothing").outcome, Outcome::kNotFound);
  EXPECT_FALSE(fs::exists(files_folder_ + "/made"));
  EXPECT_EQ(move("/folder", "/folder/way/itself").outcome, Outcome::kInvalidArgument);
  EXPECT_EQ(move("/link2", "/folder").outcome, Outcome::kIsDirectory);
}

TEST_F(GuestLinuxTest, RemovingATreeRemovesAllOfItAndNothingBehindItsLinks) {
  write_file(files_folder_ + "/kept", "x");
  for (int i = 0; i < 30; ++i) {
    const auto folder = files_folder_ + "/tree/" + std::to_string(i) + "/deeper";
    fs::create_directories(folder);
    for (int k = 0; k < 30; ++k) write_file(folder + "/" + std::to_string(k), "x");
    fs::create_directory_symlink(files_folder_, folder + "/up");
  }
  const auto depth =
      call(Operation::kFileList, wire::FileListRequest{files_folder_ + "/tree", "root", 2});
  EXPECT_EQ(wire::decode<wire::FileListResult>(depth.result)->entries.size(), 60U);
  const wire::FileRemoveRequest request{files_folder_ + "/tree", "root"};
  EXPECT_EQ(call(Operation::kFileRemove, request).outcome, Outcome::kOk);
  EXPECT_EQ(call(Operation::kFileRemove, request).outcome, Outcome::kNotFound);
  EXPECT_EQ(read_file(files_folder_ + "/kept"), "x");
  EXPECT_EQ(std::distance(fs::directory_iterator(files_folder_), {}), 1);
}

TEST_F(GuestLinuxTest, C044_C067_OutputIsCompleteAndTheExitComesLast) {
  std::string expected;
  for (int i = 1; i <= 100'000; ++i) expected += std::to_string(i) + "\n";
  for (int i = 0; i < 20; ++i) {
    const auto result = exec("seq 1 100000");
    EXPECT_TRUE(result.out == expected);
    ASSERT_TRUE(result.exited);
    EXPECT_FALSE(result.output_after_exit);
    ASSERT_TRUE(result.end);
  }
  for (int i = 0; i < 100; ++i) {
    const auto result = exec("printf 'a\\nb\\n'; printf 'e\\n' >&2");
    EXPECT_EQ(result.out, "a\nb\n");
    EXPECT_EQ(result.err, "e\n");
    EXPECT_FALSE(result.output_after_exit);
  }
}

TEST_F(GuestLinuxTest, C044_OutputStillInThePipeAtTheExitIsNotLost) {
  // More than the window takes, and the rest fits the pipe: the process ends before its output is
  // read.
  const auto done = folder_ + "/done";
  auto channel =
      bridge_.open(Operation::kProcessStart, shell("head -c 1100000 /dev/zero; echo > " + done));
  for (int i = 0; i < 500 && !fs::exists(done); ++i) run_for(std::chrono::milliseconds(20));
  run_for(std::chrono::milliseconds(100));
  const auto result = run(collect(channel));
  EXPECT_EQ(result.out.size(), 1'100'000U);
  EXPECT_FALSE(result.output_after_exit);
  EXPECT_TRUE(result.exited);
}

TEST_F(GuestLinuxTest, C063_BackgroundChildrenNeitherDelayTheEndNorDieOfIt) {
  const auto time = long_time(1);
  const auto ticks = folder_ + "/ticks";
  // The last one writes more than a pipe holds within two seconds.
  for (const auto& script : {"sleep " + time + " & echo up", "setsid sleep " + time + " & echo up",
                             "(: " + time + "; while :; do printf %10000d 0 >&2; echo >> " + ticks +
                                 "; sleep 0.1; done) & echo up"}) {
    const auto result = exec(script);
    EXPECT_EQ(result.out, "up\n");
    ASSERT_TRUE(result.exited);
    EXPECT_EQ(result.exited->exit_code, 0);
    run_for(std::chrono::seconds(2));
    const auto background = living(time);
    EXPECT_FALSE(background.empty());
    for (const auto pid : background) ::kill(pid, SIGKILL);
    wait_until_none_lives(time);
  }
  EXPECT_GT(fs::file_size(ticks), 10U);
}

TEST_F(GuestLinuxTest, C064_ATimeoutAndAKillLeaveNoProcessOfTheTree) {
  const auto time = long_time(2);
  const auto script =
      "trap '' TERM; (sleep " + time + " & setsid sleep " + time + " & ); sleep " + time;
  const auto timed_out = exec(script, 300);
  ASSERT_TRUE(timed_out.exited);
  EXPECT_TRUE(timed_out.exited->timed_out);
  EXPECT_EQ(timed_out.exited->signal, SIGKILL);
  wait_until_none_lives(time);

  auto channel = bridge_.open(Operation::kProcessStart, shell(script));
  for (int i = 0; i < 500 && living(time).size() < 4; ++i) run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(living(time).size(), 4U);
  const auto listed = call(Operation::kProcessList, wire::ProcessListRequest{});
  const auto list = wire::decode<wire::ProcessListResult>(listed.result);
  ASSERT_EQ(list->processes.size(), 1U);
  const wire::ProcessSignalRequest kill{list->processes[0].pid, SIGKILL};
  EXPECT_EQ(call(Operation::kProcessSignal, kill).outcome, Outcome::kOk);
  const auto killed = run(collect(channel));
  EXPECT_EQ(killed.exited->exit_code, 137);
  EXPECT_FALSE(killed.exited->timed_out);
  wait_until_none_lives(time);
  EXPECT_EQ(call(Operation::kProcessSignal, kill).outcome, Outcome::kNotFound);
}

TEST_F(GuestLinuxTest, C065_ExitAndSignalAreToldApart) {
  const auto of = [&](std::string script) { return *exec(std::move(script)).exited; };
  EXPECT_EQ(of("exit 0").exit_code, 0);
  EXPECT_EQ(of("exit 1").exit_code, 1);
  const auto plain = of("exit 137");
  EXPECT_EQ(plain.exit_code, 137);
  EXPECT_EQ(plain.signal, 0);
  for (const int signal : {SIGKILL, SIGTERM, SIGSEGV}) {
    const auto died = of("ulimit -c 0; kill -" + std::to_string(signal) + " $$");
    EXPECT_EQ(died.exit_code, 128 + signal);
    EXPECT_EQ(died.signal, signal);
    EXPECT_FALSE(died.timed_out);
  }
}

TEST_F(GuestLinuxTest, C066_WithoutStdinProgramsSeeTheEndAtOnce) {
  EXPECT_EQ(exec("cat").exited->exit_code, 0);
  EXPECT_EQ(exec("read x; echo got:$x").out, "got:\n");
  auto request = shell("wc -c");
  request.spec.stdin_open = true;
  auto channel = bridge_.open(Operation::kProcessStart, request);
  run_for(std::chrono::milliseconds(100));
  run(send_upload(channel, std::string("\xde\xad\x00\x0a\xff", 5), true));
  const auto counted = run(collect(channel));
  EXPECT_EQ(counted.out, "5\n");
  EXPECT_EQ(counted.exited->exit_code, 0);
  // A program that ends without reading does not hold its sender.
  request = shell("exit 3");
  request.spec.stdin_open = true;
  auto unread = bridge_.open(Operation::kProcessStart, request);
  run_for(std::chrono::milliseconds(20));
  run(send_upload(unread, std::string(300'000, 'x'), false));
  EXPECT_EQ(run(collect(unread)).exited->exit_code, 3);
  // With stdin open and nothing sent it waits, and the timeout still works.
  request = shell("cat", 200);
  request.spec.stdin_open = true;
  EXPECT_TRUE(exec(request).exited->timed_out);
}

TEST_F(GuestLinuxTest, C068_OutputAroundThePipesSizeArrivesWholeAndSlowReadersSlowTheWriter) {
  for (const int size : {4095, 4096, 4097, 65536, 65537, 10'485'760}) {
    const auto bytes = std::to_string(size);
    const auto both = exec("head -c " + bytes + " /dev/zero; head -c " + bytes + " /dev/zero >&2");
    EXPECT_EQ(both.out.size(), static_cast<std::size_t>(size));
    EXPECT_EQ(both.err.size(), static_cast<std::size_t>(size));
  }
  const auto done = folder_ + "/done";
  auto channel =
      bridge_.open(Operation::kProcessStart, shell("head -c 10485760 /dev/zero; echo > " + done));
  run_for(std::chrono::seconds(1));
  EXPECT_FALSE(fs::exists(done)) << "nothing held the writer back";
  EXPECT_EQ(run(collect(channel)).out.size(), 10'485'760U);
  EXPECT_TRUE(fs::exists(done));
}

TEST_F(GuestLinuxTest, ALostStreamLeavesTheProcessRunning) {
  const auto done = folder_ + "/done";
  auto channel =
      bridge_.open(Operation::kProcessStart, shell("head -c 3000000 /dev/zero; echo > " + done));
  run_for(std::chrono::milliseconds(200));
  channel->reset(frame::ResetCode::kCancelled);
  for (int i = 0; i < 500 && !fs::exists(done); ++i) run_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(fs::exists(done));
}

TEST_F(GuestLinuxTest, AProcessInheritsNothingOfTheAgent) {
  const auto environment =
      exec("env | sort | cut -d= -f1 | grep -v '^PWD\\|^_\\|^OLDPWD\\|^SHLVL'").out;
  EXPECT_EQ(environment, "E2B_SANDBOX\nE2B_SANDBOX_ID\nHOME\nLOGNAME\nPATH\nSHELL\nUSER\n");
  EXPECT_EQ(exec("ls /proc/self/fd | wc -l").out, "4\n");  // 0 to 2 and the folder that ls reads
  EXPECT_EQ(exec("grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2").out,
            "0000000000000000\n0000000000000000\n");
  auto request = shell("id -un; id -Gn; pwd; umask");
  request.spec.user = "nobody";
  request.spec.cwd = "/usr";
  EXPECT_EQ(exec(request).out, "nobody\nnogroup\n/usr\n0022\n");
  request.spec.cwd = "/none";
  EXPECT_EQ(exec(request).end->outcome, Outcome::kInvalidArgument);
  request = {};
  request.spec.user = "root";
  request.spec.command = "no-such-program-here";
  EXPECT_EQ(exec(request).end->outcome, Outcome::kNotFound);
  request.spec.command = "/etc/passwd";
  EXPECT_EQ(exec(request).end->outcome, Outcome::kPermissionDenied);
}

TEST_F(GuestLinuxTest, C043_ShortProcessesLeaveNeitherDescriptorsNorZombies) {
  const auto count_fds = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  exec("exit 0");
  run_for(std::chrono::milliseconds(100));
  const auto before = count_fds();
  for (int i = 0; i < 50; ++i) exec("exit 0");
  for (int i = 0; i < 100 && count_fds() != before; ++i) run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(count_fds(), before);
  const auto zombies = [] {
    std::string found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      if (!parse_decimal(entry.path().filename().string())) continue;
      const auto stat = read_file(entry.path() / "stat");
      if (stat.contains(") Z " + std::to_string(::getpid()) + " ")) found += stat;
    }
    return found;
  };
  // An ended keeper is taken in a later turn than the exit was told.
  for (int i = 0; i < 500 && !zombies().empty(); ++i) run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(zombies(), "");
}

TEST(Accounts, AreReadAsTheyAreWritten) {
  using guest_linux::Accounts;
  const Accounts accounts(
      "root:x:0:0:root:/root:/bin/bash\nbroken\nuser:x:1000:1001::/home/user:\nevil:x:-1:0::/:/bin/"
      "sh\n"
      "big:x:4294967295:0::/:/bin/sh\n",
      "root:x:0:\nsudo:x:27:user,ghost\nuser:x:1001:\n");
  const auto user = accounts.find("");
  ASSERT_TRUE(user);
  EXPECT_EQ(user->name, "user");
  EXPECT_EQ(user->uid, 1000U);
  EXPECT_EQ(user->gid, 1001U);
  EXPECT_EQ(user->groups, std::vector<gid_t>{27});
  EXPECT_EQ(user->shell, "/bin/sh");
  EXPECT_FALSE(accounts.find("evil"));
  EXPECT_FALSE(accounts.find("big"));
  EXPECT_EQ(accounts.user_name(0), "root");
  EXPECT_EQ(accounts.user_name(4242), "4242");
  EXPECT_EQ(Accounts("", "").find("")->uid, 0U);
  EXPECT_EQ(guest_linux::absolute_path("a//b/", *user), "/home/user/a/b");
  EXPECT_EQ(guest_linux::absolute_path("~/x", *user), "/home/user/x");
  EXPECT_EQ(guest_linux::absolute_path("~", *user), "/home/user");
  EXPECT_EQ(guest_linux::absolute_path("~x", *user), "/home/user/~x");
  EXPECT_EQ(guest_linux::absolute_path("/", *user), "/");
}

TEST(Accounts, AreThoseOfTheFilesAsTheyAreNow) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("accounts-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto passwd = folder / "passwd";
  guest_linux::CurrentAccounts accounts(passwd, folder / "group");
  EXPECT_EQ(accounts.get()->find("")->name, "root");
  // Written in place, at one length, within one tick of the clock: still seen.
  for (int id = 1000; id < 1050; ++id) {
    std::ofstream(passwd) << "user:x:" << id << ":100::/home/user:/bin/sh\n";
    EXPECT_EQ(accounts.get()->find("")->uid, static_cast<uid_t>(id));
  }
  // Unchanged for long: parsed once.
  guest_linux::CurrentAccounts machine;
  EXPECT_EQ(machine.get(), machine.get());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace space::guest
