// spaced-host: one bridge to one guest. Started by sbx-manager with, as descriptors, 3: the
// manager's socket file for this bridge (O_PATH), 4: the connected guest, unread. No arguments, no
// configuration.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "adapters/asio/loop.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/telemetry/json_log.h"
#include "confine.h"
#include "services/spaced_host/bridge.h"

namespace space {
namespace {

constexpr int kManagerPath = 3;
constexpr int kGuest = 4;

int connect_manager() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = "/proc/self/fd/" + std::to_string(kManagerPath);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return -1;
  }
  ::close(kManagerPath);
  return fd;
}

Task<int> serve(spaced_host::Bridge& bridge) {
  co_await bridge.run();
  co_return 0;
}

int run() {
  telemetry::JsonLog log("spaced-host");
  const auto refuse = [&](std::string_view step, std::string_view reason) {
    log.event(Level::kError, "bridge.not_started", {{"step", step}, {"reason", reason}});
    return 1;
  };
  if (const auto missing = confine()) return refuse("confine", *missing);
  const int manager = connect_manager();
  if (manager < 0) return refuse("connect", std::strerror(errno));
  asio::Loop loop;
  crypto::SystemEntropy entropy;
  spaced_host::Bridge bridge(asio::adopt_stream(loop, manager), asio::adopt_stream(loop, kGuest),
                             {loop, entropy, log});
  if (const auto missing = restrict_system_calls()) return refuse("confine", *missing);
  return loop.run(serve(bridge), [&bridge] { bridge.close(); });
}

}  // namespace
}  // namespace space

int main() { return space::run(); }
