#pragma once
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/identity/capability.h"

namespace space::node_api {

// A capability with less than this left is not used for a new opening.
inline constexpr std::chrono::milliseconds kCapabilityRefreshBefore{30'000};

// All that a capability is minted for (P-17). Two callers differ in their session and so never
// share one.
struct CapabilityKey {
  identity::SessionId session;
  identity::RouteIdentity route;
  identity::Attempt attempt{1};
  identity::Purpose purpose = identity::Purpose::kControl;
  identity::AccessSet access;
  std::optional<std::uint16_t> port;
  std::optional<identity::PortProtocol> protocol;
};

struct CachedCapability {
  Bytes sealed;
  WallTime expires_at;
};

// Sealed capabilities by what they were minted for. Pure; owned by one loop; holds at most
// `capacity`, the oldest goes first.
class CapabilityCache {
 public:
  explicit CapabilityCache(std::size_t capacity = 16'384) : capacity_(capacity) {}

  // The capability if at least kCapabilityRefreshBefore of its life is left, else null. Valid until
  // the next call that changes the cache.
  const CachedCapability* find(const CapabilityKey& key, WallTime now) const;
  void insert(const CapabilityKey& key, CachedCapability capability);
  // Forgets what was minted for this key, or for a session that ended.
  void erase(const CapabilityKey& key);
  void erase_session(const identity::SessionId& session);

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    CachedCapability capability;
    identity::SessionId session;
    std::list<std::string>::iterator age;
  };
  void erase(std::unordered_map<std::string, Entry>::iterator at);

  std::size_t capacity_;
  std::unordered_map<std::string, Entry> entries_;  // by the canonical bytes of the key
  std::list<std::string> order_;                    // oldest first
};

}  // namespace space::node_api
