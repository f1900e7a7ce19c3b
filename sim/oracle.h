#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/identity/route_identity.h"
#include "core/wire/hop.h"
#include "ports/clock.h"
#include "sim/tap.h"
#include "sim/world.h"

namespace space::sim {

// Every operation of a client carries a tag of its own, in the `user` of its request, so that what
// happens to it can be told on every hop and in the guest without asking the code under test.
using Tag = std::string;

// Watches the run from outside: the frames at the gateways and the managers, what guests execute,
// what the machines really run, what clients are told. Knows the truth and says when an invariant
// is broken; the first violation stays.
class Oracle {
 public:
  explicit Oracle(World& world) : world_(world) {}
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  const std::optional<std::string>& violation() const { return violation_; }
  void violated(std::string what);
  // Says that an interesting situation was met; a campaign wants each to be met.
  void probe(const std::string& name) { ++probes_[name]; }
  const std::map<std::string, std::uint64_t>& probes() const { return probes_; }

  // ---- machines: the truth ----
  // What an instance is now. A thaw gives it the identity that the control plane asked for last.
  void instance_started(const std::string& handle, identity::RouteIdentity route);
  void instance_thawed(const std::string& handle);
  void instance_gone(const std::string& handle);
  // A record is durable at a worker, or removed.
  void record_durable(const identity::WorkerId& worker, const identity::RouteIdentity& route);

  // What follows an install in the very turn of its write: nothing of an older generation goes on
  // there.
  void installs_now(const identity::WorkerId& worker, const identity::RouteIdentity& route) {
    receivers_[worker].highest[route.sandbox] = route.generation;
  }

  // ---- guests ----
  // An instance does the work of an operation. ID-4: exactly the selected execution may.
  void executed(const std::string& handle, const Tag& tag, bool side_effect, bool frozen);

  // ---- clients ----
  void begun(const Tag& tag, const identity::SandboxId& sandbox);
  // Sandboxes that operations were begun for.
  const std::set<identity::SandboxId>& sandboxes() const { return sandboxes_; }
  // The session was opened with the access token of `sandbox`: nothing else is ever opened with it.
  void limited(const identity::SessionId& session, const identity::SandboxId& sandbox) {
    limits_.insert_or_assign(session, sandbox);
  }
  // The operation succeeded, served by `served` as the client was told.
  void told(const Tag& tag, const identity::RouteIdentity& served);

  // ---- taps; each makes the observer of one connection ----
  std::shared_ptr<FrameObserver> gateway_leg();
  std::shared_ptr<FrameObserver> manager_leg(identity::WorkerId worker, const WallClock& clock);
  std::shared_ptr<FrameObserver> control_leg(identity::WorkerId worker);
  std::shared_ptr<FrameObserver> bridge_leg(identity::WorkerId worker, const WallClock& clock);

  // INSTALL and RETIRE frames that were once sent, for redelivery.
  const std::vector<std::pair<identity::WorkerId, wire::hop::Payload>>& installs_and_retires()
      const {
    return sent_;
  }
  std::uint64_t executions() const { return executions_; }
  std::uint64_t admissions() const { return admissions_; }
  std::uint64_t repairs() const { return repairs_; }

 private:
  class GatewayLeg;
  class ManagerLeg;
  class ControlLeg;
  class BridgeLeg;

  struct Instance {
    std::vector<identity::RouteIdentity> routes;  // last: the current one
    std::optional<identity::RouteIdentity> thaw_as;
    bool gone = false;
  };
  struct Operation {
    identity::SandboxId sandbox;
    std::vector<identity::RouteIdentity> forwarded_as;
    std::vector<identity::RouteIdentity> executed_by;
    unsigned side_effects = 0;
  };
  struct Request {
    std::optional<identity::RouteIdentity> selected;  // by the newest capability
    std::optional<identity::RouteIdentity> refused;
    unsigned refusals = 0;  // RefreshRoute but NotYet
  };
  // A lease as ADMITTED and RENEWED told it.
  struct LeaseView {
    identity::RouteIdentity route;
    WallTime deadline;
  };
  struct Receiver {
    std::map<identity::SandboxId, identity::Generation> highest;       // ever acknowledged
    std::map<identity::SandboxId, identity::RouteIdentity> installed;  // acknowledged, not retired
    std::set<std::pair<identity::SandboxId, identity::Generation>> retired;
    std::map<identity::SandboxId, identity::Generation> durable;
  };

  Operation* find(const Tag& tag);
  static Tag tag_of(const wire::hop::Open& open);
  // Something of an admitted operation leaves the manager: its execution must still be the one
  // served.
  void forwarding(const identity::WorkerId& worker, const identity::RouteIdentity& route,
                  std::string_view where);

  World& world_;
  std::optional<std::string> violation_;
  std::map<std::string, std::uint64_t> probes_;
  std::map<std::string, Instance> instances_;
  std::map<Tag, Operation> operations_;
  std::set<identity::SandboxId> sandboxes_;
  std::map<identity::SessionId, identity::SandboxId> limits_;
  std::map<wire::hop::RequestId, Request> requests_;
  std::map<identity::WorkerId, Receiver> receivers_;
  // By worker and lease id. A restarted manager counts from 1 again and overwrites.
  std::map<std::pair<identity::WorkerId, identity::LeaseId>, LeaseView> leases_;
  std::map<identity::SandboxId, identity::Generation> newest_executed_;
  std::vector<std::pair<identity::WorkerId, wire::hop::Payload>> sent_;
  std::uint64_t executions_ = 0;
  std::uint64_t admissions_ = 0;
  std::uint64_t repairs_ = 0;
};

std::string describe(const identity::RouteIdentity& route);

}  // namespace space::sim
