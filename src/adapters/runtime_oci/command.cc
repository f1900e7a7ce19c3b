#include "adapters/runtime_oci/command.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace space::oci {

RuntimeResult<int> run_command(const std::vector<std::string>& arguments, bool keep_fds) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return errno_failure("open /dev/null");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno_failure("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(null.get(), 0);
    ::dup2(null.get(), 1);
    ::close_range(keep_fds ? 5 : 3, ~0U, CLOSE_RANGE_CLOEXEC);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return errno_failure("wait");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace space::oci
