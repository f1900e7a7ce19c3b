#pragma once
#include <memory>
#include <optional>
#include <string>

#include "adapters/asio/loop.h"
#include "services/hop/mux.h"

// A hop client for tests and demonstrations: it speaks the private protocol to real processes, as
// any part would, and needs no hook in them.
namespace space::probe {

namespace frame = wire::hop;

// One connection to a part, shaken hands and served in the background.
class Leg {
 public:
  Leg(asio::Loop& loop, std::unique_ptr<Stream> stream, frame::Role self, frame::Role peer);
  ~Leg();
  Task<bool> start();
  // Closes and waits for the background tasks.
  Task<void> stop();
  hop::Mux& mux() { return *mux_; }
  const frame::Hello& peer() const { return connection_.peer(); }

 private:
  asio::Loop& loop_;
  hop::Connection connection_;
  std::unique_ptr<hop::Mux> mux_;
  TaskScope scope_;
};

// Null when it cannot be reached or does not shake hands.
Task<std::unique_ptr<Leg>> connect(asio::Loop& loop, std::string address, frame::Role self,
                                   frame::Role peer);

// What a receiver answered to an OPEN.
struct Verdict {
  std::optional<frame::Admitted> admitted;
  std::optional<frame::Refused> refused;
  std::string
      text;    // "admitted", "refresh stale", "denied expired", "unavailable draining", "lost"
  Bytes data;  // everything received when admitted
  std::optional<frame::End> end;
};
Task<Verdict> present(Leg& leg, Bytes sealed, identity::SandboxId addressed,
                      policy::Operation operation, Bytes metadata);

}  // namespace space::probe
