#include "adapters/runtime_oci/cgroup.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "base/result.h"

namespace space::oci {
namespace {
constexpr std::size_t kMaxKernelFile = 4U << 20;

// Whether a comma-separated mount option list names `option`.
bool has_option(std::string_view options, std::string_view option) {
  while (!options.empty()) {
    const auto comma = options.find(',');
    if (options.substr(0, comma) == option) return true;
    if (comma == std::string_view::npos) return false;
    options.remove_prefix(comma + 1);
  }
  return false;
}
}  // namespace

std::string_view to_string(CgroupMode mode) {
  switch (mode) {
    case CgroupMode::kV1:
      return "v1";
    case CgroupMode::kHybrid:
      return "hybrid";
    case CgroupMode::kV2:
      return "v2";
  }
  return "";
}

RuntimeResult<CgroupMounts> read_cgroup_mounts() {
  SPACE_TRY(const std::string text, read_file("/proc/self/mountinfo", kMaxKernelFile));
  CgroupMounts mounts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream head(line.substr(0, separator));
    std::istringstream tail(line.substr(separator + 3));
    std::string skip;
    std::string point;
    std::string type;
    std::string options;
    head >> skip >> skip >> skip >> skip >> point;
    tail >> type >> skip >> options;
    if (type == "cgroup2") {
      mounts.unified = point;
      mounts.hierarchies.push_back(point);
    } else if (type == "cgroup") {
      if (has_option(options, "freezer")) mounts.freezer = point;
      mounts.hierarchies.push_back(point);
    }
  }
  if (mounts.hierarchies.empty()) {
    return failure(RuntimeError::kUnsupported, "no cgroup hierarchy is mounted");
  }
  const bool v2 = mounts.hierarchies.size() == 1 && !mounts.unified.empty();
  mounts.mode = v2                       ? CgroupMode::kV2
                : mounts.unified.empty() ? CgroupMode::kV1
                                         : CgroupMode::kHybrid;
  if (!v2 && mounts.freezer.empty()) {
    return failure(RuntimeError::kUnsupported, "the v1 freezer hierarchy is not mounted");
  }
  return mounts;
}

Cgroup::Cgroup(CgroupMounts mounts, std::string path)
    : mounts_(std::move(mounts)), path_(std::move(path)) {}

std::string Cgroup::main() const {
  return (mounts_.freezer.empty() ? mounts_.unified : mounts_.freezer) + path_;
}

bool Cgroup::exists() const { return oci::exists(main()); }

std::vector<int> Cgroup::processes() const {
  std::vector<int> pids;
  const auto text = read_file(main() + "/cgroup.procs", kMaxKernelFile);
  if (!text) return pids;
  std::istringstream lines(*text);
  for (int pid = 0; lines >> pid;) pids.push_back(pid);
  return pids;
}

RuntimeResult<bool> Cgroup::frozen() const {
  if (!mounts_.freezer.empty()) {
    SPACE_TRY(const std::string state, read_file(main() + "/freezer.state", 64));
    return state == "FROZEN\n";
  }
  SPACE_TRY(const std::string events, read_file(main() + "/cgroup.events", 4096));
  return events.find("frozen 1") != std::string::npos;
}

RuntimeResult<void> Cgroup::set_frozen(bool frozen, std::int64_t deadline_ms) {
  for (;;) {
    // Written again each time: under v1 a group can stay in FREEZING when a task forks meanwhile.
    auto written = mounts_.freezer.empty()
                       ? write_kernel_file(main() + "/cgroup.freeze", frozen ? "1" : "0")
                       : write_kernel_file(main() + "/freezer.state", frozen ? "FROZEN" : "THAWED");
    if (!written) return written;
    SPACE_TRY(const bool now, this->frozen());
    if (now == frozen) return {};
    if (now_ms() >= deadline_ms) {
      return failure(RuntimeError::kTimedOut, frozen ? "freezing took too long" : "thawing failed");
    }
    sleep_ms(1);
  }
}

RuntimeResult<void> Cgroup::freeze(std::int64_t deadline_ms) {
  return set_frozen(true, deadline_ms);
}
RuntimeResult<void> Cgroup::thaw(std::int64_t deadline_ms) {
  return set_frozen(false, deadline_ms);
}

RuntimeResult<void> Cgroup::kill_all(std::int64_t deadline_ms) {
  while (exists()) {
    if (processes().empty()) return {};
    if (mounts_.freezer.empty()) {
      if (auto killed = write_kernel_file(main() + "/cgroup.kill", "1"); !killed) return killed;
    } else {
      // Nothing can fork or free its pid while frozen, so the list read is the list killed.
      static_cast<void>(freeze(std::min(deadline_ms, now_ms() + 1000)));
      for (const int pid : processes()) ::kill(pid, SIGKILL);
      if (auto thawed = thaw(deadline_ms); !thawed && exists()) return thawed;
    }
    if (now_ms() >= deadline_ms) {
      return failure(RuntimeError::kTimedOut, "processes of " + path_ + " do not end");
    }
    sleep_ms(1);
  }
  return {};
}

RuntimeResult<void> Cgroup::remove(std::int64_t deadline_ms) {
  for (const auto& hierarchy : mounts_.hierarchies) {
    const std::string folder = hierarchy + path_;
    while (::rmdir(folder.c_str()) != 0 && errno != ENOENT) {
      if (errno != EBUSY || now_ms() >= deadline_ms) return errno_failure("rmdir " + folder);
      sleep_ms(1);
    }
  }
  return {};
}

}  // namespace space::oci
