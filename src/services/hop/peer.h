#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/identity/peer.h"
#include "ports/stream.h"

namespace space::hop {

// Who must be at the other end of a connection (TR-3): by the certificate where the transport has
// one, else by the uid of the process on this machine.
struct ExpectedPeer {
  identity::PeerRole role;
  std::string id;                         // in the certificate; empty: any
  std::optional<identity::HolderId> key;  // of the certificate; absent: any
  std::optional<std::uint32_t>
      uid;  // absent: not checked (a folder guards the socket, or simulated)
};
bool is(const Stream& stream, const ExpectedPeer& expected);

// The holder that a node-api at the other end is (P-1): the key in its certificate, else the one
// bound to its uid. nullopt: no node-api we know.
std::optional<identity::HolderId> holder_at(
    const Stream& stream, const std::map<std::uint32_t, identity::HolderId>& by_uid);

// The other end, for the log: "worker w3", "uid 0", "unknown".
std::string describe_peer(const Stream& stream);

}  // namespace space::hop
