#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/wire/hop.h"
#include "core/wire/legality.h"
#include "ports/notifier.h"
#include "ports/stream.h"
#include "ports/task_scope.h"

namespace space::hop {

namespace frame = wire::hop;

// Why a connection ended.
enum class CloseCause : std::uint8_t {
  kLocal,     // close() here
  kPeer,      // the peer closed or the transport failed
  kProtocol,  // the peer broke the codec or the legality table (P-20)
  kDeadPeer,  // nothing arrived for kDeadPeerAfter
  kOverflow,  // more than kMaxQueuedBytes waited to be written: the peer does not read
};
std::string_view to_string(CloseCause cause);

inline constexpr BootClock::duration kPingEvery = std::chrono::seconds(5);
inline constexpr BootClock::duration kDeadPeerAfter = std::chrono::seconds(15);
inline constexpr std::size_t kMaxQueuedBytes = 64U << 20;  // per connection
inline constexpr std::size_t kMaxWriteBytes = 256U << 10;  // handed to the transport at once

// Receives what arrives on a connection, in order, in the turn in which it was decoded. Frames are
// legal (ConnectionRules) and not discarded ones.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Any frame but DATA.
  virtual void on_frame(frame::Frame received) = 0;
  // DATA; the bytes are valid during the call.
  virtual void on_data(frame::StreamId stream, frame::DataView data) = 0;
  // Called once, last, when the connection is over; no frame follows.
  virtual void on_close(CloseCause cause) = 0;
};

// One hop connection from one end: codec, legality, keep-alive, and a write queue that sends
// everything queued in a turn with one write. Knows nothing of operations. Owned by one loop;
// outlives its run().
class Connection {
 public:
  struct Options {
    frame::Role self;
    frame::Role peer;      // any other role in HELLO closes
    bool dialled = false;  // this end dialled
    std::string id;        // ours, told in HELLO
    identity::BootNonce boot;
    bool pings = true;  // false on the guest's side, which may only answer (P-20)
  };
  Connection(std::unique_ptr<Stream> stream, Timer& timer, Options options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  // Sends HELLO and awaits the peer's. Errors: timed_out; protocol_error for a wrong version, role
  // or operation table; those of the stream.
  Task<IoResult<frame::Hello>> handshake(MonoTime deadline);
  // One more frame of stream 0 before run(): CHALLENGE and the like. Same errors.
  Task<IoResult<frame::Frame>> read_frame(MonoTime deadline);
  // Moves frames until the connection ends. Call once, after the handshake. `sink` outlives it.
  Task<void> run(FrameSink& sink);

  // Queues a frame. Illegal frames abort (a bug of ours). After the end: nothing.
  void send(frame::Frame to_send);
  // Queues DATA for the next offset of the stream. The caller keeps within `send_window`.
  void send_data(frame::StreamId stream, ByteView bytes);
  // Drops DATA of `stream` that was queued but not yet handed to the transport (P-14).
  void discard(frame::StreamId stream);
  // Ends the connection now: nothing more is delivered, run() completes soon after. Idempotent.
  void close(CloseCause cause = CloseCause::kLocal);
  // Waits until everything queued so far was handed to the transport, or the connection ended.
  Task<void> drained();
  // Completes when the peer has taken everything sent so far: true. False when the connection ended
  // or the deadline passed. Only while run() runs, on an end that pings.
  Task<bool> round_trip(MonoTime deadline);

  bool closed() const { return cause_.has_value(); }
  frame::ConnectionRules& rules() { return rules_; }
  const frame::Hello& peer() const { return peer_hello_; }
  // The HELLO this end sent; after handshake().
  const frame::Hello& own_hello() const { return own_hello_; }
  std::optional<PeerCredentials> peer_credentials() const { return stream_->peer(); }
  std::size_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Queued {
    frame::StreamId stream;
    bool data;
    std::size_t bytes;
  };
  // Whole frames to be written together: at most kMaxWriteBytes, but at least one.
  struct Batch {
    Bytes bytes;
    std::vector<Queued> index;
  };
  Task<void> write_loop();
  Task<IoResult<void>> write_batch();
  Task<void> keepalive_loop();
  Task<IoResult<frame::Frame>> next_frame();
  Task<IoResult<void>> read_more();
  bool deliver(FrameSink& sink);
  bool accept(const frame::Decoder::Raw& raw, FrameSink& sink);
  // `append` encodes one frame behind the bytes it is given.
  template <class Append>
  void enqueue(frame::StreamId stream, bool data, Append append);

  std::unique_ptr<Stream> stream_;
  Timer& timer_;
  Options options_;
  frame::ConnectionRules rules_;
  frame::Decoder decoder_;
  std::deque<Batch> queue_;  // oldest first
  Batch writing_;            // handed to the transport
  Batch spare_;              // empty; its memory is used again
  std::size_t queued_bytes_ = 0;
  Notifier wake_writer_;
  Notifier wake_keepalive_;
  Notifier written_;
  std::uint64_t round_trips_ = 0;  // asked for
  std::uint64_t answered_ = 0;     // the newest that came back
  Notifier pong_;
  frame::Hello own_hello_;
  frame::Hello peer_hello_;
  std::optional<CloseCause> cause_;
  MonoTime last_received_{};
  MonoTime last_sent_{};
  TaskScope tasks_;
};

}  // namespace space::hop
