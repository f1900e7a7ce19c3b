#include "sim/oracle.h"

#include <algorithm>

#include "core/identity/capability.h"
#include "core/identity/runtime_record.h"
#include "core/wire/messages.h"

namespace space::sim {

namespace frame = wire::hop;
using identity::RouteIdentity;

std::string describe(const RouteIdentity& route) {
  return route.sandbox.text() + "#" + std::to_string(route.generation.value) + "@" +
         route.worker.text() + "/" + route.activation.text().substr(0, 6);
}

void Oracle::violated(std::string what) {
  world_.note("violation: " + what);
  if (!violation_) violation_ = std::move(what);
}

// ---- machines ----

void Oracle::instance_started(const std::string& handle, RouteIdentity route) {
  auto& instance = instances_[handle];
  instance.routes.push_back(std::move(route));
  instance.gone = false;
}

void Oracle::instance_thawed(const std::string& handle) {
  auto& instance = instances_[handle];
  if (instance.thaw_as && instance.routes.back() != *instance.thaw_as) {
    instance.routes.push_back(*instance.thaw_as);
  }
}

void Oracle::instance_gone(const std::string& handle) { instances_[handle].gone = true; }

void Oracle::record_durable(const identity::WorkerId& worker, const RouteIdentity& route) {
  auto& durable = receivers_[worker].durable[route.sandbox];
  if (route.generation < durable) {
    violated("RCV-3: the durable record goes back at " + worker.text() + " to " + describe(route));
  }
  durable = route.generation;
}

// ---- guests and clients ----

Oracle::Operation* Oracle::find(const Tag& tag) {
  const auto at = operations_.find(tag);
  return at == operations_.end() ? nullptr : &at->second;
}

void Oracle::begun(const Tag& tag, const identity::SandboxId& sandbox) {
  operations_[tag].sandbox = sandbox;
  sandboxes_.insert(sandbox);
}

void Oracle::executed(const std::string& handle, const Tag& tag, bool side_effect, bool frozen) {
  ++executions_;
  auto& instance = instances_[handle];
  auto* operation = find(tag);
  if (operation == nullptr || instance.routes.empty()) {
    return violated("an operation that no client began was executed: " + tag);
  }
  const auto& route = instance.routes.back();
  world_.note("executed " + tag + " by " + describe(route));
  if (instance.gone) return violated("a removed instance executed " + tag);
  if (frozen) return violated("a frozen instance executed " + tag);
  if (route.sandbox != operation->sandbox) {
    return violated("ID-4: " + tag + " for " + operation->sandbox.text() + " was executed by " +
                    describe(route));
  }
  if (std::ranges::find(operation->forwarded_as, route) == operation->forwarded_as.end()) {
    return violated("ID-4: " + tag + " was executed by " + describe(route) +
                    ", which no admission of it selected");
  }
  auto& newest = newest_executed_[route.sandbox];
  if (route.generation < newest) {
    return violated("ID-4: " + tag + " was executed by " + describe(route) + " after generation " +
                    std::to_string(newest.value) + " had executed");
  }
  newest = route.generation;
  operation->executed_by.push_back(route);
  if (side_effect && ++operation->side_effects > 1) {
    violated("RC-2: " + tag + " took effect twice");
  }
}

void Oracle::told(const Tag& tag, const RouteIdentity& served) {
  const auto* operation = find(tag);
  if (operation == nullptr) return violated("told of an unknown operation " + tag);
  if (std::ranges::find(operation->executed_by, served) == operation->executed_by.end()) {
    violated("ID-4: the client was told that " + describe(served) + " served " + tag +
             "; it did not execute it");
  }
}

// ---- taps ----

Tag Oracle::tag_of(const frame::Open& open) {
  using enum policy::Operation;
  const auto user = [&open]<class T>(std::type_identity<T>) -> Tag {
    const auto request = wire::decode<T>(open.metadata);
    return request ? request->user : Tag{};
  };
  if (open.operation == kFileRead) return user(std::type_identity<wire::FileReadRequest>{});
  if (open.operation == kFileWrite) return user(std::type_identity<wire::FileWriteRequest>{});
  if (open.operation == kFileStat) return user(std::type_identity<wire::FileStatRequest>{});
  if (open.operation == kFileList) return user(std::type_identity<wire::FileListRequest>{});
  if (open.operation == kFileRemove) return user(std::type_identity<wire::FileRemoveRequest>{});
  if (open.operation == kFileMakeDir) return user(std::type_identity<wire::FileMakeDirRequest>{});
  if (open.operation == kFileMove) return user(std::type_identity<wire::FileMoveRequest>{});
  if (open.operation == kProcessStart) {
    const auto request = wire::decode<wire::ProcessStartRequest>(open.metadata);
    return request ? request->spec.user : Tag{};
  }
  return {};
}

namespace {
std::optional<identity::Claims> claims_of(const frame::Open& open) {
  const auto* capability = std::get_if<frame::Capability>(&open.authority);
  if (capability == nullptr || capability->sealed.size() < identity::kSignatureBytes)
    return std::nullopt;
  auto claims = identity::decode_claims(
      ByteView(capability->sealed).first(capability->sealed.size() - identity::kSignatureBytes));
  if (!claims) return std::nullopt;
  return *std::move(claims);
}
std::optional<RouteIdentity> selected_by(const frame::Open& open) {
  auto claims = claims_of(open);
  if (!claims) return std::nullopt;
  return std::move(claims->route);
}
}  // namespace

// node-api's end of its connection to a manager.
class Oracle::GatewayLeg final : public FrameObserver {
 public:
  explicit GatewayLeg(Oracle& oracle) : oracle_(oracle) {}
  void on_written(const frame::Frame& written) override {
    const auto* open = std::get_if<frame::Open>(&written.payload);
    if (open == nullptr) return;
    streams_[written.stream] = open->request;
    auto& request = oracle_.requests_[open->request];
    request.selected = selected_by(*open);
    if (open->attempt == 1 && request.refusals == 0) {
      oracle_.violated("P-16: a rebuilt attempt without a RefreshRoute refusal before it");
    }
    if (request.refusals >= 2) {
      oracle_.violated("RC-2: a request was opened again after its second refusal");
    }
    if (request.refused && request.selected == request.refused) {
      oracle_.violated("P-16: a second attempt for the identity just refused, " +
                       describe(*request.refused));
    }
    if (open->attempt == 1) ++oracle_.repairs_;
  }
  void on_read(const frame::Frame& read) override {
    const auto at = streams_.find(read.stream);
    if (at == streams_.end()) return;
    auto& request = oracle_.requests_[at->second];
    if (const auto* refused = std::get_if<frame::Refused>(&read.payload)) {
      if (const auto* refresh = std::get_if<frame::Refresh>(&refused->verdict)) {
        oracle_.probe("refused." + std::string(to_string(refresh->reason)));
        if (refresh->reason != identity::RefreshReason::kNotYet) {
          ++request.refusals;
          request.refused = request.selected;
        }
      } else if (const auto* denied = std::get_if<frame::Denied>(&refused->verdict)) {
        oracle_.probe("denied." + std::string(to_string(denied->reason)));
      } else {
        oracle_.probe("unavailable." + std::string(to_string(
                                           std::get<frame::Unavailable>(refused->verdict).reason)));
      }
    } else if (const auto* admitted = std::get_if<frame::Admitted>(&read.payload)) {
      if (request.refusals == 1) oracle_.probe("repaired");
      if (!request.selected || admitted->route != *request.selected) {
        oracle_.violated("ID-4: admitted by " + describe(admitted->route) +
                         ", which the capability did not select");
      }
    } else if (std::holds_alternative<frame::Revoked>(read.payload)) {
      oracle_.probe("revoked");
    }
  }

 private:
  Oracle& oracle_;
  std::map<frame::StreamId, frame::RequestId> streams_;
};

void Oracle::forwarding(const identity::WorkerId& worker, const RouteIdentity& route,
                        std::string_view where) {
  const auto& receiver = receivers_[worker];
  const auto highest = receiver.highest.find(route.sandbox);
  if (highest != receiver.highest.end() && route.generation < highest->second) {
    violated("RCV-3: " + std::string(where) + " for " + describe(route) + " after generation " +
             std::to_string(highest->second.value) + " was installed there");
  }
  if (receiver.retired.contains({route.sandbox, route.generation})) {
    violated("P-11: " + std::string(where) + " for " + describe(route) + " after it was retired");
  }
}

// The manager's end of a connection from a node-api.
class Oracle::ManagerLeg final : public FrameObserver {
 public:
  ManagerLeg(Oracle& oracle, identity::WorkerId worker, const WallClock& clock)
      : oracle_(oracle), worker_(std::move(worker)), clock_(clock) {}
  void on_read(const frame::Frame& read) override {
    if (const auto* open = std::get_if<frame::Open>(&read.payload)) {
      const auto claims = claims_of(*open);
      auto& stream = streams_[read.stream];
      stream.selected.reset();
      if (!claims) return;
      if (claims->route.worker != worker_) {
        oracle_.violated("C001: an opening for " + describe(claims->route) + " reached " +
                         worker_.text());
      }
      const auto limit = oracle_.limits_.find(claims->session);
      if (limit != oracle_.limits_.end() && limit->second != claims->route.sandbox) {
        oracle_.violated("P-18: the access token of " + limit->second.text() + " opened " +
                         describe(claims->route));
      }
      stream.selected = claims->route;
    }
  }
  void on_written(const frame::Frame& written) override {
    const auto at = streams_.find(written.stream);
    if (at == streams_.end()) return;
    auto& stream = at->second;
    if (const auto* admitted = std::get_if<frame::Admitted>(&written.payload)) {
      ++oracle_.admissions_;
      if (!stream.selected || admitted->route != *stream.selected) {
        oracle_.violated("ID-4: " + worker_.text() + " admitted as " + describe(admitted->route) +
                         " what was selected for another execution");
      }
      if (admitted->route.worker != worker_) {
        oracle_.violated("ID-4: " + worker_.text() + " admitted as " + describe(admitted->route));
      }
      oracle_.forwarding(worker_, admitted->route, "ADMITTED");
      for (const auto& [other, receiver] : oracle_.receivers_) {
        const auto installed = receiver.installed.find(admitted->route.sandbox);
        if (other != worker_ && installed != receiver.installed.end() &&
            installed->second.generation > admitted->route.generation) {
          oracle_.violated("P-15: " + describe(admitted->route) + " admits while " +
                           describe(installed->second) + " is installed");
        }
      }
      stream.lease = admitted->lease;
      oracle_.leases_[{worker_, admitted->lease}] = {admitted->route, admitted->lease_deadline};
    } else if (const auto* renewed = std::get_if<frame::Renewed>(&written.payload)) {
      const auto lease =
          stream.lease ? oracle_.leases_.find({worker_, *stream.lease}) : oracle_.leases_.end();
      if (!renewed->refused && lease != oracle_.leases_.end()) {
        lease->second.deadline = renewed->lease_deadline;
        oracle_.probe("renewed");
      }
    } else if (std::holds_alternative<frame::Data>(written.payload) ||
               std::holds_alternative<frame::End>(written.payload)) {
      const auto lease =
          stream.lease ? oracle_.leases_.find({worker_, *stream.lease}) : oracle_.leases_.end();
      if (lease == oracle_.leases_.end()) return;
      oracle_.forwarding(worker_, lease->second.route, "bytes to node-api");
      if (clock_.now() > lease->second.deadline) {
        oracle_.violated("P-10: bytes to node-api for " + describe(lease->second.route) +
                         " after the lease's deadline");
      }
    }
  }

 private:
  struct Stream {
    std::optional<RouteIdentity> selected;
    std::optional<identity::LeaseId> lease;
  };
  Oracle& oracle_;
  identity::WorkerId worker_;
  const WallClock& clock_;
  std::map<frame::StreamId, Stream> streams_;
};

// The manager's end of the connection from the control plane.
class Oracle::ControlLeg final : public FrameObserver {
 public:
  ControlLeg(Oracle& oracle, identity::WorkerId worker)
      : oracle_(oracle), worker_(std::move(worker)) {}
  void on_read(const frame::Frame& read) override {
    if (const auto* open = std::get_if<frame::Open>(&read.payload)) {
      if (open->operation != policy::Operation::kNodeThaw) return;
      if (auto request = wire::decode<wire::NodeThawRequest>(open->metadata)) {
        oracle_.instances_[request->handle].thaw_as = std::move(request->route);
      }
    } else if (const auto* install = std::get_if<frame::Install>(&read.payload)) {
      oracle_.sent_.emplace_back(worker_, *install);
      if (auto record = identity::decode_record(install->record))
        installs_[read.stream] = record->route;
    } else if (const auto* retire = std::get_if<frame::Retire>(&read.payload)) {
      oracle_.sent_.emplace_back(worker_, *retire);
      retires_[read.stream] = retire->route;
    }
  }
  void on_written(const frame::Frame& written) override {
    auto& receiver = oracle_.receivers_[worker_];
    if (const auto* installed = std::get_if<frame::Installed>(&written.payload)) {
      oracle_.probe("install." + std::string(to_string(installed->outcome)));
      const auto at = installs_.find(written.stream);
      if (at == installs_.end() || installed->outcome != frame::InstallOutcome::kInstalled) return;
      const auto& route = at->second;
      auto& highest = receiver.highest[route.sandbox];
      if (route.generation < highest ||
          receiver.retired.contains({route.sandbox, route.generation})) {
        oracle_.violated("RCV-3: " + worker_.text() + " installed " + describe(route) +
                         " backwards, behind generation " + std::to_string(highest.value));
      }
      const auto durable = receiver.durable.find(route.sandbox);
      if (durable == receiver.durable.end() || durable->second < route.generation) {
        oracle_.violated("P-13: " + describe(route) + " was acknowledged before it was durable");
      }
      highest = std::max(highest, route.generation);
      receiver.installed[route.sandbox] = route;
    } else if (std::holds_alternative<frame::Retired>(written.payload)) {
      const auto at = retires_.find(written.stream);
      if (at == retires_.end()) return;
      const auto& route = at->second;
      const auto served = receiver.installed.find(route.sandbox);
      if (served != receiver.installed.end() && served->second == route) {
        receiver.installed.erase(served);
      }
      // A retire of what was never there does nothing; the identity is over for its sender all the
      // same.
      if (std::get<frame::Retired>(written.payload).was_installed) {
        receiver.retired.insert({route.sandbox, route.generation});
      }
    }
  }

 private:
  Oracle& oracle_;
  identity::WorkerId worker_;
  std::map<frame::StreamId, RouteIdentity> installs_;
  std::map<frame::StreamId, RouteIdentity> retires_;
};

// The manager's end of the connection to one spaced-host.
class Oracle::BridgeLeg final : public FrameObserver {
 public:
  BridgeLeg(Oracle& oracle, identity::WorkerId worker, const WallClock& clock)
      : oracle_(oracle), worker_(std::move(worker)), clock_(clock) {}
  void on_read(const frame::Frame& read) override {
    if (const auto* ack = std::get_if<frame::ActivateAck>(&read.payload)) {
      oracle_.probe("activate." + std::string(to_string(ack->outcome)));
      ready_ = ack->outcome == frame::ActivateOutcome::kReady;
    }
  }
  void on_written(const frame::Frame& written) override {
    if (const auto* activate = std::get_if<frame::Activate>(&written.payload)) {
      activated_ = *activate;
    } else if (const auto* open = std::get_if<frame::Open>(&written.payload)) {
      const auto* admitted = std::get_if<frame::AdmittedOp>(&open->authority);
      if (admitted == nullptr)
        return oracle_.violated("P-5: an OPEN to the bridge without AdmittedOp");
      if (!activated_ || !ready_) return oracle_.violated("BR-1: an OPEN to an unproven bridge");
      if (admitted->route != activated_->route || admitted->epoch != activated_->epoch) {
        return oracle_.violated(
            "P-10: " + describe(admitted->route) + " epoch " + std::to_string(admitted->epoch) +
            " was forwarded on the bridge connection of " + describe(activated_->route) +
            " epoch " + std::to_string(activated_->epoch));
      }
      const auto request = oracle_.requests_.find(open->request);
      if (request == oracle_.requests_.end() || request->second.selected != admitted->route) {
        return oracle_.violated("ID-4: forwarded to " + describe(admitted->route) +
                                ", which the capability did not select");
      }
      oracle_.forwarding(worker_, admitted->route, "OPEN to the guest");
      streams_[written.stream] = *admitted;
      if (auto* operation = oracle_.find(tag_of(*open))) {
        operation->forwarded_as.push_back(admitted->route);
      }
    } else if (std::holds_alternative<frame::Data>(written.payload) ||
               std::holds_alternative<frame::End>(written.payload)) {
      const auto at = streams_.find(written.stream);
      if (at == streams_.end()) return;
      oracle_.forwarding(worker_, at->second.route, "bytes to the guest");
      const auto lease = oracle_.leases_.find({worker_, at->second.lease});
      if (lease != oracle_.leases_.end() && lease->second.route == at->second.route &&
          clock_.now() > lease->second.deadline) {
        oracle_.violated("P-10: bytes to the guest for " + describe(at->second.route) +
                         " after the lease's deadline");
      }
    }
  }

 private:
  Oracle& oracle_;
  identity::WorkerId worker_;
  const WallClock& clock_;
  std::optional<frame::Activate> activated_;
  bool ready_ = false;
  std::map<frame::StreamId, frame::AdmittedOp> streams_;
};

std::shared_ptr<FrameObserver> Oracle::gateway_leg() { return std::make_shared<GatewayLeg>(*this); }
std::shared_ptr<FrameObserver> Oracle::manager_leg(identity::WorkerId worker,
                                                   const WallClock& clock) {
  return std::make_shared<ManagerLeg>(*this, std::move(worker), clock);
}
std::shared_ptr<FrameObserver> Oracle::control_leg(identity::WorkerId worker) {
  return std::make_shared<ControlLeg>(*this, std::move(worker));
}
std::shared_ptr<FrameObserver> Oracle::bridge_leg(identity::WorkerId worker,
                                                  const WallClock& clock) {
  return std::make_shared<BridgeLeg>(*this, std::move(worker), clock);
}

}  // namespace space::sim
