#include "adapters/runtime_oci/sandbox_folder.h"

#include <boost/json.hpp>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "core/identity/ids.h"

namespace space::oci {
namespace json = boost::json;
namespace {
constexpr std::size_t kMaxMeta = 64U << 10;
constexpr std::size_t kMaxArtifactName = 200;
}  // namespace

bool valid_handle(std::string_view handle) {
  const auto dot = handle.rfind('.');
  if (dot == std::string_view::npos) return false;
  return identity::SandboxId::parse(handle.substr(0, dot)).has_value() &&
         parse_decimal(handle.substr(dot + 1)).has_value();
}

bool valid_artifact(std::string_view name) {
  if (name.empty() || name.size() > kMaxArtifactName || name[0] == '.' || name[0] == '-') {
    return false;
  }
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == std::string_view::npos;
}

SandboxFolder::SandboxFolder(const OciConfig& config, const std::string& handle)
    : path(config.data_folder + "/sandboxes/" + handle),
      meta(path + "/meta.json"),
      image(path + "/upper.img"),
      pid(path + "/pid"),
      bundle(path + "/bundle"),
      vsock(path + "/vsock"),
      socket(vsock + "/v.sock") {}

RuntimeResult<void> write_meta(const SandboxFolder& folder, const SandboxMeta& meta) {
  json::object object{{"format", 1}, {"slot", meta.slot}, {"boot_id", meta.boot_id}};
  if (meta.instance) {
    const auto& process = meta.instance->guest_process;
    const auto& transport = meta.instance->transport;
    object["handle"] = meta.instance->handle;
    object["process"] = {{"pid", process.pid},
                         {"start_time_ticks", process.start_time_ticks},
                         {"pidfs_inode", process.pidfs_inode},
                         {"exe_device", process.exe_device},
                         {"exe_inode", process.exe_inode}};
    object["transport"] = {{"socket_path", transport.socket_path},
                           {"path_device", transport.path_device},
                           {"path_inode", transport.path_inode}};
  }
  return replace_file(folder.meta, json::serialize(object) + "\n");
}

RuntimeResult<SandboxMeta> read_meta(const SandboxFolder& folder) {
  if (!exists(folder.meta)) return failure(RuntimeError::kNoSuchInstance, "no " + folder.meta);
  SPACE_TRY(const std::string text, read_file(folder.meta, kMaxMeta));
  // The machine crashed before it reached the disk: nothing of that boot runs any more.
  if (text.empty()) return failure(RuntimeError::kNoSuchInstance, folder.meta + " is empty");
  try {
    const auto value = json::parse(text);
    SandboxMeta meta;
    if (value.at("format").to_number<int>() != 1) {
      return failure(RuntimeError::kFailed, folder.meta + " has an unknown format");
    }
    meta.slot = value.at("slot").to_number<std::uint32_t>();
    meta.boot_id = json::value_to<std::string>(value.at("boot_id"));
    if (!value.as_object().contains("process")) return meta;
    RuntimeInstance instance;
    instance.handle = json::value_to<std::string>(value.at("handle"));
    const auto& process = value.at("process");
    instance.guest_process.pid = process.at("pid").to_number<std::int32_t>();
    instance.guest_process.start_time_ticks =
        process.at("start_time_ticks").to_number<std::uint64_t>();
    instance.guest_process.pidfs_inode = process.at("pidfs_inode").to_number<std::uint64_t>();
    instance.guest_process.exe_device = process.at("exe_device").to_number<std::uint64_t>();
    instance.guest_process.exe_inode = process.at("exe_inode").to_number<std::uint64_t>();
    const auto& transport = value.at("transport");
    instance.transport.socket_path = json::value_to<std::string>(transport.at("socket_path"));
    instance.transport.path_device = transport.at("path_device").to_number<std::uint64_t>();
    instance.transport.path_inode = transport.at("path_inode").to_number<std::uint64_t>();
    meta.instance = std::move(instance);
    return meta;
  } catch (const std::exception& e) {
    return failure(RuntimeError::kFailed, folder.meta + ": " + e.what());
  }
}

std::string read_boot_id() {
  auto id = read_file("/proc/sys/kernel/random/boot_id", 128);
  return id ? std::move(*id) : std::string();
}

std::string cgroup_path(const OciConfig& config, std::string_view handle) {
  return config.cgroup_parent + "/" + std::string(handle);
}

std::string artifact_path(const OciConfig& config, std::string_view name) {
  return config.artifacts_folder + "/" + std::string(name);
}

}  // namespace space::oci
