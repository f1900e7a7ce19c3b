#include "adapters/supervisor/supervisor.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "adapters/supervisor/backoff.h"

namespace space::supervisor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kCannotStart = 127;

struct Running {
  const Part* part;
  PartState state;
  Backoff backoff;
  Clock::time_point since;  // of the start, or when to start again
};

[[noreturn]] void fail_in_child(const char* what) {
  const std::string line =
      std::string("cannot start: ") + what + ": " + std::strerror(errno) + "\n";
  [[maybe_unused]] const auto written = ::write(2, line.data(), line.size());
  ::_exit(kCannotStart);
}

[[noreturn]] void become(const Part& part, const Setting& setting, pid_t supervisor) {
  // The kernel drops this on a change of credentials, so it is set after that again.
  const auto die_with_supervisor = [&] {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_in_child("prctl");
    if (::getppid() != supervisor) ::_exit(kCannotStart);
  };
  die_with_supervisor();
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int log = ::open(part.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (log < 0 || null < 0) fail_in_child(part.log.c_str());
  if (::dup2(null, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) fail_in_child("dup2");
  const int program = ::open(part.program.c_str(), O_PATH | O_CLOEXEC);
  if (program < 0) fail_in_child(part.program.c_str());
  if (::chdir(setting.working_directory.c_str()) != 0) {
    fail_in_child(setting.working_directory.c_str());
  }
  if (part.uid) {
    if (::setgroups(0, nullptr) != 0) fail_in_child("setgroups");
    if (::setresgid(*part.uid, *part.uid, *part.uid) != 0) fail_in_child("setresgid");
    if (::setresuid(*part.uid, *part.uid, *part.uid) != 0) fail_in_child("setresuid");
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail_in_child("no_new_privs");
  }
  die_with_supervisor();
  std::vector<std::string> words{part.name};
  words.insert(words.end(), part.arguments.begin(), part.arguments.end());
  std::vector<std::string> environment = setting.environment;
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& s : strings) list.push_back(s.data());
    list.push_back(nullptr);
    return list;
  };
  const auto argv = pointers(words);
  const auto envp = pointers(environment);
  ::syscall(SYS_execveat, program, "", argv.data(), envp.data(), AT_EMPTY_PATH);
  fail_in_child(part.program.c_str());
}

std::string describe(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

class Supervisor {
 public:
  Supervisor(const std::vector<Part>& parts, const Setting& setting, Log& log,
             std::function<void(const std::vector<PartState>&)> changed)
      : setting_(setting), log_(log), changed_(std::move(changed)), self_(::getpid()) {
    for (const Part& part : parts) {
      Running running{.part = &part, .state = {}, .backoff = {}, .since = Clock::now()};
      running.state.name = part.name;
      running_.push_back(std::move(running));
    }
  }

  void run(std::chrono::milliseconds stop_time) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    sigset_t watched;
    ::sigemptyset(&watched);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) ::sigaddset(&watched, signal);
    ::sigprocmask(SIG_BLOCK, &watched, nullptr);
    signals_ = ::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    while (!stopping_) {
      start_due();
      wait_until(next_start());
    }
    stop_all(stop_time);
    ::close(signals_);
  }

 private:
  void start_due() {
    bool any = false;
    for (Running& part : running_) {
      if (part.state.pid != 0 || Clock::now() < part.since) continue;
      const pid_t pid = ::fork();
      if (pid == 0) become(*part.part, setting_, self_);
      part.since = Clock::now();
      part.state.starts++;
      any = true;
      if (pid < 0) {
        log_.event(Level::kError, "part.not_started",
                   {{"name", part.state.name}, {"reason", std::strerror(errno)}});
        part.since += part.backoff.next(std::chrono::milliseconds(0));
        continue;
      }
      part.state.pid = pid;
      log_.event(Level::kInfo, "part.started",
                 {{"name", part.state.name}, {"pid", static_cast<std::uint64_t>(pid)}});
    }
    if (any) report();
  }

  std::optional<Clock::time_point> next_start() const {
    std::optional<Clock::time_point> next;
    for (const Running& part : running_) {
      if (part.state.pid == 0 && (!next || part.since < *next)) next = part.since;
    }
    return next;
  }

  // Waits for a signal or `deadline`, and handles what came.
  void wait_until(std::optional<Clock::time_point> deadline) {
    int timeout = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    pollfd poll{.fd = signals_, .events = POLLIN, .revents = 0};
    ::poll(&poll, 1, timeout);
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) stopping_ = true;
    }
    reap();
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto part = std::find_if(running_.begin(), running_.end(),
                                     [&](const Running& r) { return r.state.pid == pid; });
      if (part == running_.end()) continue;
      const auto life =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - part->since);
      const auto delay = part->backoff.next(life);
      part->state.pid = 0;
      part->state.last_end = describe(status);
      part->since = Clock::now() + delay;
      log_.event(stopping_ ? Level::kInfo : Level::kWarning, "part.ended",
                 {{"name", part->state.name},
                  {"end", part->state.last_end},
                  {"life_ms", static_cast<std::uint64_t>(life.count())},
                  {"restart_ms", static_cast<std::uint64_t>(stopping_ ? 0 : delay.count())}});
      report();
    }
  }

  void stop_all(std::chrono::milliseconds stop_time) {
    for (auto part = running_.rbegin(); part != running_.rend(); ++part) {
      if (part->state.pid == 0) continue;
      ::kill(part->state.pid, SIGTERM);
      const auto deadline = Clock::now() + stop_time;
      while (part->state.pid != 0 && Clock::now() < deadline) wait_until(deadline);
      if (part->state.pid == 0) continue;
      log_.event(Level::kError, "part.killed", {{"name", part->state.name}});
      ::kill(part->state.pid, SIGKILL);
      while (part->state.pid != 0) wait_until(std::nullopt);
    }
  }

  void report() {
    std::vector<PartState> states;
    for (const Running& part : running_) states.push_back(part.state);
    changed_(states);
  }

  const Setting& setting_;
  Log& log_;
  std::function<void(const std::vector<PartState>&)> changed_;
  pid_t self_;
  std::vector<Running> running_;
  int signals_ = -1;
  bool stopping_ = false;
};

}  // namespace

void run(const std::vector<Part>& parts, const Setting& setting, Log& log,
         std::function<void(const std::vector<PartState>&)> changed,
         std::chrono::milliseconds stop_time) {
  Supervisor(parts, setting, log, std::move(changed)).run(stop_time);
}

}  // namespace space::supervisor
