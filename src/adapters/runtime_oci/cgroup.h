#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "adapters/runtime_oci/sys.h"

namespace space::oci {

enum class CgroupMode : std::uint8_t { kV1, kHybrid, kV2 };
std::string_view to_string(CgroupMode mode);

// Where this mount namespace shows the cgroup hierarchies.
struct CgroupMounts {
  CgroupMode mode = CgroupMode::kV2;
  std::vector<std::string> hierarchies;  // every mount point, the unified one included
  std::string freezer;                   // v1 freezer; empty under v2
  std::string unified;                   // empty under v1
};
RuntimeResult<CgroupMounts> read_cgroup_mounts();

// One container's control group, at `path` ("/space/w1/HANDLE") in every hierarchy.
class Cgroup {
 public:
  Cgroup(CgroupMounts mounts, std::string path);
  bool exists() const;
  // Completes when every process stands still. `deadline_ms` is of now_ms().
  RuntimeResult<void> freeze(std::int64_t deadline_ms);
  RuntimeResult<void> thaw(std::int64_t deadline_ms);
  RuntimeResult<bool> frozen() const;
  // Kills every process, frozen or not, and completes when none is left. A missing group is
  // success.
  RuntimeResult<void> kill_all(std::int64_t deadline_ms);
  // Removes the empty group from every hierarchy.
  RuntimeResult<void> remove(std::int64_t deadline_ms);

 private:
  std::string main() const;
  std::vector<int> processes() const;
  RuntimeResult<void> set_frozen(bool frozen, std::int64_t deadline_ms);

  CgroupMounts mounts_;
  std::string path_;
};

}  // namespace space::oci
