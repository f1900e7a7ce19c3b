#pragma once
#include <optional>
#include <string>
#include <vector>

#include "adapters/config/config.h"
#include "services/cli/api.h"

namespace space::app {

// One thing looked at, and one line about it: what was found, or what to do.
struct Check {
  std::string name;
  bool ok = false;
  bool required = true;  // false: it runs without, or it is only good to know
  std::string detail;
};

// Looks at this machine. `config` is absent when there is none yet. Starts short-lived processes
// and may block for some seconds. `running`: the platform of this data folder is up, so its port is
// its own.
std::vector<Check> examine(const std::optional<config::Config>& config, bool running);

// `space doctor`: prints the checks; kDoctorFound when a required one failed.
int doctor(cli::Context& context);

}  // namespace space::app
