#pragma once
#include <string>

#include "adapters/runtime_oci/sys.h"

namespace space::oci {

inline constexpr std::string_view kHostTemplate = "host";
inline constexpr std::uint32_t kSandboxUser = 1000;  // "user", with sudo where the host has it

// The lowest layer of the template "host": a root folder with everything but /usr, which is the
// host's own. Made once under `templates_folder` as host@HASH/root, where HASH covers what was
// copied from the host; returns its path. Owners on disk are as seen inside.
RuntimeResult<std::string> host_template(const std::string& templates_folder);

}  // namespace space::oci
