#include "adapters/runtime_oci/oci_runtime.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <set>

#include "adapters/evidence/process_identity.h"
#include "adapters/runtime_oci/cgroup.h"
#include "adapters/runtime_oci/disk.h"
#include "adapters/runtime_oci/sandbox_folder.h"
#include "adapters/runtime_oci/stage.h"
#include "adapters/runtime_oci/stage_process.h"
#include "adapters/templates/template_store.h"
#include "base/check.h"
#include "base/result.h"

namespace space {
namespace {
using namespace std::chrono_literals;
using oci::failure;

// Bounds of one call; the disk decides how long the slow ones take.
constexpr auto kStartLimit = 60s;
constexpr auto kFreezeLimit = 60s;
constexpr auto kThawLimit = 15s;
constexpr auto kDestroyLimit = 60s;
constexpr auto kPublishLimit = 600s;
constexpr auto kRemoveLimit = 60s;
constexpr int kCheckMs = 30'000;
constexpr int kProbeMs = 10'000;
constexpr std::size_t kMaxEnvs = 64U << 10;  // bytes of names and values: they become arguments

std::string check_spec(const SandboxSpec& spec) {
  if (spec.memory_bytes == 0 || spec.cpu_millis == 0 || spec.max_processes == 0) {
    return "memory, cpu and process limits must not be zero";
  }
  if (spec.disk_bytes < oci::kMinDiskBytes) return "disk_bytes must be at least 16 MiB";
  std::size_t size = 0;
  for (const auto& [name, value] : spec.envs) {
    size += name.size() + value.size();
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos || value.find('\0') != std::string::npos) {
      return "a variable has an invalid name or value";
    }
  }
  return size > kMaxEnvs ? "the variables are larger than 64 KiB" : "";
}

// The reading end of a pipe that holds the secret and nothing else: it can be read once.
RuntimeResult<oci::Fd> secret_pipe(const GuestSecret& secret) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return oci::errno_failure("pipe");
  const oci::Fd low(ends[0]);
  const oci::Fd writing(ends[1]);
  oci::Fd reading(::fcntl(low.get(), F_DUPFD_CLOEXEC, 10));
  const auto bytes = secret.reveal();
  if (!reading || ::write(writing.get(), bytes.data(), bytes.size()) != std::ssize(bytes)) {
    return oci::errno_failure("pipe");
  }
  return reading;
}

// The last line a started program wrote, for people.
std::string last_line(std::string_view messages) {
  while (messages.ends_with('\n')) messages.remove_suffix(1);
  const auto at = messages.rfind('\n');
  return std::string(at == std::string_view::npos ? messages : messages.substr(at + 1));
}

}  // namespace

OciRuntime::OciRuntime(OciConfig config, Timer& timer) : config_(std::move(config)), timer_(timer) {
  constexpr std::uint64_t kIdSpace = 0xffff'ffff;
  SPACE_ASSERT(config_.first_uid >= oci::kIdsPerSandbox);
  SPACE_ASSERT(config_.first_uid + std::uint64_t{config_.max_sandboxes} * oci::kIdsPerSandbox <=
               kIdSpace);
}
OciRuntime::~OciRuntime() = default;

Task<RuntimeResult<void>> OciRuntime::run_stage(const char* verb, std::string request,
                                                int secret_fd, BootClock::duration limit) {
  auto process = oci::StageProcess::spawn(config_.stage_program, verb, request, secret_fd);
  if (!process) co_return std::unexpected(process.error());
  const auto output = co_await process->wait(timer_, timer_.now() + limit);
  if (!output) co_return std::unexpected(output.error());
  auto result = oci::decode_answer(output->answer);
  if (!result && !output->messages.empty()) {
    result.error().detail += ": " + last_line(output->messages);
  }
  co_return result;
}

Task<RuntimeResult<void>> OciRuntime::run_handle(const char* verb, std::string handle,
                                                 BootClock::duration limit) {
  if (!oci::valid_handle(handle)) {
    co_return failure(RuntimeError::kNoSuchInstance, "not a handle of this runtime");
  }
  co_return co_await run_stage(verb, oci::handle_request(config_, handle), -1, limit);
}

Task<RuntimeResult<RuntimeInstance>> OciRuntime::start(StartRequest request) {
  const auto& spec = request.spec;
  if (!templates::valid_name(spec.template_name)) {
    co_return failure(RuntimeError::kNoSuchTemplate,
                      "names of templates are 1 to 40 of a-z, 0-9 and '-'");
  }
  if (const auto problem = check_spec(spec); !problem.empty()) {
    co_return failure(RuntimeError::kUnsupported, problem);
  }
  oci::StageStart start;
  start.sandbox = request.route.sandbox.text();
  start.handle = start.sandbox + "." + std::to_string(request.route.generation.value);
  start.spec = spec;
  start.artifact = request.artifact;
  start.first_public_pid = request.first_public_pid;
  const oci::SandboxFolder folder(config_, start.handle);
  if (oci::exists(folder.path)) {
    auto removed = co_await destroy(start.handle);
    if (!removed) co_return std::unexpected(removed.error());
  }
  if (!request.artifact.empty() && (!oci::valid_artifact(request.artifact) ||
                                    !oci::exists(oci::artifact_path(config_, request.artifact)))) {
    co_return failure(RuntimeError::kNoSuchInstance, "no artifact " + request.artifact);
  }
  auto slot = take_slot(start.handle);
  if (!slot) co_return std::unexpected(slot.error());
  start.slot = *slot;
  RuntimeResult<void> started;
  if (auto secret = secret_pipe(request.secret); secret) {
    started =
        co_await run_stage("start", oci::start_request(config_, start), secret->get(), kStartLimit);
  } else {
    started = std::unexpected(secret.error());
  }
  if (started) {
    auto instance = inspect_now(start.handle);
    if (instance) co_return instance;
    started = failure(RuntimeError::kFailed, instance.error().detail);
  }
  // The first failure is the one to report; a failed clean-up is found again through list().
  static_cast<void>(co_await destroy(start.handle));
  co_return std::unexpected(started.error());
}

Task<RuntimeResult<void>> OciRuntime::freeze(std::string handle) {
  co_return co_await run_handle("freeze", std::move(handle), kFreezeLimit);
}

Task<RuntimeResult<RuntimeInstance>> OciRuntime::thaw(std::string handle) {
  const auto thawed = co_await run_handle("thaw", handle, kThawLimit);
  if (!thawed) co_return std::unexpected(thawed.error());
  co_return inspect_now(handle);
}

Task<RuntimeResult<void>> OciRuntime::publish(std::string handle, std::string name) {
  if (!oci::valid_artifact(name)) {
    co_return failure(RuntimeError::kUnsupported, "artifact names are 1 to 200 of [a-z0-9.-]");
  }
  if (!oci::valid_handle(handle)) {
    co_return failure(RuntimeError::kNoSuchInstance, "not a handle of this runtime");
  }
  co_return co_await run_stage("publish", oci::handle_request(config_, handle, name), -1,
                               kPublishLimit);
}

Task<RuntimeResult<void>> OciRuntime::destroy(std::string handle) {
  if (!oci::valid_handle(handle)) co_return RuntimeResult<void>{};
  auto destroyed = co_await run_handle("destroy", handle, kDestroyLimit);
  if (destroyed) slots_.erase(handle);
  co_return destroyed;
}

Task<RuntimeResult<RuntimeInstance>> OciRuntime::inspect(std::string handle) {
  co_return inspect_now(handle);
}

Task<RuntimeResult<std::vector<std::string>>> OciRuntime::list() { co_return list_now(); }

Task<RuntimeResult<void>> OciRuntime::remove_artifact(std::string name) {
  if (!oci::valid_artifact(name)) co_return RuntimeResult<void>{};
  co_return co_await run_stage("remove-artifact", oci::handle_request(config_, "", name), -1,
                               kRemoveLimit);
}

void OciRuntime::remove_empty_groups() const {
  const auto mounts = oci::read_cgroup_mounts();
  if (!mounts) return;
  const std::filesystem::path own = config_.cgroup_parent;
  for (const auto& hierarchy : mounts->hierarchies) {
    // A group with groups or processes in it stays.
    ::rmdir((hierarchy + own.string()).c_str());
    if (own.parent_path() != "/") ::rmdir((hierarchy + own.parent_path().string()).c_str());
  }
}

RuntimeResult<RuntimeInstance> OciRuntime::inspect_now(const std::string& handle) const {
  if (!oci::valid_handle(handle)) {
    return failure(RuntimeError::kNoSuchInstance, "not a handle of this runtime");
  }
  SPACE_TRY(oci::SandboxMeta meta, oci::read_meta(oci::SandboxFolder(config_, handle)));
  if (!meta.instance || meta.boot_id != oci::read_boot_id() ||
      !evidence::alive(meta.instance->guest_process)) {
    return failure(RuntimeError::kNoSuchInstance, handle + " is not running");
  }
  SPACE_TRY(oci::CgroupMounts mounts, oci::read_cgroup_mounts());
  const oci::Cgroup cgroup(std::move(mounts), oci::cgroup_path(config_, handle));
  SPACE_TRY(meta.instance->frozen, cgroup.frozen());
  return std::move(*meta.instance);
}

RuntimeResult<std::vector<std::string>> OciRuntime::list_now() const {
  const std::string folder = config_.data_folder + "/sandboxes";
  std::vector<std::string> handles;
  if (!oci::exists(folder)) return handles;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    auto name = at->path().filename().string();
    if (oci::valid_handle(name)) handles.push_back(std::move(name));
  }
  if (error) return failure(RuntimeError::kFailed, "read " + folder + ": " + error.message());
  std::ranges::sort(handles);
  return handles;
}

RuntimeResult<std::uint32_t> OciRuntime::take_slot(const std::string& handle) {
  if (!slots_read_) {
    SPACE_TRY(const auto handles, list_now());
    for (const auto& other : handles) {
      // Without its first file an instance has no process and no mount yet, or no longer.
      const auto meta = oci::read_meta(oci::SandboxFolder(config_, other));
      if (meta) slots_.emplace(other, meta->slot);
    }
    slots_read_ = true;
  }
  std::set<std::uint32_t> taken;
  for (const auto& [other, slot] : slots_) taken.insert(slot);
  for (std::uint32_t slot = 0; slot < config_.max_sandboxes; ++slot) {
    if (taken.contains(slot)) continue;
    slots_[handle] = slot;
    return slot;
  }
  return failure(RuntimeError::kNoSpace, "this worker has as many sandboxes as it may");
}

std::vector<Finding> check_machine(const OciConfig& config) {
  const auto unusable = [](const std::string& why) {
    return std::vector{Finding{"space-stage", false, why}};
  };
  auto process =
      oci::StageProcess::spawn(config.stage_program, "check", oci::handle_request(config, ""));
  if (!process) return unusable(process.error().detail);
  const auto output = process->wait_blocking(kCheckMs);
  if (!output) return unusable(output.error().detail);
  try {
    std::vector<Finding> findings;
    const auto answer = boost::json::parse(output->answer);
    for (const auto& value : answer.as_array()) {
      findings.push_back({boost::json::value_to<std::string>(value.at("name")),
                          value.at("ok").as_bool(),
                          boost::json::value_to<std::string>(value.at("advice"))});
    }
    return findings;
  } catch (const std::exception& e) {
    return unusable(std::string("gave no answer: ") + e.what());
  }
}

std::optional<std::string> probe_runtime(const OciConfig& config) {
  for (const char* program : {"crun", "runc"}) {
    OciConfig candidate = config;
    candidate.runtime_program = program;
    auto process =
        oci::StageProcess::spawn(config.stage_program, "probe", oci::handle_request(candidate, ""));
    if (!process) return std::nullopt;
    const auto output = process->wait_blocking(kProbeMs);
    if (output && oci::decode_answer(output->answer)) return program;
  }
  return std::nullopt;
}

}  // namespace space
