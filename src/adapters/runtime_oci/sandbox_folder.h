#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/runtime_oci/oci_config.h"
#include "adapters/runtime_oci/sys.h"

namespace space::oci {

inline constexpr std::uint32_t kIdsPerSandbox = 65'536;

// "SANDBOX.GENERATION" in its one canonical form. Everything that becomes a path passes this first.
bool valid_handle(std::string_view handle);
// Artifact names: 1..200 bytes of [a-z0-9.-], the first one no dot or dash.
bool valid_artifact(std::string_view name);

// The folder of one instance: sandboxes/HANDLE/{meta.json, upper.img, pid, bundle/config.json,
// vsock/}.
struct SandboxFolder {
  SandboxFolder(const OciConfig& config, const std::string& handle);
  std::string path;
  std::string meta;   // written first, so that every later step can be undone
  std::string image;  // the writable layer
  std::string pid;    // of the container's init, written by the runtime program
  std::string bundle;
  std::string vsock;   // 0700, owned by the container's root
  std::string socket;  // the guest's listener
};

// What is needed to find an instance again after a restart of the manager. Of this boot alone, so
// it is not synced to the disk: an instance does not outlive its machine.
struct SandboxMeta {
  std::uint32_t slot = 0;  // its ids are first_uid + slot * kIdsPerSandbox and following
  std::string boot_id;     // of this machine: processes do not outlive it
  std::optional<RuntimeInstance> instance;  // absent: half made
};
RuntimeResult<void> write_meta(const SandboxFolder& folder, const SandboxMeta& meta);
// kNoSuchInstance when there is none, kFailed when it is damaged.
RuntimeResult<SandboxMeta> read_meta(const SandboxFolder& folder);
std::string read_boot_id();

std::string cgroup_path(const OciConfig& config, std::string_view handle);
std::string artifact_path(const OciConfig& config, std::string_view name);

}  // namespace space::oci
