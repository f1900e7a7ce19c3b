#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace space::sim {

struct RunOptions {
  std::uint64_t seed = 1;
  bool trace = false;
};
struct RunResult {
  std::optional<std::string> violation;
  std::uint64_t digest = 0;
  std::uint64_t steps = 0;
  std::map<std::string, std::uint64_t> counts;  // of situations met
};
struct Workload {
  std::string_view name;
  std::string_view about;
  RunResult (*run)(RunOptions options);
};

RunResult run_fleet(RunOptions options);
RunResult run_install_at_every_step(RunOptions options);

}  // namespace space::sim
