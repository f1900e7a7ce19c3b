#pragma once
#include <cstddef>
#include <string>

#include "services/cli/api.h"

namespace space::app {

struct LogsOptions {
  std::string part;     // of this part only, also by the beginning of its name; empty: all
  std::string sandbox;  // about this sandbox only; empty: all
  std::string level;    // this and worse: debug | info | warning | error | alarm; empty: info
  std::size_t lines = 100;
  bool follow = false;
};
// `space logs`: the events of all parts of this machine in the order of their times (DESIGN 9).
Task<int> logs(cli::Context& context, LogsOptions options);

}  // namespace space::app
