#pragma once
#include <cstdint>
#include <string>

#include "adapters/asio/loop.h"
#include "ports/bridge.h"
#include "ports/log.h"

namespace space::bridge {

struct LauncherOptions {
  std::string program;  // spaced-host
  std::string
      folder;  // for the sockets it connects back to; made with mode 0700, emptied at first use
  std::uint32_t uid = 0;  // spaced-host runs as it; not 0
};

// Bridges as processes of their own (P-21): dials and verifies the guest (guest_dial.h), starts
// spaced-host without privileges, and takes the one connection of exactly that process: its pid and
// uid by peer credentials, its identity by pidfd, its executable by inode. Needs root. Evidence:
// "basic".
//
// The stream of a link ends the process when it is closed or destroyed.
class BridgeProcessLauncher final : public BridgeLauncher {
 public:
  // `loop` and `log` outlive this object and every link.
  BridgeProcessLauncher(asio::Loop& loop, Log& log, LauncherOptions options);
  Task<std::expected<BridgeLink, BridgeError>> launch(BridgeTarget target,
                                                      MonoTime deadline) override;

 private:
  asio::Loop& loop_;
  Log& log_;
  LauncherOptions options_;
  bool folder_ready_ = false;
  std::uint64_t next_ = 1;
};

}  // namespace space::bridge
