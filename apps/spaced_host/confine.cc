#include "confine.h"

#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

namespace space {
namespace {

constexpr unsigned kFirstUnknownFd = 5;

bool no_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return false;
  const auto empty = [](const __user_cap_data_struct& set) {
    return set.effective == 0 && set.permitted == 0 && set.inheritable == 0;
  };
  if (!std::ranges::all_of(sets, empty)) return false;
  for (unsigned long capability = 0; capability < 64; ++capability) {
    if (::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) > 0) return false;
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, capability, 0, 0) > 0) return false;
  }
  return true;
}

}  // namespace

std::optional<std::string> confine() {
  if (::getuid() == 0 || ::geteuid() == 0) return "it must not run as root";
  if (!no_capabilities()) return "a capability is left";
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "no-new-privileges";
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return "dumpable";
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return "core limit";
  if (::syscall(SYS_close_range, kFirstUnknownFd, ~0U, 0) != 0) return "descriptors";
  return std::nullopt;
}

std::optional<std::string> restrict_system_calls() {
  constexpr std::array kAllowed{
      SCMP_SYS(read),
      SCMP_SYS(write),
      SCMP_SYS(readv),
      SCMP_SYS(writev),
      SCMP_SYS(recvmsg),
      SCMP_SYS(sendmsg),
      SCMP_SYS(recvfrom),
      SCMP_SYS(sendto),
      SCMP_SYS(shutdown),
      SCMP_SYS(close),
      SCMP_SYS(epoll_create1),
      SCMP_SYS(epoll_ctl),
      SCMP_SYS(epoll_wait),
      SCMP_SYS(epoll_pwait),
      SCMP_SYS(eventfd2),
      SCMP_SYS(pipe2),
      SCMP_SYS(pipe),
      SCMP_SYS(timerfd_create),
      SCMP_SYS(timerfd_settime),
      SCMP_SYS(poll),
      SCMP_SYS(fcntl),
      SCMP_SYS(ioctl),
      SCMP_SYS(getsockopt),
      SCMP_SYS(setsockopt),
      SCMP_SYS(clock_gettime),
      SCMP_SYS(getrandom),
      SCMP_SYS(brk),
      SCMP_SYS(mmap),
      SCMP_SYS(munmap),
      SCMP_SYS(mremap),
      SCMP_SYS(madvise),
      SCMP_SYS(mprotect),
      SCMP_SYS(futex),
      SCMP_SYS(rt_sigaction),
      SCMP_SYS(rt_sigprocmask),
      SCMP_SYS(rt_sigreturn),
      SCMP_SYS(restart_syscall),
      SCMP_SYS(getpid),
      SCMP_SYS(gettid),
      SCMP_SYS(tgkill),
      SCMP_SYS(exit),
      SCMP_SYS(exit_group),
  };
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(
      seccomp_init(SCMP_ACT_KILL_PROCESS), &seccomp_release);
  if (!filter) return "seccomp";
  for (const auto call : kAllowed) {
    if (seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0) != 0) return "seccomp rule";
  }
  if (seccomp_load(filter.get()) != 0) return "seccomp load";
  return std::nullopt;
}

}  // namespace space
