#include "adapters/runtime_oci/stage_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

#include "base/result.h"

namespace space::oci {
namespace net = boost::asio;
namespace {

constexpr std::size_t kMaxAnswer = 1U << 20;
constexpr off_t kMaxMessages = 64 << 10;
constexpr int kFirstFreeFd = 10;  // above every number the child is given

Fd move_up(int fd) {
  const Fd low(fd);
  return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
}

Fd make_memory_file(const char* name) {
  return move_up(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

RuntimeResult<std::string> read_memory_file(const Fd& fd, std::size_t limit) {
  std::string text(limit, '\0');
  const auto size = ::pread(fd.get(), text.data(), text.size(), 0);
  if (size < 0) return errno_failure("read the answer of space-stage");
  text.resize(static_cast<std::size_t>(size));
  return text;
}

class SpawnActions {
 public:
  SpawnActions() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnActions() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* actions() { return &actions_; }
  posix_spawnattr_t* attributes() { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

RuntimeResult<StageProcess> StageProcess::spawn(const std::string& program, const char* verb,
                                                const std::string& request, int secret_fd) {
  StageProcess process;
  const Fd input = make_memory_file("stage-request");
  process.answer_ = make_memory_file("stage-answer");
  process.messages_ = make_memory_file("stage-messages");
  if (!input || !process.answer_ || !process.messages_) return errno_failure("memfd_create");
  if (auto written = write_all(input.get(), request); !written) {
    return std::unexpected(std::move(written).error());
  }
  if (::lseek(input.get(), 0, SEEK_SET) != 0) return errno_failure("seek");
  // The guest inherits this one: its size is fixed, so that nobody can fill our memory through it.
  if (::ftruncate(process.messages_.get(), kMaxMessages) != 0 ||
      ::fcntl(process.messages_.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) !=
          0) {
    return errno_failure("seal");
  }

  SpawnActions spawn;
  auto* actions = spawn.actions();
  ::posix_spawn_file_actions_adddup2(actions, input.get(), 0);
  ::posix_spawn_file_actions_adddup2(actions, process.answer_.get(), 1);
  ::posix_spawn_file_actions_adddup2(actions, process.messages_.get(), 2);
  ::posix_spawn_file_actions_addopen(actions, 3, "/dev/null", O_RDONLY, 0);
  if (secret_fd >= 0) {
    ::posix_spawn_file_actions_adddup2(actions, secret_fd, 4);
  } else {
    ::posix_spawn_file_actions_addopen(actions, 4, "/dev/null", O_RDONLY, 0);
  }
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  auto* attributes = spawn.attributes();
  ::posix_spawnattr_setsigmask(attributes, &none);
  ::posix_spawnattr_setsigdefault(attributes, &all);
  ::posix_spawnattr_setflags(attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);

  std::string name = "space-stage";
  std::string verb_text = verb;
  std::string path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  std::array<char*, 3> argv{name.data(), verb_text.data(), nullptr};
  std::array<char*, 2> envp{path.data(), nullptr};
  pid_t pid = 0;
  errno = ::posix_spawn(&pid, program.c_str(), actions, attributes, argv.data(), envp.data());
  if (errno != 0) return errno_failure("start " + program);
  // Our unreaped child: the number cannot name another process yet.
  process.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.pidfd_) {
    auto failed = errno_failure("pidfd_open");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return failed;
  }
  return process;
}

StageProcess::~StageProcess() {
  if (pidfd_) kill();
}

void StageProcess::kill() {
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) < 0 && errno == EINTR) {
  }
  pidfd_ = Fd();
}

RuntimeResult<StageOutput> StageProcess::finish() {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) {
    return errno_failure("wait for space-stage");
  }
  pidfd_ = Fd();
  SPACE_TRY(std::string answer, read_memory_file(answer_, kMaxAnswer));
  SPACE_TRY(std::string messages, read_memory_file(messages_, kMaxMessages));
  messages.resize(std::min(messages.find('\0'), messages.size()));
  return StageOutput{std::move(answer), std::move(messages)};
}

Task<RuntimeResult<StageOutput>> StageProcess::wait(Timer& timer, MonoTime deadline) {
  // Owns a duplicate: the descriptor closes what it holds.
  net::posix::stream_descriptor ended(timer.executor(),
                                      ::fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, kFirstFreeFd));
  bool timed_out = false;
  const auto alarm = timer.at(deadline, [&ended, &timed_out] {
    timed_out = true;
    ended.cancel();
  });
  const auto [error] = co_await ended.async_wait(net::posix::stream_descriptor::wait_read,
                                                 net::as_tuple(net::use_awaitable));
  if (!error) co_return finish();
  kill();
  if (timed_out) co_return failure(RuntimeError::kTimedOut, "space-stage took too long");
  co_return failure(RuntimeError::kFailed, "interrupted");
}

RuntimeResult<StageOutput> StageProcess::wait_blocking(int milliseconds) {
  pollfd ended{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, milliseconds) == 1) return finish();
  kill();
  return failure(RuntimeError::kTimedOut, "space-stage took too long");
}

}  // namespace space::oci
