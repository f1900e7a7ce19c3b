#pragma once
#include <memory>
#include <string>

#include "adapters/asio/loop.h"
#include "adapters/tls/engine.h"
#include "ports/log.h"
#include "ports/stream.h"

namespace space::tls {

inline constexpr BootClock::duration kHandshakeTime = std::chrono::seconds(5);
// Handshakes of one listener at a time, finished ones that wait for accept() included. One more
// ends the oldest unfinished, so that peers which connect and say nothing keep nobody out for long.
inline constexpr std::size_t kMaxHandshakes = 128;

// Connects to `tls:HOST:PORT`, HOST an IP address ([v6] in brackets) or a name. The address only
// locates: the stream's identity() says who answered, and the caller judges that before it sends.
// Errors: those of error.h, of the network, timed_out, invalid_argument (the address).
//
// A stream ends when the peer's certificate does (plus the tolerance), with operation_canceled.
class TlsDialer final : public Dialer {
 public:
  // Both outlive the dialler and its streams.
  TlsDialer(asio::Loop& loop, const Party& party, Protocol protocol = Protocol::kHop)
      : loop_(loop), party_(party), protocol_(protocol) {}
  Task<IoResult<std::unique_ptr<Stream>>> dial(std::string address, MonoTime deadline) override;

 private:
  asio::Loop& loop_;
  const Party& party_;
  Protocol protocol_;
};

// Listens at `tls:ADDRESS:PORT`, ADDRESS an IP address. accept() returns connections whose
// handshake is done; those that fail are logged, at most one line a second. Loop, party and log
// outlive the listener and its streams.
IoResult<std::unique_ptr<Listener>> listen_tls(asio::Loop& loop, const Party& party, Log& log,
                                               const std::string& address,
                                               Protocol protocol = Protocol::kHop);
// The address of a listener of listen_tls, with the port the kernel chose for port 0.
std::string address_of(const Listener& listener);

// Picks the dialler by the scheme of the address; invalid_argument for any other. All outlive it.
class DialerByScheme final : public Dialer {
 public:
  DialerByScheme(Dialer& unix_sockets, Dialer& tls) : unix_(unix_sockets), tls_(tls) {}
  Task<IoResult<std::unique_ptr<Stream>>> dial(std::string address, MonoTime deadline) override;

 private:
  Dialer& unix_;
  Dialer& tls_;
};

}  // namespace space::tls
