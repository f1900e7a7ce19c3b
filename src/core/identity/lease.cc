#include "core/identity/lease.h"

#include <algorithm>
#include <utility>

namespace space::identity {
namespace {

WallTime deadline_of(const Claims& claims, std::chrono::milliseconds tolerance) {
  return claims.expires_at +
         std::clamp(tolerance, std::chrono::milliseconds{0}, kMaxClockTolerance);
}

// P-11: a renewal widens nothing. The attempt may differ (P-12), the key may have been rotated.
bool same_right(const Lease& lease, const Claims& fresh) {
  return lease.session == fresh.session && lease.route == fresh.route &&
         lease.access == fresh.access && lease.purpose == fresh.purpose &&
         lease.holder == fresh.holder && lease.port == fresh.port &&
         lease.protocol == fresh.protocol && lease.constraint == fresh.constraint;
}

}  // namespace

std::string_view to_string(LeaseEnd end) {
  switch (end) {
    case LeaseEnd::kReplaced:
      return "replaced";
    case LeaseEnd::kRetired:
      return "retired";
    case LeaseEnd::kExpired:
      return "expired";
    case LeaseEnd::kSessionRevoked:
      return "session_revoked";
    case LeaseEnd::kKeyCompromised:
      return "key_compromised";
    case LeaseEnd::kWorkerFenced:
      return "worker_fenced";
    case LeaseEnd::kDraining:
      return "draining";
    case LeaseEnd::kReleased:
      return "released";
  }
  std::unreachable();
}

LeaseId LeaseTable::take(const Claims& claims, const Epoch& epoch,
                         std::chrono::milliseconds tolerance) {
  const LeaseId id{next_++};
  const auto deadline = deadline_of(claims, tolerance);
  leases_.emplace(id, Lease{.id = id,
                            .sandbox = claims.route.sandbox,
                            .epoch = epoch,
                            .route = claims.route,
                            .session = claims.session,
                            .holder = claims.holder,
                            .access = claims.access,
                            .key = claims.key,
                            .deadline = deadline,
                            .purpose = claims.purpose,
                            .port = claims.port,
                            .protocol = claims.protocol,
                            .constraint = claims.constraint,
                            .renewal_key = claims.key});
  by_deadline_.emplace(deadline, id);
  return id;
}

const Lease* LeaseTable::live(LeaseId id, WallTime now) const {
  const auto found = leases_.find(id);
  return found != leases_.end() && now < found->second.deadline ? &found->second : nullptr;
}

void LeaseTable::release(LeaseId id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  by_deadline_.erase({found->second.deadline, id});
  leases_.erase(found);
}

std::optional<DenyReason> LeaseTable::renew(LeaseId id, const VerifiedCapability& fresh,
                                            std::chrono::milliseconds tolerance, WallTime now) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || now >= found->second.deadline) return DenyReason::kExpired;
  auto& lease = found->second;
  if (!same_right(lease, fresh.claims())) return DenyReason::kSessionMismatch;
  const auto deadline = deadline_of(fresh.claims(), tolerance);
  if (deadline <= lease.deadline) return std::nullopt;
  by_deadline_.erase({lease.deadline, id});
  by_deadline_.emplace(deadline, id);
  lease.deadline = deadline;
  lease.renewal_key = fresh.claims().key;
  return std::nullopt;
}

std::vector<LeaseId> LeaseTable::end_sandbox(const SandboxId& sandbox) {
  return end_where([&](const Lease& lease) { return lease.sandbox == sandbox; });
}
std::vector<LeaseId> LeaseTable::end_session(const SessionId& session) {
  return end_where([&](const Lease& lease) { return lease.session == session; });
}
std::vector<LeaseId> LeaseTable::end_key(KeyId key) {
  return end_where(
      [&](const Lease& lease) { return lease.key == key || lease.renewal_key == key; });
}
std::vector<LeaseId> LeaseTable::end_all() {
  return end_where([](const Lease&) { return true; });
}

std::vector<LeaseId> LeaseTable::end_expired(WallTime now) {
  std::vector<LeaseId> ended;
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= now) {
    ended.push_back(by_deadline_.begin()->second);
    leases_.erase(ended.back());
    by_deadline_.erase(by_deadline_.begin());
  }
  std::ranges::sort(ended);
  return ended;
}

std::size_t LeaseTable::count(const SandboxId& sandbox) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      leases_, [&](const auto& entry) { return entry.second.sandbox == sandbox; }));
}

std::optional<WallTime> LeaseTable::next_deadline() const {
  if (by_deadline_.empty()) return std::nullopt;
  return by_deadline_.begin()->first;
}

std::vector<LeaseId> LeaseTable::end_where(const std::function<bool(const Lease&)>& matches) {
  std::vector<LeaseId> ended;
  for (auto it = leases_.begin(); it != leases_.end();) {
    if (!matches(it->second)) {
      ++it;
      continue;
    }
    ended.push_back(it->first);
    by_deadline_.erase({it->second.deadline, it->first});
    it = leases_.erase(it);
  }
  return ended;
}

}  // namespace space::identity
