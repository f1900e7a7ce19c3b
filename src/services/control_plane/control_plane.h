#pragma once
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/secret.h"
#include "core/wire/messages.h"
#include "ports/control_store.h"
#include "ports/signer.h"
#include "ports/stream.h"
#include "services/control_plane/driver.h"
#include "services/control_plane/list_cursor.h"
#include "services/control_plane/worker_link.h"

namespace space::control_plane {

inline constexpr std::chrono::milliseconds kSessionLifetime{600'000};  // P-18
inline constexpr std::uint32_t kMaxTimeoutSeconds = 86'400;
inline constexpr std::uint32_t kDefaultTimeoutSeconds = 300;
inline constexpr std::size_t kMaxNodeApiConnections = 64;
// Of a sandbox's metadata and environment together, 8 bytes counted for each pair: so much fits
// every record they travel in.
inline constexpr std::size_t kMaxVariableBytes = 12 * 1024;

// Makes the access tokens of sandboxes. Another key makes other tokens: the old ones end.
inline constexpr std::size_t kAccessKeyBytes = 32;
using AccessKey = Secret<kAccessKeyBytes>;

struct Options {
  identity::Issuer issuer;
  AccessKey access_key;
  identity::OwnerId owner;  // this replica's name in lifecycle operations
  std::vector<WorkerOptions> workers;
  std::map<std::uint32_t, identity::HolderId> holders;  // peer uid -> the node-api's key (P-1)
  BootClock::duration tick = std::chrono::milliseconds(500);  // of expiry and revocation
  BootClock::duration start_patience =
      std::chrono::seconds(1);  // start() waits so long for workers
  WorkerLink::Timing timing = {};
  Driver::Limits limits = {};
};

// Maps sandbox -> execution -> worker, authorises callers, mints capabilities, drives lifecycle and
// distributes key bundles. Everything it must not forget is in the store; a new object over the
// same store goes on where the last one stopped (C006). Owned by one loop; every argument outlives
// it.
class ControlPlane final : private WorkerLink::Owner {
 public:
  ControlPlane(ControlStore& store, Dialer& dialer, Timer& timer, const WallClock& clock,
               Entropy& entropy, const Signer& signer, Log& log, Options options,
               FaultPoints& faults = no_faults());
  ~ControlPlane() override;

  // Reads or makes the key bundle, connects to the workers and takes up unfinished operations. The
  // error is for people; nothing runs then.
  Task<std::expected<void, std::string>> start();
  // Serves node-apis until the listener is closed. After start().
  Task<void> serve(Listener& listener);
  // Ends every connection and task; nothing is rolled back. To be awaited before destruction.
  Task<void> stop();

  // Makes an API key for the team and returns it: the only time it exists in clear.
  static Task<StoreResult<std::string>> create_api_key(ControlStore& store, Entropy& entropy,
                                                       identity::TeamId team, WallTime now);

 private:
  using Answer = std::expected<Bytes, fleet::Refusal>;
  using Found = std::expected<fleet::Snapshot, fleet::Refusal>;

  // WorkerLink::Owner
  identity::KeyBundle current_bundle() override;
  Task<void> bundle_refused(identity::BundleVersion version) override;
  Task<void> worker_seen(WorkerLink& link) override;

  Task<std::expected<void, std::string>> prepare_bundle();
  Task<std::expected<void, std::string>> prepare_access();
  Task<void> check_serving(WorkerLink& link);
  Task<void> tick();
  Task<void> end_lives(WallTime now);
  Task<void> serve_node_api(std::unique_ptr<Stream> stream);
  Task<void> answer(std::shared_ptr<hop::Channel> channel, frame::Open open,
                    identity::HolderId holder);
  Task<Answer> handle(policy::Operation operation, Bytes metadata, identity::HolderId holder);

  // Each handles one operation for an authenticated holder.
  Task<Answer> on_session_open(wire::SessionOpenRequest request, identity::HolderId holder);
  Task<Answer> on_create(wire::SandboxCreateRequest request, SessionRow session);
  Task<Answer> on_list(wire::SandboxListRequest request, SessionRow session);
  Task<Answer> on_get(wire::SandboxRequest request, SessionRow session);
  Task<Answer> on_kill(wire::SandboxRequest request, SessionRow session);
  Task<Answer> on_set_timeout(wire::SandboxTimeoutRequest request, SessionRow session);
  Task<Answer> on_pause(wire::SandboxPauseRequest request, SessionRow session);
  Task<Answer> on_resume(wire::SandboxResumeRequest request, SessionRow session);
  Task<Answer> on_move(wire::SandboxMoveRequest request, SessionRow session);
  Task<Answer> on_route(wire::SandboxRequest request, SessionRow session);
  Task<Answer> on_resolve(wire::RouteResolveRequest request, SessionRow session);
  Task<Answer> on_mint(wire::CapabilityMintRequest request, identity::HolderId holder);
  Task<Answer> on_platform_status(wire::PlatformStatusRequest request, SessionRow session);

  // Which sessions a handler serves.
  enum class Serves : std::uint8_t { kTeams, kTeamsAndSandboxes };
  template <class Request>
  Task<Answer> with_session(Bytes metadata, identity::HolderId holder,
                            Task<Answer> (ControlPlane::*handler)(Request, SessionRow),
                            Serves serves = Serves::kTeams);

  // A sandbox of the session, killed ones included; any other is kNotFound like an unknown one
  // (C023).
  Task<Found> load(identity::SandboxId sandbox, SessionRow session);
  // With its access token.
  wire::SandboxInfo full_info(const fleet::Snapshot& snapshot) const;
  Task<Answer> info_of(identity::SandboxId sandbox, SessionRow session);
  Task<Answer> info_in(identity::SandboxId sandbox, SessionRow session, wire::SandboxState wanted);
  std::string access_token(const identity::SandboxId& sandbox) const;
  Task<std::expected<identity::WorkerId, fleet::Refusal>> choose_worker(
      std::optional<identity::WorkerId> wish, std::optional<identity::WorkerId> except);
  // Refuses with the reason when the worker cannot be reached now.
  OperationResult need_worker(const identity::WorkerId& worker);
  fleet::Operation new_operation(fleet::OperationKind kind);
  WorkerLink* link(const identity::WorkerId& worker);

  ControlStore& store_;
  Timer& timer_;
  const WallClock& clock_;
  Entropy& entropy_;
  const Signer& signer_;
  Log& log_;
  Options options_;
  ListCursors cursors_;
  identity::BootNonce boot_;
  identity::KeyBundle bundle_;
  std::vector<std::unique_ptr<WorkerLink>> links_;
  struct Seen {
    std::string runtime;
    std::string evidence;
    identity::BootNonce boot;
    identity::BundleVersion bundle;
    bool up = false;
  };
  std::map<identity::WorkerId, Seen> seen_;
  std::list<hop::Connection*> node_apis_;
  Notifier stopping_changed_;
  bool stopping_ = false;
  TaskScope tasks_;
  Driver driver_;
};

}  // namespace space::control_plane
