// space-probe: what a node-api says to the control plane and to a worker, by hand. It shows that a
// receiver refuses a capability selected for another execution. Runs as the node-api's user, so
// that its peer credentials bind it to the node-api's key.
#include <grp.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "adapters/config/config.h"
#include "base/text.h"
#include "core/wire/messages.h"
#include "probe/probe.h"

namespace space::probe {
namespace {

constexpr const char* kUsage =
    "usage:\n"
    "  space-probe CONFIG mint API_KEY SANDBOX         prints a sealed capability (hex) for "
    "reading files\n"
    "  space-probe CONFIG present WORKER SANDBOX CAPABILITY PATH\n"
    "                                                  presents it to that worker and prints the "
    "verdict\n";

template <class Result, class Request>
Task<std::optional<Result>> ask(Leg& leg, policy::Operation operation, Request request) {
  frame::Open open;
  open.operation = operation;
  open.metadata = wire::encode(request);
  const auto end = co_await hop::call(leg.mux(), std::move(open),
                                      leg.mux().timer().now() + std::chrono::seconds(30));
  if (end.outcome != frame::Outcome::kOk) {
    std::fprintf(stderr, "%s: %s\n", std::string(info(operation).name).c_str(),
                 end.message.c_str());
    co_return std::nullopt;
  }
  co_return wire::decode<Result>(end.result);
}

Task<int> mint(asio::Loop& loop, std::string api_key, identity::SandboxId sandbox) {
  auto leg = co_await connect(loop, config::Config::control_address(), frame::Role::kNodeApi,
                              frame::Role::kControlPlane);
  if (!leg) {
    std::fprintf(stderr, "the control plane cannot be reached; is the platform up?\n");
    co_return 1;
  }
  int status = 1;
  wire::SessionOpenRequest session_request;
  session_request.api_key = std::move(api_key);
  const auto session = co_await ask<wire::SessionOpenResult>(*leg, policy::Operation::kSessionOpen,
                                                             std::move(session_request));
  if (session) {
    wire::RouteResolveRequest route_request;
    route_request.session = session->session;
    route_request.sandbox = sandbox;
    const auto route = co_await ask<wire::RouteResolveResult>(
        *leg, policy::Operation::kRouteResolve, std::move(route_request));
    if (route) {
      wire::CapabilityMintRequest mint_request;
      mint_request.session = session->session;
      mint_request.route = route->route;
      mint_request.attempt = route->attempt;
      mint_request.access = identity::AccessSet{}.with(identity::Access::kFilesRead);
      const auto minted = co_await ask<wire::CapabilityMintResult>(
          *leg, policy::Operation::kCapabilityMint, std::move(mint_request));
      if (minted) {
        std::printf("%s\n", to_hex(minted->sealed).c_str());
        status = 0;
      }
    }
  }
  co_await leg->stop();
  co_return status;
}

Task<int> show(asio::Loop& loop, identity::WorkerId worker, identity::SandboxId sandbox,
               Bytes sealed, std::string path) {
  auto leg = co_await connect(loop, config::Config::worker_address(worker), frame::Role::kNodeApi,
                              frame::Role::kManager);
  if (!leg) {
    std::fprintf(stderr, "worker %s cannot be reached\n", worker.text().c_str());
    co_return 1;
  }
  wire::FileReadRequest request;
  request.path = std::move(path);
  auto metadata = wire::encode(request);
  const auto verdict = co_await present(*leg, std::move(sealed), sandbox,
                                        policy::Operation::kFileRead, std::move(metadata));
  std::printf("%s\n", verdict.text.c_str());
  co_await leg->stop();
  co_return verdict.text == "lost" ? 1 : 0;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const auto config = config::load(arguments[0]);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message.c_str());
    return 2;
  }
  if (chdir(config->run().c_str()) != 0 || setgroups(0, nullptr) != 0 ||
      setresgid(config->node_api_uid, config->node_api_uid, config->node_api_uid) != 0 ||
      setresuid(config->node_api_uid, config->node_api_uid, config->node_api_uid) != 0) {
    std::perror("space-probe: must start as root");
    return 1;
  }
  asio::Loop loop;
  if (arguments[1] == "mint" && arguments.size() == 4) {
    const auto sandbox = identity::SandboxId::parse(arguments[3]);
    if (sandbox) return loop.run(mint(loop, arguments[2], *sandbox), {});
  }
  if (arguments[1] == "present" && arguments.size() == 6) {
    const auto worker = identity::WorkerId::parse(arguments[2]);
    const auto sandbox = identity::SandboxId::parse(arguments[3]);
    const auto sealed = from_hex(arguments[4]);
    if (worker && sandbox && sealed) {
      return loop.run(show(loop, *worker, *sandbox, *sealed, arguments[5]), {});
    }
  }
  std::fputs(kUsage, stderr);
  return 2;
}

}  // namespace
}  // namespace space::probe

int main(int argc, char** argv) { return space::probe::run({argv + 1, argv + argc}); }
