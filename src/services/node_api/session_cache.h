#pragma once
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/time.h"
#include "core/identity/ids.h"
#include "core/identity/sha256.h"

namespace space::node_api {

// With less than this left of a session, the caller's credential is presented again.
inline constexpr std::chrono::milliseconds kSessionRefreshBefore{60'000};

// A native session: the cached result of authorising a caller, with its expiry (P-18).
struct Session {
  identity::SessionId id;
  identity::TeamId team;
  WallTime expires_at;
  std::optional<identity::SandboxId> sandbox{};  // the only one it may use; absent: the team's
  friend bool operator==(const Session&, const Session&) = default;
};

// Sessions by the hash of the credential that opened them; the credential itself is not kept.
// Nothing in here extends an expiry: only a new answer of the control plane replaces an entry
// (RC-4). Pure; owned by one loop; holds at most `capacity`, the oldest goes first.
class SessionCache {
 public:
  explicit SessionCache(std::size_t capacity = 4096) : capacity_(capacity) {}

  // The session while at least kSessionRefreshBefore is left of it, else null. Valid until the next
  // change.
  const Session* find(std::string_view credential, WallTime now) const;
  void insert(std::string_view credential, const Session& session);
  void erase_session(const identity::SessionId& session);
  std::size_t size() const { return entries_.size(); }

 private:
  using Key = StrongBytes<struct CredentialHashTag, identity::kSha256Bytes>;
  struct Entry {
    Session session;
    std::list<Key>::iterator age;
  };
  static Key key_of(std::string_view credential);

  std::size_t capacity_;
  std::unordered_map<Key, Entry> entries_;
  std::list<Key> order_;  // oldest first
};

}  // namespace space::node_api
