#pragma once
#include <optional>
#include <string>

namespace space {

// Gives up what spaced-host could still do before it meets the guest's bytes (P-21). The launcher
// took the capabilities and the uid away before exec; that is verified, not assumed. Then: not
// dumpable, no descriptors but 0 to 4. What is missing, or nothing.
std::optional<std::string> confine();
// From here on, only system calls that moving bytes between two sockets needs; any other ends the
// process.
std::optional<std::string> restrict_system_calls();

}  // namespace space
