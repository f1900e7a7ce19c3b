// sbx-manager: the manager of one worker. sbx-manager --config PATH --worker ID
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "adapters/asio/loop.h"
#include "adapters/bridge/bridge_process_launcher.h"
#include "adapters/config/config.h"
#include "adapters/crypto/sodium_verifier.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/records/file_record_store.h"
#include "adapters/runtime_oci/oci_runtime.h"
#include "adapters/telemetry/json_log.h"
#include "base/text.h"
#include "core/identity/sha256.h"
#include "services/sbx_manager/sbx_manager.h"

namespace space {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  fs::path config;
  identity::WorkerId worker;
};

std::optional<Arguments> parse(std::span<char*> argv) {
  Arguments arguments;
  for (std::size_t i = 1; i + 1 < argv.size(); i += 2) {
    const std::string_view name = argv[i];
    if (name == "--config") {
      arguments.config = argv[i + 1];
    } else if (name == "--worker") {
      const auto id = identity::WorkerId::parse(argv[i + 1]);
      if (!id) return std::nullopt;
      arguments.worker = *id;
    } else {
      return std::nullopt;
    }
  }
  if (argv.size() != 5 || arguments.config.empty() || arguments.worker.text().empty()) {
    return std::nullopt;
  }
  return arguments;
}

// crun or runc as configured, or the first that starts a container here.
std::optional<std::string> choose_runtime(const config::Config& config, const OciConfig& oci) {
  if (config.runtime == "auto") return probe_runtime(oci);
  return config.runtime;
}

Task<void> serve_hop(sbx_manager::SbxManager& manager, Listener& listener) {
  co_await manager.serve_hop(listener);
}
Task<void> serve_control(sbx_manager::SbxManager& manager, Listener& listener) {
  co_await manager.serve_control(listener);
}

Task<int> serve(asio::Loop& loop, Log& log, sbx_manager::SbxManager& manager, Listener& hop,
                Listener& control) {
  const auto recovered = co_await manager.recover();
  if (!recovered) {
    log.event(Level::kError, "manager.not_started",
              {{"reason", "the stored records: " + recovered.error().message()}});
    co_await manager.stop();
    co_return 1;
  }
  TaskScope tasks(loop);
  tasks.spawn("main.hop", serve_hop(manager, hop));
  tasks.spawn("main.control", serve_control(manager, control));
  co_await tasks.join();
  co_await manager.stop();
  co_return 0;
}

int run(std::span<char*> argv) {
  const auto arguments = parse(argv);
  if (!arguments) {
    std::fputs("usage: sbx-manager --config PATH --worker ID\n", stderr);
    return 2;
  }
  telemetry::JsonLog log("sbx-manager." + arguments->worker.text());
  const auto refuse = [&](std::string reason) {
    log.event(Level::kError, "manager.not_started", {{"reason", reason}});
    return 1;
  };
  const auto config = config::load(arguments->config);
  if (!config) return refuse(config.error().message);
  const auto& workers = config->workers;
  std::size_t index = 0;
  while (index < workers.size() && workers[index].id != arguments->worker) ++index;
  if (index == workers.size()) return refuse("no [[worker]] with this id in the configuration");
  if (::geteuid() != 0) return refuse("it needs root: containers and their evidence do");

  // Secrets pass through this process.
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_CORE, &no_core);

  std::error_code error;
  const auto programs = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return refuse("its own program: " + error.message());
  const auto folder = config->worker_folder(arguments->worker);
  fs::create_directories(folder, error);
  if (error) return refuse(folder.string() + ": " + error.message());
  fs::current_path(config->run(), error);
  if (error) return refuse(config->run().string() + ": " + error.message());

  OciConfig oci;
  oci.data_folder = folder;
  oci.templates_folder = config->templates();
  oci.artifacts_folder = config->artifacts();
  oci.stage_program = programs / "space-stage";
  oci.guest_program = programs / "spaced-guest";
  // Two data folders of one machine may have workers of the same name.
  const auto tag = identity::sha256(as_bytes(config->data.string()));
  oci.cgroup_parent = "/space-" + to_hex(ByteView(tag).first(4)) + "/" + arguments->worker.text();
  oci.first_uid = workers[index].first_uid;
  oci.max_sandboxes = workers[index].max_sandboxes;
  const auto runtime_program = choose_runtime(*config, oci);
  if (!runtime_program) return refuse("neither crun nor runc can start a container: space doctor");
  oci.runtime_program = *runtime_program;

  asio::Loop loop;
  asio::SystemClock clock;
  crypto::SystemEntropy entropy;
  crypto::SodiumVerifier verifier;
  OciRuntime runtime(oci, loop);
  bridge::LauncherOptions bridges;
  bridges.program = programs / "spaced-host";
  bridges.folder = folder / "bridges";
  bridges.uid = config->bridge_uid + static_cast<std::uint32_t>(index);
  bridge::BridgeProcessLauncher launcher(loop, log, bridges);
  records::FileRecordStore records(folder / "records");

  sbx_manager::Options options;
  options.worker = arguments->worker;
  options.tolerance = std::chrono::milliseconds(config->clock_tolerance_ms);
  options.holders[config->node_api_uid] = config->node_api_holder;
  options.control_uid = config->control_uid;
  options.runtime = *runtime_program;
  options.evidence = "basic";
  sbx_manager::SbxManager manager({runtime, launcher, records, loop, clock, entropy, verifier, log},
                                  std::move(options));

  const auto hop = asio::listen_unix(loop, config::Config::worker_address(arguments->worker), 0660);
  if (!hop) return refuse("the hop listener: " + hop.error().message());
  const auto control =
      asio::listen_unix(loop, config::Config::worker_control_address(arguments->worker), 0600);
  if (!control) return refuse("the control listener: " + control.error().message());
  const int status = loop.run(serve(loop, log, manager, **hop, **control), [&] {
    (*hop)->close();
    (*control)->close();
  });
  runtime.remove_empty_groups();
  return status;
}

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  return space::run(std::span(argv, static_cast<std::size_t>(argc)));
}
