#pragma once
#include <string>
#include <vector>

#include "adapters/runtime_oci/sys.h"

namespace space::oci {

// Runs a program (looked up in PATH) to its end and returns its exit status, or 128 + signal. Its
// input and output are /dev/null, its errors go to our standard error; it inherits descriptors 3
// and 4 when `keep_fds`, no others, and dies with us.
RuntimeResult<int> run_command(const std::vector<std::string>& arguments, bool keep_fds = false);

}  // namespace space::oci
