#pragma once
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/identity/runtime_record.h"
#include "ports/stream.h"

namespace space {

// Why an endpoint was not accepted as the bridge or the guest of this execution (BR-1, BR-2).
enum class BridgeError : std::uint8_t {
  kNoListener,        // nothing listens at the recorded path
  kPathChanged,       // the socket at the path is not the recorded inode
  kWrongPeerProcess,  // the listener belongs to another process
  kProcessGone,       // the recorded process ended, or its pid was reused
  kExecutableChanged,
  kBridgeNotStarted,  // spaced-host could not be started
  kWrongBridgePeer,   // the process that connected is not the spaced-host just started
  kTimedOut,
};
inline std::string_view to_string(BridgeError error) {
  switch (error) {
    case BridgeError::kNoListener:
      return "no_listener";
    case BridgeError::kPathChanged:
      return "path_changed";
    case BridgeError::kWrongPeerProcess:
      return "wrong_peer_process";
    case BridgeError::kProcessGone:
      return "process_gone";
    case BridgeError::kExecutableChanged:
      return "executable_changed";
    case BridgeError::kBridgeNotStarted:
      return "bridge_not_started";
    case BridgeError::kWrongBridgePeer:
      return "wrong_bridge_peer";
    case BridgeError::kTimedOut:
      return "timed_out";
  }
  std::unreachable();
}

// The leg to one spaced-host, whose process was verified. Destroying the link ends the process.
struct BridgeLink {
  std::unique_ptr<Stream> stream;
  identity::ProcessIdentity process;
  std::string evidence;  // "basic" until the full chain exists (DESIGN 9)
};

struct BridgeTarget {
  identity::RouteIdentity route;
  identity::ProcessIdentity guest_process;
  identity::TransportIdentity transport;
};

// Makes one bridge connection: dials the guest's listener, verifies it with kernel evidence, starts
// an unprivileged spaced-host that inherits the connected, unread descriptor (P-21), and verifies
// that the process which connects back is that one. Each call is a new connection that passes
// everything (BR-3).
class BridgeLauncher {
 public:
  virtual ~BridgeLauncher() = default;
  virtual Task<std::expected<BridgeLink, BridgeError>> launch(BridgeTarget target,
                                                              MonoTime deadline) = 0;
};

}  // namespace space
