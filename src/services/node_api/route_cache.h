#pragma once
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/identity/route_identity.h"

namespace space::node_api {

// The selected execution of a sandbox and where its worker listens. No authority in it (P-17).
struct Route {
  identity::RouteIdentity identity;
  identity::Attempt attempt{1};
  std::string endpoint;
  identity::BootNonce
      worker_boot;  // of the manager, as last seen; says which connection reaches it
  friend bool operator==(const Route&, const Route&) = default;
};

// Routes by sandbox (P-17). Pure; owned by one loop. Holds at most `capacity` sandboxes, the least
// recently used goes first.
class RouteCache {
 public:
  explicit RouteCache(std::size_t capacity = 16'384) : capacity_(capacity) {}

  // The cached route, or null. Valid until the next call that changes the cache.
  const Route* find(const identity::SandboxId& sandbox);
  // The same without counting as a use.
  const Route* peek(const identity::SandboxId& sandbox) const;

  // Keeps `route` unless a higher generation or attempt is cached, or a higher generation was
  // refused: a late look-up never lowers what is known. True when the cache holds `route`
  // afterwards.
  bool insert(const Route& route);

  // Removes the entry while it still holds exactly the refused route: a late refusal never evicts a
  // newer entry (RC-3). True when it was removed.
  bool evict(const identity::RouteIdentity& refused, identity::Attempt attempt);

  // Notes that the manager of this very route runs under another boot nonce now. Changes nothing
  // else.
  void learn_boot(const identity::RouteIdentity& route, const identity::BootNonce& boot);

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::optional<Route> route;  // absent after an eviction
    identity::Generation floor;  // insertion below it is refused
    std::list<identity::SandboxId>::iterator used;
  };
  Entry& touch(const identity::SandboxId& sandbox);

  std::size_t capacity_;
  std::unordered_map<identity::SandboxId, Entry> entries_;
  std::list<identity::SandboxId> order_;  // most recently used first
};

}  // namespace space::node_api
