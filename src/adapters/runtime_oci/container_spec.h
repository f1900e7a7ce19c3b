#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

namespace space::oci {

struct ContainerSpec {
  std::string root;  // the prepared root folder, mounts included
  std::string hostname;
  std::vector<std::string> arguments;
  std::string cgroup_path;
  std::uint32_t first_uid = 0;  // host id of the container's 0
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_millis = 0;
  std::uint32_t max_processes = 0;
};

// The config.json of an OCI bundle: own namespaces of every kind, mapped ids, the seccomp profile,
// the bounding set and the limits of `spec`.
boost::json::object make_container_config(const ContainerSpec& spec);

// The capabilities a process of the container can ever hold, within its user namespace.
const std::vector<std::string>& container_capabilities();

// System calls are refused unless listed. Unknown ones fail with ENOSYS, so that libraries fall
// back; known privileged ones with EPERM.
boost::json::object make_seccomp_profile();

}  // namespace space::oci
