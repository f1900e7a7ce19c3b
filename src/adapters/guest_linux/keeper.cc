#include "adapters/guest_linux/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace space::guest_linux {

using wire::hop::Outcome;

namespace {

enum class Stage : int { kFork = 1, kUser, kDirectory, kProgram };
struct StartError {
  Stage stage = Stage::kFork;
  int error = 0;
};

struct ChildEnds {
  Descriptor input;
  Descriptor output[2];
  Descriptor error;    // StartError, or end-of-file at exec
  Descriptor control;  // the keeper's end
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Descriptors from `first` on: closed, or closed at exec.
void close_from(unsigned first, bool at_exec) {
  const unsigned flags = at_exec ? CLOSE_RANGE_CLOEXEC : 0;
  if (::syscall(SYS_close_range, first, ~0U, flags) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (auto fd = first; fd < limit.rlim_cur && fd < 65536; ++fd) {
    if (at_exec) {
      ::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
    } else {
      ::close(static_cast<int>(fd));
    }
  }
}

[[noreturn]] void give_up(int error_fd, Stage stage) {
  const StartError report{stage, errno};
  [[maybe_unused]] const auto count = ::write(error_fd, &report, sizeof report);
  ::_exit(127);
}

[[noreturn]] void run_program(const Launch& launch, const ChildEnds& ends) {
  const int error_fd = ends.error.get();
  ::setsid();
  ::dup2(ends.input.get(), 0);
  ::dup2(ends.output[0].get(), 1);
  ::dup2(ends.output[1].get(), 2);
  close_from(3, true);
  ::setrlimit(RLIMIT_NOFILE, &launch.files);
  const auto& user = launch.user;
  // A process without privileges may stay what it is.
  const bool same = ::geteuid() == user.uid && ::getegid() == user.gid && user.uid != 0;
  if (!same && (::setgroups(user.groups.size(), user.groups.data()) != 0 ||
                ::setresgid(user.gid, user.gid, user.gid) != 0 ||
                ::setresuid(user.uid, user.uid, user.uid) != 0)) {
    give_up(error_fd, Stage::kUser);
  }
  ::umask(022);
  if (::chdir(launch.cwd.c_str()) != 0 && !(launch.cwd_optional && ::chdir("/") == 0)) {
    give_up(error_fd, Stage::kDirectory);
  }
  const auto arguments = pointers(launch.arguments);
  const auto environment = pointers(launch.environment);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int error = ENOENT;
  for (const auto& candidate : launch.candidates) {
    ::execve(candidate.c_str(), arguments.data(), environment.data());
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;
  }
  errno = error;
  give_up(error_fd, Stage::kProgram);
}

[[noreturn]] void keep(const Launch& launch, const ChildEnds& ends) {
  ::prctl(PR_SET_NAME, "space-keeper");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  const pid_t main = ::fork();
  if (main < 0) give_up(ends.error.get(), Stage::kFork);
  if (main == 0) run_program(launch, ends);
  const int control = 0;
  ::dup2(ends.control.get(), control);
  close_from(1, false);
  ::send(control, &main, sizeof main, MSG_NOSIGNAL);
  for (;;) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) != 0) ::_exit(0);
    if (ended.si_pid == main) {
      const ExitNote note{ended.si_code, ended.si_status};
      ::send(control, &note, sizeof note, MSG_NOSIGNAL);
      char ignored = 0;
      while (::read(control, &ignored, 1) > 0) {
      }
      ::close(control);
    }
    ::waitpid(ended.si_pid, nullptr, 0);
  }
}

bool make_pipe(Descriptor& read_end, Descriptor& write_end) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return false;
  read_end.reset(fds[0]);
  write_end.reset(fds[1]);
  return true;
}

void make_non_blocking(const Descriptor& fd) {
  if (fd) ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

GuestFailure describe(const StartError& error, const Launch& launch) {
  switch (error.stage) {
    case Stage::kFork:
      return failure_of(error.error, "cannot start a process");
    case Stage::kUser:
      return failure_of(error.error, "cannot run as user " + launch.user.name);
    case Stage::kDirectory: {
      auto failure = failure_of(error.error, "working directory " + launch.cwd);
      if (failure.outcome == Outcome::kNotFound || failure.outcome == Outcome::kNotDirectory) {
        failure.outcome = Outcome::kInvalidArgument;
      }
      return failure;
    }
    case Stage::kProgram:
      return failure_of(error.error, launch.arguments.front());
  }
  std::unreachable();
}

}  // namespace

GuestResult<Launched> launch(const Launch& launch) {
  const auto no_resources = [] {
    return std::unexpected(failure_of(errno, "cannot start a process"));
  };
  Launched launched;
  ChildEnds ends;
  Descriptor error;
  int control[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0) return no_resources();
  launched.control.reset(control[0]);
  ends.control.reset(control[1]);
  if (!make_pipe(error, ends.error) || !make_pipe(launched.output[0], ends.output[0]) ||
      !make_pipe(launched.output[1], ends.output[1])) {
    return no_resources();
  }
  if (launch.input) {
    if (!make_pipe(ends.input, launched.input)) return no_resources();
  } else {
    ends.input.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!ends.input) return no_resources();
  }
  launched.keeper = ::fork();
  if (launched.keeper < 0) return no_resources();
  if (launched.keeper == 0) keep(launch, ends);
  {
    const auto closed_here = std::move(ends);
  }

  // Both reads end with the exec: the program cannot hold these descriptors.
  StartError report;
  ssize_t count = 0;
  do {
    count = ::read(error.get(), &report, sizeof report);
  } while (count < 0 && errno == EINTR);
  if (count == sizeof report) return std::unexpected(describe(report, launch));
  do {
    count = ::recv(launched.control.get(), &launched.main, sizeof launched.main, 0);
  } while (count < 0 && errno == EINTR);
  if (count != sizeof launched.main) {
    return guest_failure(Outcome::kInternal, "the new process was lost");
  }
  make_non_blocking(launched.control);
  make_non_blocking(launched.input);
  make_non_blocking(launched.output[0]);
  make_non_blocking(launched.output[1]);
  return launched;
}

}  // namespace space::guest_linux
