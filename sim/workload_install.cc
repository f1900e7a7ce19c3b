#include "sim/workload.h"

namespace space::sim {
RunResult run_install_at_every_step(RunOptions) { return {}; }
}  // namespace space::sim
