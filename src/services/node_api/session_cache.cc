#include "services/node_api/session_cache.h"

namespace space::node_api {

SessionCache::Key SessionCache::key_of(std::string_view credential) {
  return *Key::from(identity::sha256(as_bytes(credential)));
}

const Session* SessionCache::find(std::string_view credential, WallTime now) const {
  const auto at = entries_.find(key_of(credential));
  if (at == entries_.end()) return nullptr;
  if (at->second.session.expires_at - now < kSessionRefreshBefore) return nullptr;
  return &at->second.session;
}

void SessionCache::insert(std::string_view credential, const Session& session) {
  const auto key = key_of(credential);
  if (const auto at = entries_.find(key); at != entries_.end()) {
    at->second.session = session;
    order_.splice(order_.end(), order_, at->second.age);
    return;
  }
  if (entries_.size() >= capacity_) {
    entries_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(key);
  entries_.emplace(key, Entry{session, std::prev(order_.end())});
}

void SessionCache::erase_session(const identity::SessionId& session) {
  for (auto at = entries_.begin(); at != entries_.end();) {
    if (at->second.session.id == session) {
      order_.erase(at->second.age);
      at = entries_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace space::node_api
