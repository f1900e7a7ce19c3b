#pragma once
#include <memory>
#include <optional>
#include <string>

#include "base/secret.h"
#include "ports/entropy.h"
#include "ports/log.h"
#include "ports/stream.h"
#include "ports/task_scope.h"
#include "services/hop/connection.h"

namespace space::spaced_host {

// From CONNECT to OK; a frozen or booting guest does not answer.
inline constexpr BootClock::duration kConnectDeadline = std::chrono::seconds(4);
// For each of: the manager's ACTIVATE, the guest's HELLO and proof, REKEYED.
inline constexpr BootClock::duration kHandshakeDeadline = std::chrono::seconds(5);
// A fenced guest that does not answer is given up.
inline constexpr BootClock::duration kFenceDeadline = std::chrono::seconds(1);
// "OK <number>\n": at most this many bytes.
inline constexpr std::size_t kMaxConnectAnswer = 32;

// spaced-host: one verified connection to one guest (DESIGN 5.4). Awaits ACTIVATE, says CONNECT on
// the connected descriptor it was given, proves the guest and itself under the incarnation's secret
// (P-23), then carries operations both ways, or one REKEY and nothing else. What the guest may not
// send closes everything (P-20). Ends when either side ends; never reconnects (BR-3). Owned by one
// loop.
//
// Streams: the manager opens stream 2k here, which is stream 2k-1 at the guest. A stream is open on
// both legs or on none.
class Bridge {
 public:
  struct World {
    Timer& timer;
    Entropy& entropy;
    Log& log;
  };
  // `manager`: the connection this process dialled. `guest`: connected, nothing read or written
  // yet.
  Bridge(std::unique_ptr<Stream> manager, std::unique_ptr<Stream> guest, World world);
  ~Bridge();

  // Serves until either side ends. Call once.
  Task<void> run();
  // Ends both connections; run() completes soon after. Idempotent.
  void close();

 private:
  class FromManager;
  class FromGuest;
  using Outcome = hop::frame::ActivateOutcome;

  Task<std::optional<hop::frame::Activate>> await_activation();
  Task<Outcome> connect_guest();
  Task<Outcome> prove();
  Task<Outcome> rekey(hop::frame::Rekey rekey);
  Task<void> answer(Outcome outcome);
  Task<void> relay();
  // FENCED once the guest has taken all that was sent to it: nothing of it waits in a socket then.
  Task<void> fence();

  World world_;
  identity::BootNonce boot_;
  hop::Connection manager_;
  std::unique_ptr<Stream> guest_stream_;  // until OK was read
  std::unique_ptr<hop::Connection> guest_;
  hop::frame::Activate activation_;
  std::string boot_id_;
  TaskScope tasks_;
};

}  // namespace space::spaced_host
