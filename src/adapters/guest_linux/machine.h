#pragma once
#include <memory>
#include <string>

#include "adapters/asio/loop.h"
#include "ports/guest.h"

namespace space::guest_linux {

class LinuxClock final : public GuestClock {
 public:
  void set(WallTime now) override;
};

// Brings the loopback interface up. The error when that was refused.
std::error_code bring_loopback_up();

// The boot id of this kernel; empty when it cannot be read.
std::string boot_id();

// Binds `name` in an open folder and listens, with a backlog of 128 (VM.md 3). Closes `folder`. The
// socket's mode lets its owner alone connect.
IoResult<std::unique_ptr<Listener>> listen_in(asio::Loop& loop, int folder,
                                              const std::string& name);

}  // namespace space::guest_linux
