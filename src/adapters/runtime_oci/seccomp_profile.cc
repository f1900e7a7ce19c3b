#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdint>
#include <string_view>

#include "adapters/runtime_oci/container_spec.h"

namespace space::oci {
namespace json = boost::json;
namespace {

// Names the runtime's libseccomp does not know are skipped by it, and so refused.
constexpr std::string_view kAllowed =
    "accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown "
    "chroot clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range "
    "creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait "
    "epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group "
    "faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 "
    "fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat "
    "fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat "
    "get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid "
    "geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority "
    "getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid "
    "gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1 "
    "inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioctl "
    "ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self "
    "lchown lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr lseek "
    "lsetxattr lstat madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore "
    "mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify "
    "mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd "
    "msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 "
    "pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect "
    "poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv "
    "process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink "
    "readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr removexattrat rename "
    "renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask "
    "rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo "
    "sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam "
    "sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam "
    "sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile "
    "sendmmsg sendmsg sendto set_mempolicy set_robust_list set_thread_area set_tid_address "
    "setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid "
    "setresuid setreuid setrlimit setsid setsockopt setuid setxattr setxattrat shmat shmctl shmdt "
    "shmget shutdown sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink "
    "symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete "
    "timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime "
    "times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 "
    "waitid write writev";

constexpr std::string_view kRefused =
    "acct add_key adjtimex bpf clock_adjtime clock_settime delete_module fanotify_init "
    "finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register "
    "io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie "
    "migrate_pages mount mount_setattr move_mount move_pages nfsservctl open_by_handle_at "
    "open_tree perf_event_open pivot_root quotactl quotactl_fd reboot request_key setdomainname "
    "sethostname setns settimeofday swapoff swapon syslog umount2 unshare userfaultfd uselib "
    "ustat vhangup";

json::array split(std::string_view names) {
  json::array out;
  while (!names.empty()) {
    const auto end = std::min(names.find(' '), names.size());
    out.emplace_back(json::string_view(names.data(), end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return out;
}

json::object allow(json::array names) {
  return {{"names", std::move(names)}, {"action", "SCMP_ACT_ALLOW"}};
}

json::object allow_if(const char* name, std::uint32_t index, std::int64_t value) {
  const json::object argument{{"index", index}, {"value", value}, {"op", "SCMP_CMP_EQ"}};
  return {
      {"names", json::array{name}}, {"action", "SCMP_ACT_ALLOW"}, {"args", json::array{argument}}};
}

}  // namespace

json::object make_seccomp_profile() {
  // Every CLONE_NEW flag but CLONE_NEWTIME, which clone() does not take. clone3() hides its flags
  // in memory and is left out: ENOSYS makes libc use clone().
  constexpr std::uint64_t kNamespaceFlags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS |
                                            CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                            CLONE_NEWNET;
  constexpr std::int64_t kPersonalityQuery = 0xffffffff;
  json::array rules;
  rules.push_back(allow(split(kAllowed)));
  rules.push_back(
      json::object{{"names", split(kRefused)}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", EPERM}});
  const json::object without_namespaces{
      {"index", 0}, {"value", kNamespaceFlags}, {"valueTwo", 0}, {"op", "SCMP_CMP_MASKED_EQ"}};
  rules.push_back(json::object{{"names", json::array{"clone"}},
                               {"action", "SCMP_ACT_ALLOW"},
                               {"args", json::array{without_namespaces}}});
  // Linux, its query, and without address randomisation (debuggers).
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{0x40000}, kPersonalityQuery}) {
    rules.push_back(allow_if("personality", 0, value));
  }
  for (const int family : {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK}) {
    rules.push_back(allow_if("socket", 0, family));
  }
#if defined(__x86_64__)
  const json::array architectures{"SCMP_ARCH_X86_64"};
#elif defined(__aarch64__)
  const json::array architectures{"SCMP_ARCH_AARCH64"};
#else
#error "name this architecture for libseccomp"
#endif
  return {{"defaultAction", "SCMP_ACT_ERRNO"},
          {"defaultErrnoRet", ENOSYS},
          {"architectures", architectures},
          {"syscalls", rules}};
}

}  // namespace space::oci
