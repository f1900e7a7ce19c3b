#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/identity/testing/keyed_hash_signatures.h"
#include "ports/signer.h"
#include "services/control_plane/control_plane.h"
#include "services/node_api/gateway.h"
#include "services/sbx_manager/sbx_manager.h"
#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/sim_bridge.h"
#include "sim/sim_log.h"
#include "sim/sim_records.h"
#include "sim/sim_runtime.h"
#include "sim/sim_store.h"

namespace space::sim {

inline constexpr std::uint32_t kControlUid = 100;
inline constexpr std::uint32_t kFirstGatewayUid = 64'001;

// Signs with the keyed hash that KeyedHashVerifier checks.
class SimSigner final : public Signer {
 public:
  identity::KeyId key_id() const override { return {1}; }
  identity::PublicKey public_key() const override;
  std::array<std::byte, 64> sign(ByteView message) const override;
};

// The whole fleet: the real services on simulated ports. Each can be killed at any time and started
// again; what is durable, and what runs on the machines, stays.
class Fleet {
 public:
  struct Options {
    std::size_t workers = 2;
    std::size_t gateways = 2;
    bool trace = false;
  };
  Fleet(World& world, Oracle& oracle, Options options);
  ~Fleet();

  SimNetwork& network() { return network_; }
  SimLog& log() { return log_; }

  void start_all();
  // Ends everything; to be awaited before destruction.
  Task<void> stop();

  void start_control();
  void kill_control();
  void start_worker(std::size_t index);
  void kill_worker(std::size_t index);
  // Two managers come back with each other's hop address, as machines may after a restart.
  void swap_endpoints(std::size_t a, std::size_t b);
  void start_gateway(std::size_t index);
  void kill_gateway(std::size_t index);

  std::size_t workers() const { return workers_.size(); }
  std::size_t gateways() const { return gateways_.size(); }
  identity::WorkerId worker_id(std::size_t index) const { return workers_[index].id; }
  Machine& machine(std::size_t index) { return *workers_[index].machine; }
  const sbx_manager::SbxManager* manager(std::size_t index) const;

  // Keep it while a call of it is pending; null while the gateway is down.
  struct GatewayRun;
  std::shared_ptr<GatewayRun> gateway(std::size_t index) { return gateways_[index].run; }

  SimClock& control_clock() { return control_clock_; }
  SimClock& worker_clock(std::size_t index) { return *workers_[index].clock; }
  SimClock& gateway_clock(std::size_t index) { return *gateways_[index].clock; }

  // Of one node; from the next write or run on.
  void set_store_fail_permille(unsigned permille);
  void set_record_fail_permille(unsigned permille);

  // Sends a frame to a manager's control listener as a control plane would, on a connection of its
  // own.
  Task<void> redeliver(std::size_t worker, wire::hop::Payload request);

  // RC-3: what a gateway has cached never goes back. Called at each step.
  void check();

  Task<std::string> make_api_key(identity::TeamId team);

 private:
  struct ControlRun;
  struct ManagerRun;
  struct Worker {
    identity::WorkerId id;
    std::string endpoint;  // of its hop listener
    std::unique_ptr<Machine> machine;
    std::unique_ptr<SimClock> clock;
    RecordDisk disk;
    std::unique_ptr<ManagerRun> run;
  };
  struct GatewayNode {
    std::unique_ptr<SimClock> clock;
    std::shared_ptr<GatewayRun> run;
    // Highest generation seen cached, of this run.
    std::map<identity::SandboxId, identity::Generation> cached;
  };
  std::map<std::uint32_t, identity::HolderId> holders() const;
  Task<void> run_control(ControlRun& run);
  Task<void> run_manager(ManagerRun& run);
  static Task<void> end_control(std::unique_ptr<ControlRun> run);
  static Task<void> end_manager(std::unique_ptr<ManagerRun> run);
  static Task<void> end_gateway(std::shared_ptr<GatewayRun> run);

  World& world_;
  Oracle& oracle_;
  Options options_;
  SimNetwork network_;
  SimEntropy entropy_;
  SimLog log_;
  SimSigner signer_;
  identity::testing::KeyedHashVerifier verifier_;
  control_plane::MemoryStore store_;
  Artifacts artifacts_;
  SimClock control_clock_;
  std::unique_ptr<ControlRun> control_;
  std::vector<Worker> workers_;
  std::vector<GatewayNode> gateways_;
  unsigned store_fail_permille_ = 0;
  unsigned record_fail_permille_ = 0;
  TaskScope ending_;
};

struct Fleet::GatewayRun {
  LifePtr life;
  std::unique_ptr<SimLog> log;
  std::unique_ptr<Dialer> dialer;
  std::unique_ptr<node_api::Gateway> gateway;
};

}  // namespace space::sim
