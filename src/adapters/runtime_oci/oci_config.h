#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace space {

// Where one worker's containers live and what they may use. All paths are absolute.
struct OciConfig {
  std::string data_folder;       // of this worker alone; holds sandboxes/ and runtime/
  std::string templates_folder;  // shared by the workers of a machine
  std::string artifacts_folder;  // shared by the workers of a machine
  std::string stage_program;     // space-stage
  std::string guest_program;     // static spaced-guest, executable by everybody
  std::string runtime_program;   // crun, runc or runsc (untested); see probe_runtime()
  std::string cgroup_parent;     // "/space/w1": unique to this worker on this machine
  // First host id of this worker's block of max_sandboxes * 65536 ids, which nobody else uses; at
  // least 65536, and the block ends below 2^32.
  std::uint32_t first_uid = 0;
  std::uint32_t max_sandboxes = 256;  // live at a time, frozen ones included
};

// One thing a machine needs. `advice` is one line: what was found, or what to do about it.
struct Finding {
  std::string name;
  bool ok = false;
  std::string advice;
};

// What this machine lacks to run containers, for `space doctor`. Starts short-lived processes and
// may block for some seconds. `config` needs stage_program, guest_program and runtime_program only.
std::vector<Finding> check_machine(const OciConfig& config);

// The first of crun and runc that can start a container here; nullopt when neither can. Blocks like
// check_machine(). `config` needs stage_program only.
std::optional<std::string> probe_runtime(const OciConfig& config);

}  // namespace space
