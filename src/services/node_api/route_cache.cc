#include "services/node_api/route_cache.h"

namespace space::node_api {

RouteCache::Entry& RouteCache::touch(const identity::SandboxId& sandbox) {
  const auto [at, fresh] = entries_.try_emplace(sandbox);
  if (!fresh) {
    order_.splice(order_.begin(), order_, at->second.used);
    return at->second;
  }
  order_.push_front(sandbox);
  at->second.used = order_.begin();
  if (entries_.size() > capacity_) {
    entries_.erase(order_.back());
    order_.pop_back();
  }
  return at->second;
}

const Route* RouteCache::peek(const identity::SandboxId& sandbox) const {
  const auto at = entries_.find(sandbox);
  return at == entries_.end() || !at->second.route ? nullptr : &*at->second.route;
}

const Route* RouteCache::find(const identity::SandboxId& sandbox) {
  const auto at = entries_.find(sandbox);
  if (at == entries_.end() || !at->second.route) return nullptr;
  order_.splice(order_.begin(), order_, at->second.used);
  return &*at->second.route;
}

bool RouteCache::insert(const Route& route) {
  auto& entry = touch(route.identity.sandbox);
  if (route.identity.generation < entry.floor) return false;
  if (entry.route && entry.route->identity == route.identity &&
      route.attempt < entry.route->attempt) {
    return false;
  }
  entry.floor = route.identity.generation;
  entry.route = route;
  return true;
}

bool RouteCache::evict(const identity::RouteIdentity& refused, identity::Attempt attempt) {
  const auto at = entries_.find(refused.sandbox);
  if (at == entries_.end() || !at->second.route) return false;
  if (at->second.route->identity != refused || at->second.route->attempt != attempt) return false;
  at->second.route.reset();
  return true;
}

void RouteCache::learn_boot(const identity::RouteIdentity& route, const identity::BootNonce& boot) {
  const auto at = entries_.find(route.sandbox);
  if (at == entries_.end() || !at->second.route || at->second.route->identity != route) return;
  at->second.route->worker_boot = boot;
}

}  // namespace space::node_api
