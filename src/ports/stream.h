#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "core/identity/peer.h"
#include "ports/clock.h"
#include "ports/task.h"

namespace space {

// Who is at the other end of a local connection, from the kernel. For an accepted connection: the
// task that connected; for a dialled one: the task that called listen().
struct PeerCredentials {
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

// A byte stream both ways. One read and one write may be pending at a time.
class Stream {
 public:
  virtual ~Stream() = default;  // closes
  // Reads 1..buffer.size() bytes; 0 means orderly end. `buffer` outlives the task.
  // Errors: connection_reset; operation_canceled after close().
  virtual Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) = 0;
  // Writes all of `data`, which outlives the task, or fails; after a failure the stream is
  // unusable.
  virtual Task<IoResult<void>> write_all(ByteView data) = 0;
  // Ends both directions now; pending operations complete with operation_canceled. Idempotent.
  virtual void close() = 0;
  // Ends both directions so that the peer discards what it has not read yet, where the transport
  // can (P-14).
  virtual void reset() { close(); }
  virtual std::optional<PeerCredentials> peer() const { return std::nullopt; }
  // Who is at the other end of a mutually authenticated connection, checked when it was made
  // (TR-3); nullopt on every other transport.
  virtual std::optional<identity::PeerIdentity> identity() const { return std::nullopt; }
};

// Accepts connections at one address until closed.
class Listener {
 public:
  virtual ~Listener() = default;  // closes
  virtual Task<IoResult<std::unique_ptr<Stream>>> accept() = 0;
  virtual void close() = 0;
};

// Connects to an address: `unix:PATH` (PATH relative to the working directory or absolute, of any
// length), `tls:HOST:PORT`, in simulation `sim:NODE/NAME`.
class Dialer {
 public:
  virtual ~Dialer() = default;
  virtual Task<IoResult<std::unique_ptr<Stream>>> dial(std::string address, MonoTime deadline) = 0;
};

}  // namespace space
