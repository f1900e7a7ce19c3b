#include "adapters/guest_linux/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "adapters/guest_linux/keeper.h"
#include "adapters/guest_linux/users.h"
#include "base/result.h"
#include "ports/notifier.h"

namespace space::guest_linux {
namespace net = boost::asio;
using Pipe = net::posix::stream_descriptor;
using wire::hop::Outcome;

namespace {

constexpr std::size_t kChunk = 32 * 1024;
constexpr std::string_view kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr int kKillRoundsPerTurn = 8;
constexpr BootClock::duration kKillAgain = std::chrono::milliseconds(10);

// Parent and state from /proc/PID/stat, whose name field may hold anything up to its last ')'.
bool read_parent(const char* pid, pid_t& parent, char& state) {
  char path[64];
  ::snprintf(path, sizeof path, "/proc/%s/stat", pid);
  const Descriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return false;
  char text[512];
  const auto count = ::read(fd.get(), text, sizeof text - 1);
  if (count <= 0) return false;
  text[count] = '\0';
  const char* end = ::strrchr(text, ')');
  int number = 0;
  if (end == nullptr || ::sscanf(end + 1, " %c %d", &state, &number) != 2) return false;
  parent = number;
  return true;
}

// Living descendants of `root`, zombies left out, in no order.
std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, std::pair<pid_t, bool>> children;  // -> pid, living
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return {};
  while (const auto* entry = ::readdir(proc)) {
    const auto pid = static_cast<pid_t>(::strtol(entry->d_name, nullptr, 10));
    pid_t parent = 0;
    char state = 0;
    if (pid > 0 && read_parent(entry->d_name, parent, state)) {
      children.emplace(parent, std::pair(pid, state != 'Z' && state != 'X'));
    }
  }
  ::closedir(proc);
  std::vector<pid_t> found;
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto at = first; at != last; ++at) {
      const auto [pid, living] = at->second;
      open.push_back(pid);
      if (living) found.push_back(pid);
    }
  }
  return found;
}

wire::ProcessExited exited_of(const ExitNote& note) {
  wire::ProcessExited exited;
  if (note.code == CLD_EXITED) {
    exited.exit_code = note.status;
  } else {
    exited.exit_code = 128 + note.status;
    exited.signal = note.status;
    exited.core_dumped = note.code == CLD_DUMPED;
  }
  return exited;
}

}  // namespace

// The agent's end of a command. Kept alive by its own pending waits until every pipe has ended, so
// that descendants in the background never write into a closed pipe (C063).
class LinuxProcesses::Tree : public std::enable_shared_from_this<Tree> {
 public:
  Tree(asio::Loop& loop, Launched launched)
      : loop_(loop),
        keeper_(launched.keeper),
        main_(launched.main),
        control_(loop.context(), launched.control.release()),
        input_(loop.context()),
        output_{Pipe(loop.context(), launched.output[0].release()),
                Pipe(loop.context(), launched.output[1].release())} {
    if (launched.input) input_.assign(launched.input.release());
  }

  void watch() {
    control_.async_wait(Pipe::wait_read,
                        [self = shared_from_this()](const boost::system::error_code& error) {
                          if (!error) self->take_exit();
                        });
  }

  Task<std::optional<GuestProcess::Event>> next() {
    const auto self = shared_from_this();
    for (;;) {
      // What the main process wrote is in the pipes when its exit is known.
      const bool exited = exited_.has_value();
      for (std::size_t i = 0; i < output_.size(); ++i) {
        turn_ = 1 - turn_;
        if (auto output = read_output(turn_, exited)) co_return *std::move(output);
      }
      if (exited) {
        abandon();
        co_return *exited_;
      }
      if (co_await changed_.wait(loop_) == Notifier::Wake::kCancelled) co_return std::nullopt;
    }
  }

  Task<GuestResult<void>> write_input(ByteView bytes) {
    const auto self = shared_from_this();
    const auto closed = guest_failure(Outcome::kConflict, "the input of the process is closed");
    while (!bytes.empty()) {
      if (!input_.is_open()) co_return closed;
      const auto count = ::write(input_.native_handle(), bytes.data(), bytes.size());
      if (count >= 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(count));
      } else if (errno == EAGAIN) {
        const auto [error] =
            co_await input_.async_wait(Pipe::wait_write, net::as_tuple(net::use_awaitable));
        if (error && input_.is_open())
          co_return guest_failure(Outcome::kInterrupted, "interrupted");
      } else if (errno != EINTR) {
        close_input();
        co_return closed;
      }
    }
    co_return GuestResult<void>{};
  }

  void close_input() { close(input_); }
  bool running() const { return !exited_; }

  void signal(int number) {
    if (running()) ::kill(-main_, number);
  }

  void signal_tree(int number) {
    if (number == SIGKILL) {
      kill_all();
      return;
    }
    if (keeper_ == 0) return;
    for (const auto pid : descendants(keeper_)) ::kill(pid, number);
  }

  // Nobody asks for output any more: the rest is read and thrown away.
  void abandon() {
    if (std::exchange(abandoned_, true)) return;
    for (std::size_t channel = 0; channel < output_.size(); ++channel) drain(channel);
  }

  void keeper_ended() { keeper_ = 0; }

 private:
  static void close(Pipe& pipe) {
    boost::system::error_code ignored;
    pipe.close(ignored);
  }

  void take_exit() {
    ExitNote note{CLD_KILLED, SIGKILL};  // a keeper that was killed tells nothing
    const auto count = ::recv(control_.native_handle(), &note, sizeof note, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      watch();
      return;
    }
    if (count != sizeof note) note = {CLD_KILLED, SIGKILL};
    exited_ = exited_of(note);
    for (std::size_t channel = 0; channel < output_.size(); ++channel) {
      int pending = 0;
      if (output_[channel].is_open()) ::ioctl(output_[channel].native_handle(), FIONREAD, &pending);
      left_[channel] = static_cast<std::size_t>(std::max(pending, 0));
    }
    close(control_);
    changed_.notify();
  }

  std::optional<GuestProcess::Event> read_output(std::size_t channel, bool exited) {
    auto& pipe = output_[channel];
    const auto limit = exited ? std::min(kChunk, left_[channel]) : kChunk;
    if (!pipe.is_open() || limit == 0) return std::nullopt;
    std::array<std::byte, kChunk> buffer;
    const auto count = ::read(pipe.native_handle(), buffer.data(), limit);
    if (count > 0) {
      const auto bytes = std::span(buffer).first(static_cast<std::size_t>(count));
      if (exited) left_[channel] -= bytes.size();
      return wire::ProcessOutput{
          channel == 0 ? wire::OutputChannel::kStdout : wire::OutputChannel::kStderr,
          Bytes(bytes.begin(), bytes.end())};
    }
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!exited) await_output(channel);
    } else {
      close(pipe);
    }
    return std::nullopt;
  }

  void await_output(std::size_t channel) {
    if (std::exchange(awaiting_[channel], true)) return;
    output_[channel].async_wait(Pipe::wait_read, [self = shared_from_this(),
                                                  channel](const boost::system::error_code& error) {
      self->awaiting_[channel] = false;
      if (error) return;
      if (self->abandoned_) {
        self->drain(channel);
      } else {
        self->changed_.notify();
      }
    });
  }

  void drain(std::size_t channel) {
    auto& pipe = output_[channel];
    if (!pipe.is_open()) return;
    std::array<std::byte, kChunk> buffer;
    const auto count = ::read(pipe.native_handle(), buffer.data(), buffer.size());
    if (count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))) {
      await_output(channel);
    } else {
      close(pipe);
    }
  }

  // A killed process forks no more, so each round leaves fewer; the rest is for the next turn.
  void kill_all() {
    for (int round = 0; round < kKillRoundsPerTurn; ++round) {
      const auto living = keeper_ == 0 ? std::vector<pid_t>{} : descendants(keeper_);
      if (living.empty()) return;
      for (const auto pid : living) ::kill(pid, SIGKILL);
    }
    again_ = loop_.at(loop_.now() + kKillAgain, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->kill_all();
    });
  }

  asio::Loop& loop_;
  pid_t keeper_;  // 0 once it was reaped
  pid_t main_;
  Pipe control_;
  Pipe input_;
  std::array<Pipe, 2> output_;
  std::array<bool, 2> awaiting_{};
  std::array<std::size_t, 2>
      left_{};  // bytes of the main process still in the pipes, after its exit
  std::size_t turn_ = 1;
  bool abandoned_ = false;
  std::optional<wire::ProcessExited> exited_;
  Notifier changed_;
  std::unique_ptr<Timer::Alarm> again_;
};

class LinuxProcesses::Process final : public GuestProcess {
 public:
  explicit Process(std::shared_ptr<Tree> tree) : tree_(std::move(tree)) {}
  ~Process() override {
    tree_->close_input();
    tree_->abandon();
  }
  Task<std::optional<Event>> next() override { return tree_->next(); }
  Task<GuestResult<void>> write_input(ByteView bytes) override { return tree_->write_input(bytes); }
  void close_input() override { tree_->close_input(); }
  bool running() const override { return tree_->running(); }
  void signal(int number) override { tree_->signal(number); }
  void signal_tree(int number) override { tree_->signal_tree(number); }

 private:
  std::shared_ptr<Tree> tree_;
};

LinuxProcesses::LinuxProcesses(asio::Loop& loop) : loop_(loop), children_(loop.context(), SIGCHLD) {
  ::getrlimit(RLIMIT_NOFILE, &files_);
  await_children();
}

void LinuxProcesses::await_children() {
  children_.async_wait([this](const boost::system::error_code& error, int) {
    if (error) return;
    reap();
    await_children();
  });
}

void LinuxProcesses::reap() {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid <= 0) return;
    const auto at = keepers_.find(pid);
    if (at == keepers_.end()) continue;
    if (const auto tree = at->second.lock()) tree->keeper_ended();
    keepers_.erase(at);
  }
}

GuestResult<std::unique_ptr<GuestProcess>> LinuxProcesses::start(wire::ProcessSpec spec) {
  SPACE_TRY(auto user, accounts_.get()->find(spec.user));
  std::map<std::string, std::string> environment = std::move(spec.envs);
  environment.emplace("PATH", kPath);
  environment.emplace("HOME", user.home);
  environment.emplace("USER", user.name);
  environment.emplace("LOGNAME", user.name);
  environment.emplace("SHELL", user.shell);

  Launch plan;
  plan.files = files_;
  plan.input = spec.stdin_open;
  plan.cwd = spec.cwd.empty() ? user.home : absolute_path(spec.cwd, user);
  plan.cwd_optional = spec.cwd.empty();
  plan.user = std::move(user);
  if (spec.command.contains('/')) {
    plan.candidates.push_back(spec.command);
  } else {
    const auto& path = environment.at("PATH");
    for (std::size_t at = 0; at <= path.size();) {
      const auto end = std::min(path.find(':', at), path.size());
      const auto folder = path.substr(at, end - at);
      plan.candidates.push_back((folder.empty() ? "." : folder) + "/" + spec.command);
      at = end + 1;
    }
  }
  plan.arguments.push_back(std::move(spec.command));
  std::ranges::move(spec.arguments, std::back_inserter(plan.arguments));
  for (const auto& [key, value] : environment) plan.environment.push_back(key + "=" + value);

  SPACE_TRY(auto launched, launch(plan));
  const auto keeper = launched.keeper;
  auto tree = std::make_shared<Tree>(loop_, std::move(launched));
  keepers_.emplace(keeper, tree);
  tree->watch();
  return std::make_unique<Process>(std::move(tree));
}

}  // namespace space::guest_linux
