#pragma once
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/secret.h"
#include "core/identity/runtime_record.h"
#include "ports/clock.h"
#include "ports/task.h"

namespace space {

// What a sandbox is made of. Limits are enforced by the runtime; zero is refused.
struct SandboxSpec {
  std::string template_name;  // "host"
  std::uint64_t memory_bytes = 512U << 20;
  std::uint32_t cpu_millis = 1000;  // 1000 = one CPU
  std::uint32_t max_processes = 512;
  std::uint64_t disk_bytes = 1U << 30;      // size of the writable layer
  std::map<std::string, std::string> envs;  // of every process started in it
  friend bool operator==(const SandboxSpec&, const SandboxSpec&) = default;
};

enum class RuntimeError : std::uint8_t {
  kNoSuchTemplate,
  kNoSuchInstance,
  kNoSpace,
  kUnsupported,  // this machine cannot do it; `detail` says what is missing
  kTimedOut,
  kFailed,
};
struct RuntimeFailure {
  RuntimeError error = RuntimeError::kFailed;
  std::string detail;  // one line for people
};
template <class T>
using RuntimeResult = std::expected<T, RuntimeFailure>;

// A running (or frozen) instance as the runtime vouches for it now.
struct RuntimeInstance {
  std::string handle;  // names the instance in later calls, also after a restart
  identity::ProcessIdentity guest_process;  // expected owner of the listener (P-23)
  identity::TransportIdentity transport;
  bool frozen = false;
};

struct StartRequest {
  identity::RouteIdentity route;
  SandboxSpec spec;
  // Artifact (name under artifacts/) whose writable layer the instance starts from; empty: a fresh
  // one.
  std::string artifact;
  GuestSecret secret;                  // reaches the guest by inherited descriptor only (P-23)
  std::uint32_t first_public_pid = 1;  // of a block of kPublicPidBlock, never 0 (P-25)
};

// Starts, freezes and removes what a sandbox runs in. One implementation per runtime (container,
// qemu, firecracker). Calls for different instances may overlap; for one instance the caller
// serialises. Every call is safe to repeat after a crash.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // Completes when the guest's listener is bound. A half-made instance of the same activation is
  // removed first; a failure leaves nothing behind.
  virtual Task<RuntimeResult<RuntimeInstance>> start(StartRequest request) = 0;
  // Stops every process where it is and makes all its acknowledged writes durable (P-36).
  // Idempotent.
  virtual Task<RuntimeResult<void>> freeze(std::string handle) = 0;
  virtual Task<RuntimeResult<RuntimeInstance>> thaw(std::string handle) = 0;
  // Copies the writable layer of a frozen instance to the write-once artifact `name`; durable when
  // it completes (P-35). Publishing the same name again with the artifact present succeeds and
  // changes nothing.
  virtual Task<RuntimeResult<void>> publish(std::string handle, std::string name) = 0;
  // Ends all processes and frees disk, devices and addresses. Unknown handle: success.
  virtual Task<RuntimeResult<void>> destroy(std::string handle) = 0;
  // What is there now, judged from the kernel: kNoSuchInstance when its processes are gone.
  virtual Task<RuntimeResult<RuntimeInstance>> inspect(std::string handle) = 0;
  // Handles this runtime has on disk or running, for clean-up after a restart.
  virtual Task<RuntimeResult<std::vector<std::string>>> list() = 0;
  virtual Task<RuntimeResult<void>> remove_artifact(std::string name) = 0;
};

}  // namespace space
