#pragma once
#include <map>
#include <memory>
#include <string>

#include "ports/guest.h"
#include "services/spaced_guest/guest_agent.h"
#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/sim_log.h"

namespace space::sim {

using Disk = std::map<std::string, Bytes>;  // absolute path -> content

// What runs in one instance: the real guest agent over files and processes in memory. Frozen, none
// of its tasks goes on. Reports each operation that takes effect to the oracle, under its `user`,
// the tag.
class SimGuest {
 public:
  struct World {
    sim::World& world;
    SimNetwork& network;
    Oracle& oracle;
    Entropy& entropy;
    SimLog& log;
  };
  SimGuest(World world, std::string node, std::string handle, identity::SandboxId sandbox,
           Disk disk, GuestSecret secret, std::map<std::string, std::string> envs);
  ~SimGuest();

  // Ends the machine; to be awaited before destruction.
  Task<void> stop();
  void freeze() { frozen_ = true; }
  void thaw();
  bool frozen() const { return frozen_; }
  const Disk& disk() const { return disk_; }

 private:
  class Files;
  class Process;
  class Processes;
  class Clock;
  class FrozenStream;
  class FrozenListener;

  Task<bool> running();  // completes when not frozen; false when the task was cancelled
  void executed(const Tag& tag, bool side_effect);

  World world_;
  std::string handle_;
  Disk disk_;
  bool frozen_ = false;
  Notifier thawed_;
  std::unique_ptr<Files> files_;
  std::unique_ptr<Processes> processes_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<guest::GuestAgent> agent_;
  std::unique_ptr<Listener> listener_;
  TaskScope tasks_;
};

}  // namespace space::sim
