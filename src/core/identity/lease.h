#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "core/identity/capability.h"

namespace space::identity {

// (manager boot nonce, counter) at one receiver for one sandbox (PROTOCOL.md "Words"). Local: never
// compared across receivers, never in a capability.
struct Epoch {
  BootNonce boot;
  std::uint64_t counter = 0;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

// Why a lease ended (P-11).
enum class LeaseEnd : std::uint8_t {
  kReplaced = 1,  // another route or generation was installed
  kRetired,       // its execution was retired
  kExpired,       // capability expiry + tolerance passed without a renewal
  kSessionRevoked,
  kKeyCompromised,
  kWorkerFenced,
  kDraining,  // a pause or stop cuts it
  kReleased,  // the operation ended by itself
};
std::string_view to_string(LeaseEnd end);

struct Lease {
  LeaseId id;
  SandboxId sandbox;
  Epoch epoch;
  RouteIdentity route;
  SessionId session;
  HolderId holder;
  AccessSet access;
  KeyId key;
  WallTime deadline;  // capability expiry + tolerance
  Purpose purpose = Purpose::kControl;
  std::optional<std::uint16_t> port;
  std::optional<PortProtocol> protocol;
  std::optional<ConstraintHash> constraint;
  KeyId renewal_key;  // signed the capability the deadline comes from; `key` signed the opening's
};

// Every operation's right to go on, at one receiver. A value owned by one loop: an opening
// compares, takes the lease and captures the epoch in one turn (P-10). Calling `take` twice in a
// turn is fine; the table calls nothing back, it returns what ended and the caller cuts.
class LeaseTable {
 public:
  // `claims` must be those of a VerifiedCapability that compared as Match in this very turn. The
  // tolerance counts as at most kMaxClockTolerance.
  LeaseId take(const Claims& claims, const Epoch& epoch, std::chrono::milliseconds tolerance);
  // The lease if it still holds at `now`: the check of every forward (P-10). Null after it ended.
  const Lease* live(LeaseId id, WallTime now) const;
  void release(LeaseId id);

  // Extends the deadline from a fresh capability; kSessionMismatch unless session, route, access,
  // purpose, port, protocol, constraint and holder are those of the lease (P-11), kExpired when the
  // lease does not hold any more. Never shortens.
  std::optional<DenyReason> renew(LeaseId id, const VerifiedCapability& fresh,
                                  std::chrono::milliseconds tolerance, WallTime now);

  // Each returns the ids that ended, in ascending order; they are gone from the table.
  std::vector<LeaseId> end_sandbox(const SandboxId& sandbox);
  std::vector<LeaseId> end_session(const SessionId& session);
  // Of a compromised key: what was opened or last renewed under it (P-6).
  std::vector<LeaseId> end_key(KeyId key);
  std::vector<LeaseId> end_expired(WallTime now);
  std::vector<LeaseId> end_all();

  std::size_t size() const { return leases_.size(); }
  std::size_t count(const SandboxId& sandbox) const;
  std::optional<WallTime> next_deadline() const;

 private:
  std::vector<LeaseId> end_where(const std::function<bool(const Lease&)>& matches);
  std::uint64_t next_ = 1;
  std::map<LeaseId, Lease> leases_;
  std::set<std::pair<WallTime, LeaseId>> by_deadline_;
};

}  // namespace space::identity
