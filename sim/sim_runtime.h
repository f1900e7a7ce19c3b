#pragma once
#include <list>
#include <map>
#include <memory>
#include <string>

#include "ports/runtime.h"
#include "sim/life.h"
#include "sim/sim_guest.h"

namespace space::sim {

// Published disks, shared by all machines; write-once.
using Artifacts = std::map<std::string, Disk>;

// One worker's machine: what runs on it does not end with its manager.
class Machine {
 public:
  struct Faults {
    unsigned fail_permille = 0;    // a runtime call fails without effect
    unsigned lost_permille = 0;    // it has its effect, and its answer is an error
    unsigned slow_permille = 0;    // it takes up to 5 s
    unsigned swap_permille = 0;    // a dial to a guest reaches another guest of this machine
    unsigned bridge_permille = 0;  // a bridge is killed within its first 2 s
  };
  Machine(SimGuest::World world, identity::WorkerId worker, Artifacts& artifacts)
      : world_(world), worker_(std::move(worker)), artifacts_(artifacts), tasks_(world.world) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Ends every guest; to be awaited before destruction.
  Task<void> stop();
  void set_faults(Faults faults) { faults_ = faults; }
  const Faults& faults() const { return faults_; }
  const identity::WorkerId& worker() const { return worker_; }
  SimGuest::World& world() { return world_; }

  struct Instance {
    RuntimeInstance seen;
    identity::ActivationId activation;
    std::unique_ptr<SimGuest> guest;
  };
  // By handle.
  const std::map<std::string, Instance>& instances() const { return instances_; }
  Artifacts& artifacts() { return artifacts_; }
  void start(StartRequest request, const std::string& handle);
  void freeze(const std::string& handle);
  void thaw(const std::string& handle);
  void destroy(const std::string& handle);
  // Of the guests that end and of the bridges.
  TaskScope& tasks() { return tasks_; }

 private:
  static Task<void> end(std::unique_ptr<SimGuest> guest);

  SimGuest::World world_;
  identity::WorkerId worker_;
  Artifacts& artifacts_;
  Faults faults_;
  std::map<std::string, Instance> instances_;
  std::int32_t next_pid_ = 1000;
  TaskScope tasks_;
};

// The Runtime as one run of a manager sees it.
class SimRuntime final : public Runtime {
 public:
  SimRuntime(Machine& machine, LifePtr life) : machine_(machine), life_(std::move(life)) {}
  Task<RuntimeResult<RuntimeInstance>> start(StartRequest request) override;
  Task<RuntimeResult<void>> freeze(std::string handle) override;
  Task<RuntimeResult<RuntimeInstance>> thaw(std::string handle) override;
  Task<RuntimeResult<void>> publish(std::string handle, std::string name) override;
  Task<RuntimeResult<void>> destroy(std::string handle) override;
  Task<RuntimeResult<RuntimeInstance>> inspect(std::string handle) override;
  Task<RuntimeResult<std::vector<std::string>>> list() override;
  Task<RuntimeResult<void>> remove_artifact(std::string name) override;

 private:
  // Time passes; false when the call has no effect, since it failed or its caller is gone.
  Task<bool> before(BootClock::duration usual);
  // Time passes after the effect; false when the answer is lost.
  Task<bool> after();
  const Machine::Instance* find(const std::string& handle) const;

  Machine& machine_;
  LifePtr life_;
};

}  // namespace space::sim
