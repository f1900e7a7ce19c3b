#include "services/node_api/capability_cache.h"

#include <utility>

namespace space::node_api {
namespace {

std::string canonical(const CapabilityKey& key) {
  ByteWriter out;
  out.raw(key.session.view());
  identity::write_route_identity(out, key.route);
  out.u32(key.attempt.value);
  out.u8(std::to_underlying(key.purpose));
  out.u16(key.access.bits);
  out.u16(key.port.value_or(0));
  out.u8(key.protocol ? std::to_underlying(*key.protocol) : std::uint8_t{0});
  return to_text(out.view());
}

}  // namespace

const CachedCapability* CapabilityCache::find(const CapabilityKey& key, WallTime now) const {
  const auto at = entries_.find(canonical(key));
  if (at == entries_.end()) return nullptr;
  if (at->second.capability.expires_at - now < kCapabilityRefreshBefore) return nullptr;
  return &at->second.capability;
}

void CapabilityCache::insert(const CapabilityKey& key, CachedCapability capability) {
  auto name = canonical(key);
  if (const auto at = entries_.find(name); at != entries_.end()) erase(at);
  if (entries_.size() >= capacity_) erase(entries_.find(order_.front()));
  order_.push_back(name);
  entries_.emplace(std::move(name),
                   Entry{std::move(capability), key.session, std::prev(order_.end())});
}

void CapabilityCache::erase(const CapabilityKey& key) {
  if (const auto at = entries_.find(canonical(key)); at != entries_.end()) erase(at);
}

void CapabilityCache::erase(std::unordered_map<std::string, Entry>::iterator at) {
  order_.erase(at->second.age);
  entries_.erase(at);
}

void CapabilityCache::erase_session(const identity::SessionId& session) {
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto next = std::next(at);
    if (at->second.session == session) erase(at);
    at = next;
  }
}

}  // namespace space::node_api
