#pragma once
#include <memory>

#include "ports/bridge.h"
#include "sim/sim_runtime.h"

namespace space::sim {

// Bridges as one run of a manager makes them: the real spaced-host between a stream to the manager
// and the guest's listener. The checks of the kernel evidence are those of the record (BR-1, BR-2);
// a swap fault goes past them to another guest, which only the proof can notice.
class SimBridgeLauncher final : public BridgeLauncher {
 public:
  // The bridges are tasks of the machine.
  SimBridgeLauncher(Machine& machine, const WallClock& clock, LifePtr life)
      : machine_(machine), clock_(clock), life_(std::move(life)) {}
  Task<std::expected<BridgeLink, BridgeError>> launch(BridgeTarget target,
                                                      MonoTime deadline) override;

 private:
  Machine& machine_;
  const WallClock& clock_;
  LifePtr life_;
};

}  // namespace space::sim
