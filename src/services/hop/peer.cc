#include "services/hop/peer.h"

namespace space::hop {

bool is(const Stream& stream, const ExpectedPeer& expected) {
  if (const auto identity = stream.identity()) {
    return identity->role == expected.role &&
           (expected.id.empty() || identity->id.text() == expected.id) &&
           (!expected.key || identity->key == *expected.key);
  }
  if (!expected.uid) return true;
  const auto credentials = stream.peer();
  return credentials && credentials->uid == *expected.uid;
}

std::optional<identity::HolderId> holder_at(
    const Stream& stream, const std::map<std::uint32_t, identity::HolderId>& by_uid) {
  if (const auto identity = stream.identity()) {
    if (identity->role != identity::PeerRole::kNodeApi) return std::nullopt;
    return identity->key;
  }
  const auto credentials = stream.peer();
  const auto at = credentials ? by_uid.find(credentials->uid) : by_uid.end();
  if (at == by_uid.end()) return std::nullopt;
  return at->second;
}

std::string describe_peer(const Stream& stream) {
  if (const auto identity = stream.identity()) {
    return std::string(to_string(identity->role)) + " " + identity->id.text();
  }
  const auto credentials = stream.peer();
  return credentials ? "uid " + std::to_string(credentials->uid) : "unknown";
}

}  // namespace space::hop
