// spaced-guest: the agent inside a sandbox, its first process (PROTOCOL P-23).
//
//   spaced-guest --listen-dir-fd N --secret-fd N --port N --sandbox ID [--first-public-pid N]
//   [--env KEY=VALUE]...
//
// Binds v.sock in the folder of --listen-dir-fd before any other process of the sandbox exists. The
// secret, 32 bytes, comes by descriptor only. Exit status 2: wrong use; 1: could not start.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/asio/loop.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/guest_linux/files.h"
#include "adapters/guest_linux/machine.h"
#include "adapters/guest_linux/processes.h"
#include "adapters/telemetry/json_log.h"
#include "base/text.h"
#include "services/spaced_guest/guest_agent.h"

namespace {

using namespace space;

struct Arguments {
  guest::GuestAgent::Options options;
  int listen_folder = -1;
  int secret = -1;
};

std::optional<std::uint32_t> number(std::string_view text, std::uint32_t max) {
  const auto value = parse_decimal(text);
  if (!value || *value > max) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

std::optional<Arguments> parse(std::span<char*> words) {
  Arguments arguments;
  bool has_sandbox = false;
  constexpr std::uint32_t kMaxDescriptor = 1 << 20;
  constexpr std::uint32_t kMaxPid = 0xffff'ffff - identity::kPublicPidBlock;
  if (words.size() % 2 != 1) return std::nullopt;
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const std::string_view flag = words[i];
    const std::string_view value = words[i + 1];
    if (flag == "--listen-dir-fd" || flag == "--secret-fd") {
      const auto fd = number(value, kMaxDescriptor);
      if (!fd || *fd < 3) return std::nullopt;
      (flag == "--secret-fd" ? arguments.secret : arguments.listen_folder) = static_cast<int>(*fd);
    } else if (flag == "--port") {
      const auto port = number(value, 0xffff'ffff);
      if (!port) return std::nullopt;
      arguments.options.port = *port;
    } else if (flag == "--first-public-pid") {
      const auto pid = number(value, kMaxPid);
      if (!pid || *pid == 0) return std::nullopt;
      arguments.options.first_public_pid = *pid;
    } else if (flag == "--sandbox") {
      const auto sandbox = identity::SandboxId::parse(value);
      if (!sandbox) return std::nullopt;
      arguments.options.sandbox = *sandbox;
      has_sandbox = true;
    } else if (flag == "--env") {
      const auto equals = value.find('=');
      if (equals == 0 || equals == std::string_view::npos) return std::nullopt;
      arguments.options.envs.insert_or_assign(std::string(value.substr(0, equals)),
                                              std::string(value.substr(equals + 1)));
    } else {
      return std::nullopt;
    }
  }
  if (!has_sandbox || arguments.listen_folder < 0 || arguments.secret < 0) return std::nullopt;
  return arguments;
}

// Reads the secret and closes its descriptor.
std::optional<GuestSecret> take_secret(int fd) {
  std::array<std::byte, 32> bytes{};
  std::size_t size = 0;
  while (size < bytes.size()) {
    const auto count = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  ::close(fd);
  std::optional<GuestSecret> secret;
  if (size == bytes.size()) secret.emplace(std::span<const std::byte, 32>(bytes));
  ::explicit_bzero(bytes.data(), bytes.size());
  return secret;
}

void open_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // takes the lowest free number: fd
  }
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Task<int> serve(guest::GuestAgent& agent, Listener& listener) {
  co_await agent.serve(listener);
  co_await agent.stop();
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(SIGPIPE, SIG_IGN);
  ::umask(022);
  open_standard_descriptors();
  telemetry::JsonLog log("spaced-guest");
  auto arguments = parse(std::span(argv, static_cast<std::size_t>(argc)));
  if (!arguments) {
    log.event(Level::kError, "guest.bad_arguments", {});
    return 2;
  }
  auto secret = take_secret(arguments->secret);
  if (!secret) {
    log.event(Level::kError, "guest.no_secret", {});
    return 1;
  }
  asio::Loop loop;
  auto listener = guest_linux::listen_in(loop, arguments->listen_folder, "v.sock");
  if (!listener) {
    log.event(Level::kError, "guest.cannot_listen", {{"error", listener.error().message()}});
    return 1;
  }
  if (const auto error = guest_linux::bring_loopback_up()) {
    log.event(Level::kWarning, "guest.loopback_down", {{"error", error.message()}});
  }
  crypto::SystemEntropy entropy;
  guest_linux::LinuxFiles files(loop, entropy);
  guest_linux::LinuxProcesses processes(loop);  // before the limit is raised, for itself alone
  raise_descriptor_limit();
  guest_linux::LinuxClock clock;
  arguments->options.boot_id = guest_linux::boot_id();
  guest::GuestAgent agent(std::move(arguments->options), *std::move(secret),
                          {loop, entropy, log, files, processes, clock});
  log.event(Level::kInfo, "guest.listening", {});
  return loop.run(serve(agent, **listener), [&listener] { (*listener)->close(); });
}
