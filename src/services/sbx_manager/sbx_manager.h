#pragma once
#include <cstdint>
#include <deque>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/identity/key_bundle.h"
#include "core/identity/lease.h"
#include "core/wire/messages.h"
#include "ports/bridge.h"
#include "ports/entropy.h"
#include "ports/log.h"
#include "ports/record_store.h"
#include "ports/runtime.h"
#include "ports/task_scope.h"
#include "services/hop/mux.h"
#include "services/sbx_manager/turns.h"

namespace space::sbx_manager {

namespace frame = wire::hop;

// An opening waits at most this long for a bridge connection.
inline constexpr BootClock::duration kBridgeWait = std::chrono::seconds(5);
// Making one: dial, spaced-host, CONNECT and proof.
inline constexpr BootClock::duration kBridgeDeadline = std::chrono::seconds(15);
// Between tries to prove a guest again after a restart.
inline constexpr BootClock::duration kRelaunchEvery = std::chrono::seconds(1);
// For a guest to take what was sent to it, before it is frozen.
inline constexpr BootClock::duration kFenceWait = std::chrono::seconds(2);
inline constexpr BootClock::duration kPeerHandshake = std::chrono::seconds(5);
inline constexpr std::size_t kMaxPeers = 256;  // connections of node-apis, and of the control plane
inline constexpr std::size_t kMaxEndedSessions = 4096;  // remembered, the newest
// A receiver further off the control plane's clock refuses everything (P-2).
inline constexpr std::chrono::milliseconds kMaxClockOffset{2'500};

struct Options {
  identity::WorkerId worker;
  std::chrono::milliseconds tolerance = identity::kMaxClockTolerance;  // P-2
  std::map<std::uint32_t, identity::HolderId>
      holders;  // uid of a node-api -> the key bound to it (P-1)
  std::uint32_t control_uid = 0;
  std::string runtime;            // for people: "crun 1.8.1"
  std::string evidence;           // how endpoints are verified: "basic"
  std::size_t max_streams = 512;  // per sandbox, waiting openings included (P-26)
};

// sbx-manager: holds the runtime records of one worker, verifies and compares every opening before
// a byte of it is forwarded (RCV-1), owns the leases, relays admitted operations over one verified
// bridge connection per epoch, and carries out the node operations of the control plane. Owned by
// one loop.
//
// Fails closed: no key bundle, an unhealthy clock, no record, a guest that cannot be proven:
// refused.
class SbxManager {
 public:
  // All outlive the manager.
  struct World {
    Runtime& runtime;
    BridgeLauncher& launcher;
    RecordStore& records;
    Timer& timer;
    const WallClock& clock;
    Entropy& entropy;
    const identity::SignatureVerifier& signatures;
    Log& log;
  };
  SbxManager(World world, Options options);
  SbxManager(const SbxManager&) = delete;
  SbxManager& operator=(const SbxManager&) = delete;
  ~SbxManager();

  // Loads the durable records and begins to prove each again (RCV-6). To be awaited before serving.
  Task<IoResult<void>> recover();
  // Serve connections until the listener is closed or fails. Peers are told apart by their uid.
  Task<void> serve_hop(Listener& listener);
  Task<void> serve_control(Listener& listener);
  // Ends every connection and task. Call before destruction.
  Task<void> stop();

  identity::BootNonce boot() const { return boot_; }
  // What is installed for a sandbox; null for nothing. Valid until the next turn.
  const identity::RuntimeRecord* installed(const identity::SandboxId& sandbox) const;
  const identity::LeaseTable& leases() const { return leases_; }
  wire::NodeStatusResult status(const std::optional<identity::SandboxId>& only) const;

 private:
  struct NodeApi;
  struct Bridge;
  struct Control;
  struct Operation;
  struct Sandbox;
  enum class Progress : std::uint8_t { kDone, kNeedsBridge, kNeedsRecord };
  struct BridgeFailure {
    std::string reason;
    bool lost = false;          // the execution cannot be what was recorded
    bool proof_failed = false;  // the guest does not know this secret
  };
  using BridgeResult = std::expected<std::shared_ptr<Bridge>, BridgeFailure>;
  using TurnPtr = std::unique_ptr<Turns::Turn>;

  // The next connection; null when the listener is closed. Waits out a lack of descriptors or
  // memory.
  Task<std::unique_ptr<Stream>> accept(Listener& listener);

  // ---- openings and relay (admission.cc) ----
  Task<void> serve_node_api(std::unique_ptr<Stream> stream, identity::HolderId holder);
  void open(const std::shared_ptr<NodeApi>& peer, frame::StreamId stream, frame::Open open);
  Task<void> open_later(std::shared_ptr<NodeApi> peer, frame::StreamId stream, frame::Open open,
                        Progress progress);
  Progress advance(NodeApi& peer, frame::StreamId stream, frame::Open& open, bool record_read);
  Progress refuse(NodeApi& peer, frame::StreamId stream, const frame::Open& open,
                  frame::Refused refused);
  void renew(Operation& operation, const frame::Renew& renew);
  bool holds(Operation& operation);
  void from_node_api(Operation& operation, frame::Payload payload);
  void from_bridge(Operation& operation, frame::Payload payload);
  void bridge_over(Bridge& bridge, hop::CloseCause cause);
  void finish(Operation& operation);
  void cut(const std::vector<identity::LeaseId>& ended, identity::LeaseEnd reason);
  Task<void> expire_leases();
  identity::VerifyContext context(const identity::HolderId& holder,
                                  policy::Operation operation) const;
  bool session_ended(const identity::SessionId& session) const;

  // ---- bridge connections (bridges.cc) ----
  void launch(Sandbox& sandbox);
  Task<void> launch_task(Sandbox& sandbox);
  Task<void> relaunch(Sandbox& sandbox);
  Task<std::expected<void, BridgeFailure>> inspect_again(Sandbox& sandbox);
  Task<BridgeResult> connect(Sandbox& sandbox, BridgeTarget target, std::uint64_t epoch,
                             GuestSecret secret, std::optional<frame::Rekey> rekey,
                             std::string boot_id);
  Task<void> run_bridge(std::shared_ptr<Bridge> bridge);
  void end_bridge(Sandbox& sandbox);
  Task<void> fence_bridge(Sandbox& sandbox);
  void lose(Sandbox& sandbox, const std::string& reason);

  // ---- the control plane's requests (control.cc) ----
  Task<void> serve_control_peer(std::unique_ptr<Stream> stream);
  void request(const std::shared_ptr<Control>& peer, frame::StreamId stream,
               frame::Payload payload);
  Task<void> answer_install(std::shared_ptr<Control> peer, frame::StreamId stream,
                            frame::Install install, MonoTime received);
  Task<void> answer_retire(std::shared_ptr<Control> peer, frame::StreamId stream,
                           frame::Retire retire);
  Task<void> answer_bundle(std::shared_ptr<Control> peer, frame::StreamId stream,
                           frame::Bundle bundle);
  Task<frame::Installed> install(frame::Install install, MonoTime received);
  Task<frame::Installed> replace(Sandbox& sandbox, identity::RuntimeRecord next, GuestSecret secret,
                                 MonoTime deadline);
  Task<frame::Installed> reprove(Sandbox& sandbox);
  Task<std::optional<frame::Retired>> retire(frame::Retire retire);
  Task<std::optional<frame::BundleAck>> install_bundle(frame::Bundle bundle);
  frame::LeaseAck renew_worker_lease(const frame::Lease& lease);
  void end_session(const identity::SessionId& session);
  frame::Installed outcome(const Sandbox& sandbox, frame::InstallOutcome outcome,
                           std::string detail = {}) const;

  // ---- node operations (node_operations.cc) ----
  Task<void> operate(std::shared_ptr<Control> peer, std::shared_ptr<hop::Channel> channel,
                     frame::Open open);
  Task<frame::End> node_start(Bytes metadata);
  Task<frame::End> node_freeze(Bytes metadata);
  Task<frame::End> node_thaw(Bytes metadata);
  Task<frame::End> node_publish(Bytes metadata);
  Task<frame::End> node_destroy(Bytes metadata);
  Task<void> node_status(std::shared_ptr<hop::Channel> channel, Bytes metadata);
  Task<BridgeResult> rekey(Sandbox& sandbox, RuntimeInstance instance,
                           wire::NodeThawRequest request);

  World world_;
  Options options_;
  identity::BootNonce boot_;
  identity::KeyRing keys_;
  identity::SignatureCache signatures_;
  identity::LeaseTable leases_;
  bool clock_healthy_ = true;
  std::deque<std::pair<MonoTime, identity::SessionId>> ended_sessions_;  // oldest first
  std::uint64_t last_epoch_ = 0;
  std::map<identity::SandboxId, Sandbox> sandboxes_;  // entries stay, for their floor
  std::map<identity::LeaseId, std::unique_ptr<Operation>> operations_;
  // In the order they came.
  std::vector<NodeApi*> node_apis_;
  std::vector<Bridge*> bridges_;
  std::vector<Control*> controls_;
  bool stopping_ = false;
  Notifier lease_taken_;
  Turns turns_;
  TaskScope tasks_;
};

}  // namespace space::sbx_manager
