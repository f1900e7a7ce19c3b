#include "adapters/templates/mmdebstrap.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "adapters/supervisor/lock_file.h"
#include "base/result.h"

namespace space::templates {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kBuildLimit = std::chrono::minutes(30);
constexpr auto kConfigLimit = std::chrono::seconds(30);
constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kKeptLines = 8;
constexpr const char* kPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

std::optional<std::string> find_program(const std::string& name) {
  const std::string path = kPath;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    auto candidate = path.substr(begin, end - begin) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return std::nullopt;
}

std::vector<std::string> environment() {
  std::vector<std::string> variables{std::string("PATH=") + kPath, "HOME=/root", "LANG=C.UTF-8"};
  for (const char* name :
       {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}) {
    if (const char* value = std::getenv(name)) variables.push_back(std::string(name) + "=" + value);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (auto& string : strings) list.push_back(string.data());
  list.push_back(nullptr);
  return list;
}

// The first process of new process and mount namespaces: with it everything in them ends, and it
// ends with its parent.
[[noreturn]] void become(std::vector<std::string> arguments, int reading, int writing) {
  auto variables = environment();
  const auto argv = pointers(arguments);
  const auto envp = pointers(variables);
  ::close(reading);
  pollfd reader{.fd = writing, .events = 0, .revents = 0};
  // No reader: the parent ended before the line above could take effect.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::poll(&reader, 1, 0) != 0) ::_exit(126);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::dup2(null, 0) < 0 || ::dup2(writing, 1) < 0 || ::dup2(writing, 2) < 0) {
    ::_exit(126);
  }
  ::umask(022);
  ::signal(SIGPIPE, SIG_DFL);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

// Calls `each` with every line that comes; nullopt at the end of the output, else why not.
std::optional<std::string> read_lines(int reading, Clock::time_point deadline,
                                      const std::function<void(std::string_view)>& each) {
  std::string line;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return "took too long";
    pollfd wait{.fd = reading, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left.count()));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const auto count = ready < 0 ? -1 : ::read(reading, buffer.data(), buffer.size());
    if (count < 0) return std::strerror(errno);
    if (count == 0) break;
    for (const char c : std::string_view(buffer.data(), static_cast<std::size_t>(count))) {
      if (c == '\n' || c == '\r') {
        if (!line.empty()) each(line);
        line.clear();
      } else if (line.size() < kMaxLine) {
        line += c;
      }
    }
  }
  if (!line.empty()) each(line);
  return std::nullopt;
}

// Runs a program to its end, its output line by line to `each`.
TemplateResult<void> run(std::vector<std::string> arguments, std::chrono::seconds limit,
                         const std::function<void(std::string_view)>& each) {
  const auto program = arguments[0];
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return failure(TemplateError::kFailed, std::string("pipe: ") + std::strerror(errno));
  }
  // Without a stack of its own: a fork into new namespaces.
  const auto pid = static_cast<pid_t>(
      ::syscall(SYS_clone, CLONE_NEWNS | CLONE_NEWPID | SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (pid == 0) become(std::move(arguments), ends[0], ends[1]);
  const int clone_error = errno;
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    return failure(TemplateError::kFailed,
                   std::string("new namespaces: ") + std::strerror(clone_error));
  }
  const auto broken = read_lines(ends[0], Clock::now() + limit, each);
  if (broken) ::kill(pid, SIGKILL);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (broken) return failure(TemplateError::kUnavailable, program + ": " + *broken);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return failure(TemplateError::kUnavailable, program + " failed");
  }
  return {};
}

TemplateResult<void> write_input(const fs::path& file, const std::string& text) {
  if (const auto error = supervisor::write_atomically(file, text, 0644)) {
    return failure(TemplateError::kFailed, "write " + file.string() + ": " + error.message());
  }
  return {};
}

// How this machine's apt reaches its archives: proxies, certificates, retries.
TemplateResult<std::string> network_settings() {
  const auto program = find_program("apt-config");
  if (!program) return failure(TemplateError::kUnavailable, "apt is not installed here");
  std::string settings;
  auto done = run({*program, "dump"}, kConfigLimit, [&](std::string_view line) {
    for (const char* begin : {"Acquire::http", "Acquire::Retries", "Acquire::ForceIPv"}) {
      if (line.starts_with(begin)) settings += std::string(line) + "\n";
    }
  });
  if (!done) return std::unexpected(std::move(done).error());
  return settings;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ",") + item;
  return text;
}

}  // namespace

bool can_make_root() { return find_program("mmdebstrap").has_value(); }

TemplateResult<void> make_root(const Recipe& recipe, const fs::path& work,
                               const std::function<void(const BuildProgress&)>& progress) {
  const auto program = find_program("mmdebstrap");
  if (!program) {
    return failure(TemplateError::kUnavailable,
                   "mmdebstrap is missing: apt-get install mmdebstrap");
  }
  SPACE_TRY(const auto settings, network_settings());
  const auto inputs = work / "in";
  std::error_code error;
  fs::create_directory(inputs, error);
  if (error) return failure(TemplateError::kFailed, inputs.string() + ": " + error.message());
  const auto sources = inputs / "template.list";
  const auto apt_settings = inputs / "apt.conf";
  if (auto done = write_input(sources, recipe.sources); !done) return done;
  if (auto done = write_input(apt_settings, settings); !done) return done;

  BuildProgress so_far;
  progress(so_far);
  std::deque<std::string> last;
  auto done =
      run({*program, "--verbose", "--mode=root", "--format=directory", "--variant=minbase",
           "--architectures=" + recipe.arch, "--include=" + joined(recipe.packages),
           "--aptopt=" + apt_settings.string(),
           // It becomes visible whole, after a sync of everything.
           "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*",
           "--dpkgopt=path-exclude=/usr/share/info/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
           "--dpkgopt=path-exclude=/usr/share/doc/*",
           "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--customize-hook=" + recipe.script,
           recipe.suite, (work / "root").string(), sources.string()},
          kBuildLimit, [&](std::string_view line) {
            last.emplace_back(line);
            if (last.size() > kKeptLines) last.pop_front();
            if (so_far.line(line)) progress(so_far);
          });
  if (!done) {
    for (const auto& line : last) done.error().message += "\n  " + line;
    return done;
  }
  fs::remove_all(inputs, error);
  if (error) return failure(TemplateError::kFailed, inputs.string() + ": " + error.message());
  return {};
}

}  // namespace space::templates
