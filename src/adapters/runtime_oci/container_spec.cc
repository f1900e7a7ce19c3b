#include "adapters/runtime_oci/container_spec.h"

#include <boost/json.hpp>

namespace space::oci {
namespace json = boost::json;

const std::vector<std::string>& container_capabilities() {
  // What sudo, package tools and the agent (which becomes other users) need. No SYS_ADMIN,
  // SYS_PTRACE, NET_ADMIN, NET_RAW, MKNOD or SETFCAP.
  static const std::vector<std::string> kNames = {
      "CAP_AUDIT_WRITE", "CAP_CHOWN",  "CAP_DAC_OVERRIDE",     "CAP_FOWNER",
      "CAP_FSETID",      "CAP_KILL",   "CAP_NET_BIND_SERVICE", "CAP_SETGID",
      "CAP_SETPCAP",     "CAP_SETUID", "CAP_SYS_CHROOT"};
  return kNames;
}

json::object make_container_config(const ContainerSpec& spec) {
  constexpr std::uint64_t kCpuPeriodMicros = 100'000;
  constexpr std::uint32_t kIds = 65'536;

  json::array capabilities;
  for (const auto& name : container_capabilities()) capabilities.emplace_back(name);
  json::array arguments;
  for (const auto& argument : spec.arguments) arguments.emplace_back(argument);
  const json::array ids{
      json::object{{"containerID", 0}, {"hostID", spec.first_uid}, {"size", kIds}}};
  json::array namespaces;
  for (const char* type : {"user", "pid", "mount", "network", "ipc", "uts", "cgroup"}) {
    namespaces.push_back(json::object{{"type", type}});
  }

  const json::object no_devices{{"allow", false}, {"access", "rwm"}};
  const auto mount = [](const char* on, const char* type, const char* source, json::array options) {
    return json::object{
        {"destination", on}, {"type", type}, {"source", source}, {"options", std::move(options)}};
  };
  const json::array mounts{
      mount("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}),
      mount("/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"}),
      mount("/dev/pts", "devpts", "devpts",
            {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}),
      mount("/dev/shm", "tmpfs", "shm", {"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}),
      mount("/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"}),
      mount("/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"}),
  };

  return json::object{
      {"ociVersion", "1.0.2"},
      {"hostname", spec.hostname},
      {"root", {{"path", spec.root}, {"readonly", false}}},
      {"mounts", mounts},
      {"process",
       {{"terminal", false},
        {"user", {{"uid", 0}, {"gid", 0}}},
        {"cwd", "/"},
        {"args", arguments},
        {"env", json::array{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
        // sudo must work; what root can do is bounded by user namespace, capabilities and seccomp.
        {"noNewPrivileges", false},
        {"capabilities",
         {{"bounding", capabilities},
          {"effective", capabilities},
          {"permitted", capabilities},
          {"inheritable", json::array{}},
          {"ambient", json::array{}}}}}},
      {"linux",
       {{"namespaces", namespaces},
        {"uidMappings", ids},
        {"gidMappings", ids},
        {"cgroupsPath", spec.cgroup_path},
        {"resources",
         {{"devices", json::array{no_devices}},
          {"memory", {{"limit", spec.memory_bytes}}},
          {"cpu",
           {{"quota", spec.cpu_millis * kCpuPeriodMicros / 1000}, {"period", kCpuPeriodMicros}}},
          {"pids", {{"limit", spec.max_processes}}}}},
        {"seccomp", make_seccomp_profile()},
        {"maskedPaths",
         {"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
          "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
          "/sys/firmware", "/sys/dev/block", "/sys/fs/cgroup"}},
        {"readonlyPaths",
         {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}}}}};
}

}  // namespace space::oci
