#include "adapters/bridge/spawn.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace space::bridge {
namespace {

constexpr int kAboveInherited = 10;
constexpr unsigned kMaxOpenFiles = 64;
constexpr int kFailedStatus = 127;

bool give(int from, int to) { return ::dup2(from, to) == to; }

bool drop_bounding_set() {
  for (unsigned long capability = 0; capability < 64; ++capability) {
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      return errno == EINVAL && capability > 0;
  }
  return true;
}

bool drop_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> none{};
  return ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
         ::syscall(SYS_capset, &header, none.data()) == 0;
}

bool limit(decltype(RLIMIT_CORE) resource, rlim_t value) {
  const rlimit to{.rlim_cur = value, .rlim_max = value};
  return ::setrlimit(resource, &to) == 0;
}

// Between fork and exec, so system calls only: the wrappers of setresuid and its kin would talk to
// threads that are not here.
[[noreturn]] void become(int program, char* const* argv, std::uint32_t uid, int third, int fourth) {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  sigset_t none;
  ::sigemptyset(&none);
  char* const no_environment = nullptr;
  const bool ready =
      null >= 0 && give(null, 0) && give(null, 1) && give(third, 3) && give(fourth, 4) &&
      ::syscall(SYS_close_range, 5, ~0U, CLOSE_RANGE_CLOEXEC) == 0 && ::chdir("/") == 0 &&
      ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0 && ::setsid() > 0 && limit(RLIMIT_CORE, 0) &&
      limit(RLIMIT_NOFILE, kMaxOpenFiles) && drop_bounding_set() &&
      ::syscall(SYS_setgroups, 0, nullptr) == 0 && ::syscall(SYS_setresgid, uid, uid, uid) == 0 &&
      ::syscall(SYS_setresuid, uid, uid, uid) == 0 && drop_capabilities() &&
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (ready) ::syscall(SYS_execveat, program, "", argv, &no_environment, AT_EMPTY_PATH);
  ::_exit(kFailedStatus);
}

}  // namespace

void Child::end() {
  if (!pidfd_) return;
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  siginfo_t info{};
  while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) < 0 && errno == EINTR) {
  }
  pidfd_ = Fd();
}

std::expected<Child, std::error_code> spawn_unprivileged(int program, const std::string& name,
                                                         std::uint32_t uid, int third, int fourth) {
  const auto last_error = [] {
    return std::unexpected(std::error_code(errno, std::generic_category()));
  };
  // Away from the numbers the child is given.
  const Fd high_program(::fcntl(program, F_DUPFD_CLOEXEC, kAboveInherited));
  const Fd high_third(::fcntl(third, F_DUPFD_CLOEXEC, kAboveInherited));
  const Fd high_fourth(::fcntl(fourth, F_DUPFD_CLOEXEC, kAboveInherited));
  if (!high_program || !high_third || !high_fourth) return last_error();
  std::string argument = name;
  const std::array<char*, 2> argv{argument.data(), nullptr};

  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
  arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  const auto pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return last_error();
  if (pid == 0) become(high_program.get(), argv.data(), uid, high_third.get(), high_fourth.get());
  return Child(static_cast<std::int32_t>(pid), Fd(pidfd));
}

}  // namespace space::bridge
