#include "adapters/runtime_oci/oci_runtime.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "adapters/evidence/process_identity.h"
#include "adapters/runtime_oci/cgroup.h"
#include "adapters/runtime_oci/command.h"
#include "adapters/runtime_oci/container_spec.h"
#include "adapters/runtime_oci/disk.h"
#include "adapters/runtime_oci/sandbox_folder.h"

namespace space {
namespace {
namespace net = boost::asio;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::uint32_t kFirstUid = 1'900'000'000;
constexpr std::uint64_t kMiB = 1U << 20;
constexpr auto kPatience = 60s;

class AsioTimer final : public Timer {
 public:
  explicit AsioTimer(net::io_context& loop) : loop_(loop) {}
  MonoTime now() const override {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return MonoTime(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
  std::unique_ptr<Alarm> at(MonoTime deadline, std::move_only_function<void()> action) override {
    struct Wait final : Alarm {
      explicit Wait(net::io_context& loop) : timer(loop) {}
      net::steady_timer timer;
      std::move_only_function<void()> action;
    };
    auto wait = std::make_unique<Wait>(loop_);
    wait->action = std::move(action);
    wait->timer.expires_after(deadline - now());
    wait->timer.async_wait([raw = wait.get()](const boost::system::error_code& error) {
      if (!error) raw->action();
    });
    return wait;
  }
  net::any_io_executor executor() override { return loop_.get_executor(); }

 private:
  net::io_context& loop_;
};

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Polls until `holds` or patience ends; timing is never what is judged.
bool eventually(const std::function<bool()>& holds) {
  for (const auto end = std::chrono::steady_clock::now() + kPatience;
       std::chrono::steady_clock::now() < end; ::usleep(5'000)) {
    if (holds()) return true;
  }
  return false;
}

struct Output {
  std::string text;
  int status = -1;
};

// One conversation with the test guest.
std::string ask(const std::string& socket_path, const std::string& line) {
  const oci::Fd path(::open(socket_path.c_str(), O_PATH | O_CLOEXEC));
  const oci::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "/proc/self/fd/" + std::to_string(path.get());
  name.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return "cannot connect";
  }
  if (!oci::write_all(fd.get(), line + "\n")) return "cannot write";
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = ::read(fd.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

Output run(const RuntimeInstance& instance, const std::string& command, unsigned uid = 0) {
  const auto text = ask(instance.transport.socket_path, std::to_string(uid) + " " + command);
  const auto at = text.rfind("\nexit ");
  if (at == std::string::npos) return {text, -1};
  return {text.substr(0, at), std::atoi(text.c_str() + at + 6)};
}

// What this machine holds of a data folder or handle, from the kernel's own lists.
std::vector<std::string> leftovers_now(const std::string& folder, const std::string& handle) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/block", error)) {
    const auto text = read_text(entry.path() / "loop/backing_file");
    if (text.starts_with(folder)) found.push_back("loop " + text);
  }
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const auto text = read_text(entry.path() / "cgroup");
    // A zombie has ended; its parent, the machine's first process, takes it when it likes.
    const bool ended = read_text(entry.path() / "stat").find(") Z ") != std::string::npos;
    if (!handle.empty() && !ended && text.find(handle) != std::string::npos) {
      found.push_back("process " + entry.path().string());
    }
  }
  if (read_text("/proc/self/mountinfo").find(folder) != std::string::npos) found.push_back("mount");
  if (const auto mounts = oci::read_cgroup_mounts()) {
    for (const auto& hierarchy : mounts->hierarchies) {
      for (const char* worker : {"/w1/", "/w2/"}) {
        const auto group =
            hierarchy + "/space-test-" + std::to_string(::getpid()) + worker + handle;
        if (!handle.empty() && fs::exists(group, error)) found.push_back("cgroup " + group);
      }
    }
  }
  return found;
}

// The same once it is settled: a killed process has left its cgroup a moment before it is a zombie.
std::vector<std::string> leftovers(const std::string& folder, const std::string& handle) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (;;) {
    auto found = leftovers_now(folder, handle);
    if (found.empty() || std::chrono::steady_clock::now() > deadline) return found;
    ::usleep(10'000);
  }
}

// Each test runs with each runtime program.
class OciRuntimeTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "containers need root";
    std::string pattern = "/tmp/space-oci-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    base_ = pattern;
    program_ = GetParam();
    if (const auto status = oci::run_command({program_, "--version"}); !status || *status != 0) {
      GTEST_SKIP() << program_ << " is not installed";
    }
    one_ = std::make_unique<OciRuntime>(config("w1", 0), timer_);
    two_ = std::make_unique<OciRuntime>(config("w2", 1), timer_);
  }

  void TearDown() override {
    for (auto* runtime : {one_.get(), two_.get()}) {
      if (runtime == nullptr) continue;
      const auto handles = await(runtime->list());
      for (const auto& handle : handles.value_or(std::vector<std::string>{})) {
        const auto destroyed = await(runtime->destroy(handle));
        EXPECT_TRUE(destroyed) << destroyed.error().detail;
      }
    }
    if (base_.empty()) return;
    if (const auto mounts = oci::read_cgroup_mounts()) {
      for (const auto& hierarchy : mounts->hierarchies) {
        for (const char* part : {"/w1", "/w2", ""}) {
          ::rmdir((hierarchy + cgroup_root() + part).c_str());
        }
      }
    }
    EXPECT_EQ(leftovers(base_, ""), std::vector<std::string>{});
    fs::remove_all(base_);
  }

  static std::string cgroup_root() { return "/space-test-" + std::to_string(::getpid()); }

  OciConfig config(const std::string& worker, std::uint32_t number) const {
    OciConfig config;
    config.data_folder = base_ + "/" + worker;
    config.templates_folder = base_ + "/templates";
    config.artifacts_folder = base_ + "/artifacts";
    config.stage_program = SPACE_TEST_STAGE;
    config.guest_program = SPACE_TEST_GUEST;
    config.runtime_program = program_;
    config.cgroup_parent = cgroup_root() + "/" + worker;
    config.first_uid = kFirstUid + number * 16 * oci::kIdsPerSandbox;
    config.max_sandboxes = 16;
    return config;
  }

  template <class T>
  T await(Task<T> task) {
    std::optional<T> result;
    net::co_spawn(loop_, std::move(task), [&result](const std::exception_ptr& error, T value) {
      if (error) std::rethrow_exception(error);
      result.emplace(std::move(value));
    });
    loop_.restart();
    loop_.run();
    return std::move(*result);
  }

  static StartRequest request(std::uint64_t generation, std::string artifact = {}) {
    StartRequest request;
    request.route =
        identity::RouteIdentity{.sandbox = *identity::SandboxId::parse("abcdefghijklmnopqrst"),
                                .generation = identity::Generation{generation},
                                .worker = *identity::WorkerId::parse("w1"),
                                .substrate = identity::Substrate::kHost,
                                .activation = {},
                                .pod_uid = std::nullopt};
    request.spec.template_name = "host";
    request.spec.disk_bytes = 64 * kMiB;
    request.spec.memory_bytes = 256 * kMiB;
    request.spec.max_processes = 64;
    request.artifact = std::move(artifact);
    std::array<std::byte, 32> secret{};
    secret.fill(std::byte{0xab});
    request.secret = GuestSecret(std::span<const std::byte, 32>(secret));
    return request;
  }

  RuntimeInstance start(OciRuntime& runtime, StartRequest what) {
    auto started = await(runtime.start(std::move(what)));
    EXPECT_TRUE(started) << started.error().detail;
    return started.value_or(RuntimeInstance{});
  }

  net::io_context loop_{1};
  AsioTimer timer_{loop_};
  std::string base_;
  std::string program_ = "crun";
  std::unique_ptr<OciRuntime> one_;
  std::unique_ptr<OciRuntime> two_;
};

TEST_P(OciRuntimeTest,
       P23_TheGuestListensAsTheContainersFirstProcessWithTheSecretByDescriptorOnly) {
  const auto instance = start(*one_, request(7));
  ASSERT_EQ(instance.handle, "abcdefghijklmnopqrst.7");
  EXPECT_TRUE(evidence::alive(instance.guest_process));
  struct stat guest{};
  ASSERT_EQ(::stat(SPACE_TEST_GUEST, &guest), 0);
  EXPECT_EQ(instance.guest_process.exe_inode, guest.st_ino);
  struct stat socket{};
  ASSERT_EQ(::lstat(instance.transport.socket_path.c_str(), &socket), 0);
  EXPECT_EQ(instance.transport.path_inode, socket.st_ino);
  EXPECT_EQ(instance.transport.path_device, socket.st_dev);
  std::string secret;
  for (int i = 0; i < 32; ++i) secret += "ab";
  EXPECT_EQ(ask(instance.transport.socket_path, "secret"), secret);
  const auto bundle = read_text(base_ + "/w1/sandboxes/" + instance.handle + "/bundle/config.json");
  EXPECT_FALSE(bundle.empty());
  EXPECT_EQ(bundle.find(secret), std::string::npos);
  EXPECT_EQ(run(instance, "cat /proc/1/comm").text, "spaced-guest\n");
}

TEST_P(OciRuntimeTest, TheContainerIsSeparateInIdsNamesNetworkAndFiles) {
  const auto instance = start(*one_, request(1));
  const auto status = read_text("/proc/" + std::to_string(instance.guest_process.pid) + "/status");
  std::istringstream uid(status.substr(status.find("Uid:") + 4));
  std::uint32_t host_uid = 0;
  uid >> host_uid;
  EXPECT_GE(host_uid, kFirstUid);
  EXPECT_EQ(run(instance, "id -u").text, "0\n");
  EXPECT_EQ(run(instance, "hostname").text, "abcdefghijklmnopqrst\n");
  EXPECT_EQ(
      run(instance, "cd /home/user && touch x && test $(stat -c %U x) = $(id -un)", 1000).status,
      0);
  EXPECT_EQ(run(instance, "ls /sys/class/net").text, "lo\n");
  EXPECT_EQ(run(instance, "cat /sys/class/net/lo/flags").text, "0x9\n") << "loopback is up";
  EXPECT_NE(run(instance, "touch /usr/x").status, 0) << "/usr is read-only";
  EXPECT_EQ(run(instance, "stat -c %u:%g /usr/bin/env /etc/passwd /home/user /").text,
            "0:0\n0:0\n1000:1000\n0:0\n");
  EXPECT_NE(run(instance, "unshare -U true", 1000).status, 0);
  EXPECT_NE(run(instance, "mount -t tmpfs x /mnt").status, 0);
  EXPECT_NE(run(instance, "mknod /tmp/n b 7 0").status, 0);
  EXPECT_EQ(run(instance, "python3 -c 'print(6*7)'", 1000).text, "42\n");
  EXPECT_EQ(run(instance, "echo 2 | awk '{print $1 + 1}'", 1000).text, "3\n");
  EXPECT_EQ(run(instance, "ps -e | wc -l").status, 0);
}

TEST_P(OciRuntimeTest, P23_TheSocketFolderIsNotVisibleInsideAndItsDescriptorLeadsNowhere) {
  const auto instance = start(*one_, request(1));
  EXPECT_EQ(run(instance, "find / -xdev -name v.sock 2>/dev/null; true").text, "");
  EXPECT_EQ(run(instance, "grep -c vsock /proc/self/mountinfo").text, "0\n");
  EXPECT_EQ(run(instance, "ls -A /proc/self/fd/3/ /proc/self/fd/3/../..").text,
            "/proc/self/fd/3/:\nv.sock\n\n/proc/self/fd/3/../..:\nv.sock\n");
}

TEST_P(OciRuntimeTest, TheBoundingSetIsAsStatedAndASetuidProgramBecomesRoot) {
  const auto instance = start(*one_, request(1));
  std::uint64_t expected = 0;
  for (const int capability : {0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29}) {
    expected |= std::uint64_t{1} << capability;
  }
  EXPECT_EQ(oci::container_capabilities().size(), 11U);
  const auto bounding = run(instance, "grep CapBnd /proc/self/status | cut -f2");
  EXPECT_EQ(std::stoull(bounding.text, nullptr, 16), expected);
  EXPECT_EQ(run(instance, "grep -E 'NoNewPrivs|^Seccomp:' /proc/self/status").text,
            "NoNewPrivs:\t0\nSeccomp:\t2\n");
  // No shell: a shell drops what setuid gave. The kernel gives the new user id to the program
  // itself.
  const auto effective = run(instance,
                             "cp /usr/bin/id /tmp/asroot && chmod 4755 /tmp/asroot && "
                             "setpriv --reuid 1000 --regid 1000 --clear-groups /tmp/asroot");
  EXPECT_NE(effective.text.find("uid=1000(user)"), std::string::npos) << effective.text;
  EXPECT_NE(effective.text.find("euid=0(root)"), std::string::npos) << effective.text;
  if (run(instance, "test -u /usr/bin/sudo").status == 0) {
    EXPECT_EQ(run(instance, "sudo -n id -u", 1000).text, "0\n");
  }
}

TEST_P(OciRuntimeTest, LimitsHoldInsideAlone) {
  auto limited = request(1);
  limited.spec.max_processes = 24;
  limited.spec.envs = {{"GREETING", "hello world"}};
  const auto instance = start(*one_, std::move(limited));
  const auto disk = run(instance, "head -c 200000000 /dev/zero > /tmp/big; rm /tmp/big", 1000);
  EXPECT_NE(disk.text.find("No space left on device"), std::string::npos) << disk.text;
  EXPECT_EQ(run(instance, "echo fine > /tmp/small && cat /tmp/small", 1000).text, "fine\n");
  const auto memory = run(instance, "head -c 500000000 /dev/zero | tail | wc -c");
  EXPECT_EQ(memory.text.find("500000000"), std::string::npos) << "memory limit";
  EXPECT_EQ(run(instance, "tr '\\0' '\\n' < /proc/1/cmdline | grep GREETING").text,
            "GREETING=hello world\n");
  const auto fork = run(
      instance, "for i in $(seq 60); do sleep 60 >/dev/null 2>&1 & done; echo all started", 1000);
  EXPECT_NE(fork.text.find("fork"), std::string::npos) << fork.text;
  EXPECT_EQ(fork.text.find("all started"), std::string::npos) << fork.text;
  ASSERT_TRUE(await(one_->destroy(instance.handle)));
  EXPECT_EQ(leftovers(base_, instance.handle), std::vector<std::string>{});
}

TEST_P(OciRuntimeTest, P29_FreezeStopsEveryProcessAndThawContinuesTheSameOnes) {
  const auto instance = start(*one_, request(1));
  ASSERT_EQ(
      run(instance, "i=0; (while :; do i=$((i+1)); echo $i > /tmp/c; done) >/dev/null 2>&1 &", 1000)
          .status,
      0);
  const auto counter = "/proc/" + std::to_string(instance.guest_process.pid) + "/root/tmp/c";
  ASSERT_TRUE(eventually([&] { return !read_text(counter).empty(); }));
  for (int twice = 0; twice < 2; ++twice) {
    const auto frozen = await(one_->freeze(instance.handle));
    ASSERT_TRUE(frozen) << frozen.error().detail;
  }
  const auto seen = await(one_->inspect(instance.handle));
  ASSERT_TRUE(seen);
  EXPECT_TRUE(seen->frozen);
  const auto before = read_text(counter);
  ::usleep(200'000);
  EXPECT_EQ(read_text(counter), before);
  const auto thawed = await(one_->thaw(instance.handle));
  ASSERT_TRUE(thawed) << thawed.error().detail;
  EXPECT_FALSE(thawed->frozen);
  EXPECT_EQ(thawed->guest_process, instance.guest_process);
  EXPECT_EQ(thawed->transport, instance.transport);
  EXPECT_TRUE(eventually([&] { return read_text(counter) != before; }));
}

TEST_P(OciRuntimeTest, P35_APublishedArtifactStartsOnAnotherWorkerWithTheSameFilesAndOwners) {
  const auto first = start(*one_, request(7));
  ASSERT_EQ(run(first,
                "echo mine > ~user/f && chown user: ~user/f && rm /etc/fstab && "
                "echo root > /root/r && chmod 600 /root/r")
                .status,
            0);
  EXPECT_FALSE(await(one_->publish(first.handle, "snap-7"))) << "only frozen instances";
  ASSERT_TRUE(await(one_->freeze(first.handle)));
  for (int twice = 0; twice < 2; ++twice) {
    const auto published = await(one_->publish(first.handle, "snap-7"));
    ASSERT_TRUE(published) << published.error().detail;
  }
  EXPECT_FALSE(await(one_->publish(first.handle, "../x")));
  const auto artifact = base_ + "/artifacts/snap-7";
  struct stat info{};
  ASSERT_EQ(::stat(artifact.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(64 * kMiB));
  EXPECT_LT(info.st_blocks * 512, static_cast<off_t>(16 * kMiB)) << "holes are kept";
  EXPECT_EQ(std::distance(fs::directory_iterator(base_ + "/artifacts"), {}), 1);

  const auto second = start(*two_, request(8, "snap-7"));
  EXPECT_EQ(
      run(second, "cat ~user/f /root/r; stat -c %u:%g ~user/f /root/r; ls /etc/fstab").text,
      "mine\nroot\n1000:1000\n0:0\nls: cannot access '/etc/fstab': No such file or directory\n");
  ASSERT_TRUE(await(one_->thaw(first.handle)));
  EXPECT_EQ(run(first, "cat ~user/f").text, "mine\n");
  ASSERT_TRUE(await(two_->destroy(second.handle)));
  EXPECT_TRUE(fs::exists(artifact));
  ASSERT_TRUE(await(two_->remove_artifact("snap-7")));
  ASSERT_TRUE(await(two_->remove_artifact("snap-7")));
  EXPECT_FALSE(fs::exists(artifact));
}

TEST_P(OciRuntimeTest, ANewRuntimeObjectFindsInstancesAndGivesOutNoIdTwice) {
  const auto first = start(*one_, request(1));
  one_ = std::make_unique<OciRuntime>(config("w1", 0), timer_);
  const auto seen = await(one_->inspect(first.handle));
  ASSERT_TRUE(seen) << seen.error().detail;
  EXPECT_EQ(seen->guest_process, first.guest_process);
  EXPECT_EQ(seen->transport, first.transport);
  const auto second = start(*one_, request(2));
  const auto maps = [](const RuntimeInstance& instance) {
    return read_text("/proc/" + std::to_string(instance.guest_process.pid) + "/uid_map");
  };
  EXPECT_NE(maps(first), maps(second));
  EXPECT_EQ(*await(one_->list()), (std::vector{first.handle, second.handle}));
}

TEST_P(OciRuntimeTest, DestroyLeavesNothingEvenOfAFrozenOrDeadOrHalfMadeInstance) {
  const auto frozen = start(*one_, request(1));
  ASSERT_TRUE(await(one_->freeze(frozen.handle)));
  const auto dead = start(*one_, request(2));
  ::kill(dead.guest_process.pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !evidence::alive(dead.guest_process); }));
  const auto gone = await(one_->inspect(dead.handle));
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().error, RuntimeError::kNoSuchInstance);
  const std::string half = "abcdefghijklmnopqrst.3";
  fs::create_directories(base_ + "/w1/sandboxes/" + half + "/vsock");
  const std::string crashed = "abcdefghijklmnopqrst.5";  // with the machine, before a write-back
  fs::create_directories(base_ + "/w1/sandboxes/" + crashed + "/vsock");
  std::ofstream(base_ + "/w1/sandboxes/" + crashed + "/meta.json");
  const auto lost = await(one_->inspect(crashed));
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().error, RuntimeError::kNoSuchInstance);
  for (const auto& handle : {frozen.handle, dead.handle, half, crashed, std::string("other.4")}) {
    for (int twice = 0; twice < 2; ++twice) {
      const auto destroyed = await(one_->destroy(handle));
      EXPECT_TRUE(destroyed) << destroyed.error().detail;
    }
    EXPECT_EQ(leftovers(base_, handle), std::vector<std::string>{});
    EXPECT_FALSE(fs::exists(base_ + "/w1/sandboxes/" + handle));
    EXPECT_FALSE(fs::exists(base_ + "/w1/runtime/" + handle));
  }
  EXPECT_EQ(*await(one_->list()), std::vector<std::string>{});
  one_->remove_empty_groups();
  for (const auto& hierarchy : oci::read_cgroup_mounts()->hierarchies) {
    EXPECT_FALSE(fs::exists(hierarchy + cgroup_root() + "/w1")) << hierarchy;
  }
}

TEST_P(OciRuntimeTest, StartReplacesAHalfMadeInstanceAndAFailureLeavesNothing) {
  fs::create_directories(base_ + "/w1/sandboxes/abcdefghijklmnopqrst.1/vsock");
  EXPECT_EQ(run(start(*one_, request(1)), "echo ok").text, "ok\n");

  auto broken = config("w2", 1);
  broken.guest_program = "/usr/bin/true";  // ends at once
  two_ = std::make_unique<OciRuntime>(broken, timer_);
  const auto failed = await(two_->start(request(2)));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().error, RuntimeError::kFailed);
  EXPECT_EQ(leftovers(base_ + "/w2", "abcdefghijklmnopqrst.2"), std::vector<std::string>{});
  EXPECT_EQ(*await(two_->list()), std::vector<std::string>{});
}

TEST_P(OciRuntimeTest, AStartInterruptedAnywhereIsCleanedUpByDestroy) {
  const std::string handle = "abcdefghijklmnopqrst.1";
  for (const auto after : {1ms, 4ms, 8ms, 12ms, 16ms, 20ms, 25ms}) {
    net::cancellation_signal cancel;
    net::steady_timer later(loop_, after);
    later.async_wait(
        [&](const boost::system::error_code&) { cancel.emit(net::cancellation_type::terminal); });
    net::co_spawn(
        loop_, one_->start(request(1)),
        net::bind_cancellation_slot(cancel.slot(), [](const std::exception_ptr&, const auto&) {}));
    loop_.restart();
    loop_.run();
    const auto destroyed = await(one_->destroy(handle));
    ASSERT_TRUE(destroyed) << destroyed.error().detail;
    EXPECT_TRUE(eventually([&] { return leftovers(base_, handle).empty(); }));
    EXPECT_EQ(*await(one_->list()), std::vector<std::string>{});
  }
}

TEST_P(OciRuntimeTest, BadRequestsAreRefusedBeforeAnythingIsMade) {
  auto bad = request(1);
  bad.spec.template_name = "../host";
  EXPECT_EQ(await(one_->start(std::move(bad))).error().error, RuntimeError::kNoSuchTemplate);
  bad = request(1);
  bad.spec.memory_bytes = 0;
  EXPECT_FALSE(await(one_->start(std::move(bad))));
  bad = request(1);
  bad.spec.envs = {{"A=B", "c"}};
  EXPECT_FALSE(await(one_->start(std::move(bad))));
  EXPECT_FALSE(await(one_->start(request(1, "../../etc/passwd"))));
  EXPECT_FALSE(await(one_->start(request(1, "missing"))));
  EXPECT_EQ(await(one_->inspect("../x.1")).error().error, RuntimeError::kNoSuchInstance);
  EXPECT_TRUE(await(one_->destroy("../../../x.1")));
  EXPECT_FALSE(fs::exists(base_ + "/w1/sandboxes"));
}

TEST_P(OciRuntimeTest, ATemplateThatIsNotBuiltIsNamedAndNothingIsLeft) {
  auto what = request(1);
  what.spec.template_name = "base";
  const auto started = await(one_->start(std::move(what)));
  EXPECT_EQ(started.error().error, RuntimeError::kNoSuchTemplate);
  EXPECT_EQ(started.error().detail,
            "template base is not built on this machine: space template build base");
  EXPECT_EQ(*await(one_->list()), std::vector<std::string>{});
}

TEST_P(OciRuntimeTest, ADiskWhoseTemplateIsGoneIsNotStartedOverAnother) {
  const auto instance = start(*one_, request(1));
  ASSERT_TRUE(await(one_->freeze(instance.handle)));
  ASSERT_TRUE(await(one_->publish(instance.handle, "kept.1")));
  ASSERT_TRUE(await(one_->destroy(instance.handle)));
  const auto artifact = base_ + "/artifacts/kept.1";
  ASSERT_EQ(*oci::marked_template(artifact), "");
  const auto gone = "base@" + std::string(64, '1');
  ASSERT_TRUE(oci::mark_template(artifact, gone));
  ASSERT_EQ(*oci::marked_template(artifact), gone);
  const auto started = await(two_->start(request(2, "kept.1")));
  EXPECT_EQ(started.error().error, RuntimeError::kUnsupported);
  EXPECT_NE(started.error().detail.find(gone), std::string::npos) << started.error().detail;
  EXPECT_EQ(*await(two_->list()), std::vector<std::string>{});
  std::fstream(artifact, std::ios::in | std::ios::out) << "something else\n";
  EXPECT_EQ(await(two_->start(request(2, "kept.1"))).error().error, RuntimeError::kFailed);
}

TEST_P(OciRuntimeTest, C101_TheMachineCheckNamesEachThing) {
  for (const auto& finding : check_machine(config("w1", 0))) {
    EXPECT_TRUE(finding.ok) << finding.name << ": " << finding.advice;
    EXPECT_FALSE(finding.advice.empty()) << finding.name;
    std::printf("%-24s %s\n", finding.name.c_str(), finding.advice.c_str());
  }
  auto without_guest = config("w1", 0);
  without_guest.guest_program = "/nonexistent";
  const auto findings = check_machine(without_guest);
  EXPECT_EQ(std::ranges::count_if(findings, [](const Finding& f) { return !f.ok; }), 1);
}

TEST_P(OciRuntimeTest, AWorkingRuntimeProgramIsFound) {
  EXPECT_TRUE(probe_runtime(config("w1", 0)));
  auto without_stage = config("w1", 0);
  without_stage.stage_program = "/nonexistent";
  EXPECT_FALSE(probe_runtime(without_stage));
}

TEST_P(OciRuntimeTest, StartTimesArePrinted) {
  std::vector<double> millis;
  for (std::uint64_t generation = 1; generation <= 8; ++generation) {
    const auto before = timer_.now();
    const auto instance = start(*one_, request(generation));
    millis.push_back(std::chrono::duration<double, std::milli>(timer_.now() - before).count());
    ASSERT_TRUE(await(one_->destroy(instance.handle)));
  }
  std::ranges::sort(millis);
  std::printf("start with %s: min %.1f ms, median %.1f ms, max %.1f ms\n", program_.c_str(),
              millis.front(), millis[millis.size() / 2], millis.back());
}

INSTANTIATE_TEST_SUITE_P(Runtimes, OciRuntimeTest, ::testing::Values("crun", "runc"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace space
