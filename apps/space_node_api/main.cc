// space-node-api: the HTTP front of the platform. Holds no key and needs no privilege.
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "adapters/asio/loop.h"
#include "adapters/config/config.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/http/server.h"
#include "adapters/telemetry/json_log.h"
#include "services/node_api/control_api.h"
#include "services/node_api/front.h"
#include "services/node_api/gateway.h"
#include "services/node_api/sandbox_api.h"
#include "services/node_api/space_api.h"

namespace {

using namespace space;

constexpr std::uint32_t kManagerUid = 0;

int complain(const std::string& what) {
  std::fprintf(stderr, "space-node-api: %s\n", what.c_str());
  return 1;
}

// Gives up whatever rights the process was started with: another uid when it is root, every
// capability set, and the way to new ones.
bool drop_privileges(std::uint32_t uid) {
  if (::geteuid() == 0) {
    for (int capability = 0; capability <= CAP_LAST_CAP; ++capability) {
      static_cast<void>(::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0));
    }
    if (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 ||
        ::setresuid(uid, uid, uid) != 0) {
      return false;
    }
  }
  static_cast<void>(::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> none{};
  return ::syscall(SYS_capset, &header, none.data()) == 0 &&
         ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// One descriptor a connection: as many as the machine allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
}

Task<int> serve(node_api::Gateway& gateway, http::Server& server) {
  gateway.start();
  co_await server.run();
  co_await server.stop();
  co_await gateway.stop();
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "--config") {
    return complain("usage: space-node-api --config PATH");
  }
  const auto config = config::load(argv[2]);
  if (!config) return complain(config.error().message);

  // The folders above run/ may be closed to this uid: then it must have been started there.
  std::error_code error;
  std::filesystem::current_path(config->run(), error);
  if (error && std::filesystem::current_path(error) != config->run()) {
    return complain("start it in " + config->run().string());
  }
  raise_descriptor_limit();
  if (!drop_privileges(config->node_api_uid)) return complain("cannot drop privileges");

  telemetry::JsonLog log("node-api");
  asio::Loop loop;
  asio::UnixDialer dialer(loop);
  asio::SystemClock clock;
  crypto::SystemEntropy entropy;
  node_api::Gateway::Options options;
  options.control_address = config::Config::control_address();
  options.control_uid = config->control_uid;
  options.worker_uid = kManagerUid;
  node_api::Gateway gateway(dialer, loop, clock, entropy, log, options);
  node_api::SpaceApi api(gateway, log);
  node_api::ControlApi control_api(gateway, log, config->domain);
  node_api::SandboxApi sandbox_api(gateway, loop, log);
  node_api::Front front({config->domain, config->hosts}, api, control_api, sandbox_api);
  http::Server server(loop, front, log);
  const auto port = server.listen(config->listen);
  if (!port) return complain("cannot listen at " + config->listen + ": " + port.error().message());
  log.event(Level::kInfo, "node_api.started", {{"listen", config->listen}, {"port", *port}});
  return loop.run(serve(gateway, server), [&server] { server.close(); });
}
