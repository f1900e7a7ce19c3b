#include "doctor.h"

#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

#include "adapters/runtime_oci/oci_config.h"
#include "adapters/supervisor/lock_file.h"
#include "adapters/templates/mmdebstrap.h"
#include "adapters/templates/template_store.h"
#include "machine.h"
#include "services/cli/text.h"
#include "templates.h"

namespace space::app {
namespace {

constexpr std::uint64_t kNeededDisk = 2ULL << 30;

Check of_kernel() {
  utsname name{};
  ::uname(&name);
  unsigned major = 0;
  unsigned minor = 0;
  std::sscanf(name.release, "%u.%u", &major, &minor);
  const auto at_least = [&](unsigned a, unsigned b) {
    return major > a || (major == a && minor >= b);
  };
  if (!at_least(5, 19)) {
    return {.name = "kernel",
            .ok = false,
            .detail = std::string(name.release) +
                      "; 5.19 or newer is needed (idmapped mounts under overlayfs): install a "
                      "newer kernel"};
  }
  return {.name = "kernel", .ok = true, .detail = name.release};
}

Check of_disk(const std::filesystem::path& data) {
  std::filesystem::path there = data;
  while (!there.empty() && ::access(there.c_str(), F_OK) != 0 && there != there.parent_path()) {
    there = there.parent_path();
  }
  struct statvfs status{};
  if (::statvfs(there.c_str(), &status) != 0) {
    return {.name = "disk", .ok = false, .detail = there.string() + ": " + std::strerror(errno)};
  }
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const std::string text = std::to_string(free >> 20U) + " MiB free at " + there.string();
  if (free < kNeededDisk) {
    return {.name = "disk",
            .ok = false,
            .detail = text +
                      "; free some, or set SPACE_DATA to a folder on a larger disk (2 GiB "
                      "are needed)"};
  }
  return {.name = "disk", .ok = true, .detail = text};
}

Check of_clock() {
  timex state{};
  const int answer = ::adjtimex(&state);
  if (answer == TIME_ERROR || (static_cast<unsigned>(state.status) & STA_UNSYNC) != 0) {
    return {.name = "clock",
            .ok = false,
            .required = false,
            .detail =
                "not synchronised; on one machine that is no problem, with several install "
                "chrony or systemd-timesyncd"};
  }
  return {.name = "clock", .ok = true, .required = false, .detail = "synchronised"};
}

Check of_cgroups() {
  if (::access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0) {
    return {.name = "cgroups", .ok = true, .detail = "version 2"};
  }
  if (::access("/sys/fs/cgroup/memory", F_OK) == 0 && ::access("/sys/fs/cgroup/pids", F_OK) == 0) {
    return {.name = "cgroups",
            .ok = true,
            .detail = "version 1 with the memory and pids controllers; version 2 is preferred"};
  }
  return {.name = "cgroups",
          .ok = false,
          .detail =
              "no memory and pids controllers under /sys/fs/cgroup; boot with cgroup v2 "
              "(systemd.unified_cgroup_hierarchy=1)"};
}

Check of_port(const config::Config& config, bool running) {
  const auto address = listen_address(config);
  const auto problem = address_problem(address);
  if (!problem) return {.name = "port", .ok = true, .detail = config.listen + " is free"};
  if (running) return {.name = "port", .ok = true, .detail = config.listen + " is ours"};
  return {.name = "port",
          .ok = false,
          .detail = config.listen + ": " + *problem +
                    "; stop what uses it (ss -ltnp shows it), or set [node_api] listen in " +
                    config_file().string()};
}

Check of_programs() {
  const auto hash = build_hash();
  if (!hash) return {.name = "programs", .ok = false, .detail = hash.error()};
  return {.name = "programs", .ok = true, .detail = "all there, build " + hash->substr(0, 12)};
}

std::string runtime_of(const std::optional<config::Config>& config, const OciConfig& oci) {
  std::string chosen = config ? config->runtime : "auto";
  if (chosen == "auto") return probe_runtime(oci).value_or("");
  if (chosen.starts_with('/')) return chosen;
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/usr/local/bin/"}) {
    if (::access((folder + chosen).c_str(), X_OK) == 0) return folder + chosen;
  }
  return "";
}

Check of_template(const std::filesystem::path& folder) {
  const auto ref = templates::TemplateStore(folder).newest(kDefaultTemplate);
  if (ref) {
    return {.name = "template",
            .ok = true,
            .required = false,
            .detail = ref->name + "@" + ref->hash.substr(0, 12)};
  }
  return {
      .name = "template",
      .ok = false,
      .required = false,
      .detail = templates::can_make_root()
                    ? "base is not built yet; `space up` does, or `space template build base`"
                    : "base is not built and mmdebstrap is missing; apt-get install mmdebstrap"};
}

void add_runtime(std::vector<Check>& checks, const std::optional<config::Config>& config) {
  const auto stage = find_program("space-stage");
  const auto guest = find_program("spaced-guest");
  if (!stage || !guest) return;  // named by `programs`
  OciConfig oci;
  oci.stage_program = *stage;
  oci.guest_program = *guest;
  oci.runtime_program = runtime_of(config, oci);
  if (oci.runtime_program.empty()) {
    checks.push_back({.name = "runtime",
                      .ok = false,
                      .detail = "no OCI runtime starts a container here; apt-get install crun "
                                "(or runc)"});
  } else {
    checks.push_back({.name = "runtime", .ok = true, .detail = oci.runtime_program + " is used"});
  }
  for (const Finding& finding : check_machine(oci)) {
    checks.push_back({.name = finding.name, .ok = finding.ok, .detail = finding.advice});
  }
}

}  // namespace

std::vector<Check> examine(const std::optional<config::Config>& config, bool running) {
  std::vector<Check> checks;
  const bool root = ::geteuid() == 0;
  checks.push_back({.name = "root",
                    .ok = root,
                    .detail = root ? "yes" : "no; `space up` makes namespaces and mounts: sudo"});
  checks.push_back(of_kernel());
  checks.push_back(of_cgroups());
  checks.push_back(of_programs());
  if (root) add_runtime(checks, config);
  checks.push_back(of_disk(config ? config->data : data_folder()));
  if (config) checks.push_back(of_port(*config, running));
  if (root)
    checks.push_back(of_template(config ? config->templates() : data_folder() / "templates"));
  checks.push_back(of_clock());
  checks.push_back({.name = "evidence",
                    .ok = true,
                    .required = false,
                    .detail = "basic (peer credentials, pid, start time)"});
  return checks;
}

int doctor(cli::Context& context) {
  std::optional<config::Config> config;
  std::vector<Check> checks;
  bool running = false;
  if (std::error_code ignored; std::filesystem::exists(config_file(), ignored)) {
    auto loaded = config::load(config_file());
    checks.push_back({.name = "config",
                      .ok = loaded.has_value(),
                      .detail = loaded ? config_file().string() : loaded.error().message});
    if (loaded) {
      running = supervisor::LockFile::held(lock_file(*loaded));
      config = std::move(*loaded);
    }
  } else {
    checks.push_back({.name = "config",
                      .ok = true,
                      .required = false,
                      .detail = "none yet; `space up` writes " + config_file().string()});
  }
  for (Check& check : examine(config, running)) checks.push_back(std::move(check));

  bool healthy = true;
  boost::json::array list;
  std::vector<std::vector<std::string>> rows;
  for (const Check& check : checks) {
    healthy = healthy && (check.ok || !check.required);
    list.push_back({{"name", check.name},
                    {"ok", check.ok},
                    {"required", check.required},
                    {"detail", check.detail}});
    rows.push_back({check.ok ? "ok" : (check.required ? "MISSING" : "note"),
                    cli::printable(check.name), cli::printable(check.detail)});
  }
  const int code = healthy ? cli::kOk : cli::kDoctorFound;
  int printed = cli::kOk;
  if (context.json) {
    const boost::json::value document = {{"ok", healthy}, {"checks", list}};
    printed = cli::print_json(context, document);
  } else {
    printed = cli::print(
        context, cli::columns(rows) + (healthy ? "This machine can run SPACE.\n"
                                               : "Something required is missing; see above.\n"));
  }
  return printed == cli::kOk ? code : printed;
}

}  // namespace space::app
