#pragma once
#include <map>
#include <string>
#include <vector>

#include "adapters/runtime_oci/oci_config.h"
#include "ports/clock.h"
#include "ports/runtime.h"

namespace space {

// Containers through an OCI runtime program (DESIGN 9). Runs on one loop and never blocks it: each
// call that changes something runs space-stage and waits for its end. Needs root.
//
// An instance is named SANDBOX.GENERATION and lives in sandboxes/HANDLE of the data folder; its
// processes have host ids of their own. All its mounts belong to its mount namespace, so they end
// with it. Nothing depends on this object: containers outlive it, and a new one on the same data
// folder finds them.
//
// A cancelled call leaves what a crash would leave; repeating it, or `destroy`, completes it. An
// instance started from an artifact keeps the disk size of the artifact.
class OciRuntime final : public Runtime {
 public:
  // `timer` outlives this object and every task.
  OciRuntime(OciConfig config, Timer& timer);
  ~OciRuntime() override;

  Task<RuntimeResult<RuntimeInstance>> start(StartRequest request) override;
  Task<RuntimeResult<void>> freeze(std::string handle) override;
  Task<RuntimeResult<RuntimeInstance>> thaw(std::string handle) override;
  Task<RuntimeResult<void>> publish(std::string handle, std::string name) override;
  Task<RuntimeResult<void>> destroy(std::string handle) override;
  Task<RuntimeResult<RuntimeInstance>> inspect(std::string handle) override;
  Task<RuntimeResult<std::vector<std::string>>> list() override;
  Task<RuntimeResult<void>> remove_artifact(std::string name) override;

  // Removes this worker's control group, and the one above it, where they are empty. For the end:
  // nothing may be starting in them.
  void remove_empty_groups() const;

 private:
  Task<RuntimeResult<void>> run_stage(const char* verb, std::string request, int secret_fd,
                                      BootClock::duration limit);
  Task<RuntimeResult<void>> run_handle(const char* verb, std::string handle,
                                       BootClock::duration limit);
  RuntimeResult<RuntimeInstance> inspect_now(const std::string& handle) const;
  RuntimeResult<std::vector<std::string>> list_now() const;
  RuntimeResult<std::uint32_t> take_slot(const std::string& handle);

  const OciConfig config_;
  Timer& timer_;
  // Id ranges in use by handle: of this object's starts, and of what was on disk at the first one.
  std::map<std::string, std::uint32_t> slots_;
  bool slots_read_ = false;
};

}  // namespace space
