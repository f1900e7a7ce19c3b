#pragma once
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "core/wire/hop.h"

// Which frames may travel when (P-20): a table of sender role x receiver role, then the state of
// the stream. Anything else closes the connection.
namespace space::wire::hop {

// Whether a frame of this type may travel from `sender` to `receiver` at all.
bool may_send(Role sender, Role receiver, FrameType type);

enum class Violation : std::uint8_t {
  kNotAllowedForRole,
  kWrongStream,
  kWrongState,
  kOffsetMismatch,
  kWindowExceeded,
  kTooManyStreams,
  kStreamIdReused,
  kCreditOverflow,
};
std::string_view to_string(Violation violation);

// Follows one connection from one end and judges every frame, both ways: role, stream state, DATA
// offsets (contiguous from 0 per direction), per-stream windows, stream count. Pure; owned by one
// loop.
//
// HELLO is the first frame of each direction and comes once; OPEN and requests follow both HELLOs.
// On the guest leg CHALLENGE, PROOF, PROOF_ACK come once, in that order, before the first OPEN;
// REKEY instead of the first OPEN, and nothing is opened after it (P-23).
//
// A stream: OPEN -> [REFUSED] | [ADMITTED (node-api <-> manager) or OPENED (every other leg)] ->
// DATA/CREDIT/CONSUMED/RENEW... -> END of the receiver | RESET | REVOKED. Until ADMITTED or OPENED
// the opener may only send RESET. END of the opener ends its direction alone; END of the receiver
// ends the stream. Unary exchanges (INSTALL, RETIRE, BUNDLE, LEASE) are one request and one answer
// on a stream of their own. Frames that crossed the end of their stream on the wire are not
// violations: `received` says kDiscard.
class ConnectionRules {
 public:
  // `dialled`: this end dialled the connection and so opens odd streams; the other end even ones.
  ConnectionRules(Role self, Role peer, bool dialled);

  enum class Verdict : std::uint8_t { kDeliver, kDiscard };
  // Judges and records a frame of the peer. After a violation the connection must be closed.
  std::expected<Verdict, Violation> received(const Frame& frame);
  // The same for DATA without a Frame.
  std::expected<Verdict, Violation> received_data(StreamId stream, std::uint64_t offset,
                                                  std::size_t bytes);
  // Judges and records a frame this end is about to send; a violation here is a bug of ours.
  std::optional<Violation> sending(const Frame& frame);
  // The same for DATA without a Frame.
  std::optional<Violation> sending_data(StreamId stream, std::uint64_t offset, std::size_t bytes);

  // The id for our next OPEN or request; a new one at each call, to be used in the order given. 0
  // when the connection has no ids left.
  StreamId next_stream();
  bool may_open() const;  // an OPEN or request of ours would be within the limits
  std::uint32_t send_window(
      StreamId stream) const;  // bytes we may still send; 0 for unknown streams
  std::uint64_t sent_offset(StreamId stream) const;  // bytes we have sent; 0 for unknown streams
  bool is_open(StreamId stream) const;               // opening, open, or waiting for an answer
  std::size_t open_streams() const { return streams_.size(); }

 private:
  // Who sent a frame. Both are judged by the same rules.
  enum class Sender : std::uint8_t { kSelf, kPeer };
  using Judgement = std::expected<Verdict, Violation>;

  enum class Phase : std::uint8_t { kOpening, kOpen, kUnaryWaiting };
  // The bytes one side of a stream sends.
  struct Direction {
    std::uint64_t sent = 0;
    std::uint64_t limit = kInitialWindow;
    std::uint64_t consumed = 0;  // as CONSUMED reports
    bool ended = false;
  };
  struct State {
    Phase phase = Phase::kOpening;
    FrameType request = FrameType::kOpen;
    Sender opener = Sender::kSelf;
    std::uint32_t renewals = 0;  // RENEW without its RENEWED
    Direction by_self;
    Direction by_peer;
    Direction& by(Sender sender) { return sender == Sender::kSelf ? by_self : by_peer; }
  };
  enum class Handshake : std::uint8_t {
    kFresh,
    kChallenged,
    kAnswered,
    kProved,
    kRekeying,
    kRekeyed
  };

  struct Side {
    Role role;
    bool said_hello = false;
    std::uint32_t max_streams = 0;  // that the other side may have open here, by its HELLO
    StreamId last_opened = 0;
  };
  Side& side(Sender sender) { return sender == Sender::kSelf ? self_ : peer_; }
  bool has_room(const Side& receiver) const;

  Judgement judge(const Frame& frame, Sender sender);
  Judgement judge_connection(const Payload& payload, FrameType type, Sender sender);
  Judgement judge_request(const Frame& frame, FrameType type, Sender sender);
  Judgement judge_stream(const Frame& frame, FrameType type, Sender sender);
  Judgement judge_data(StreamId stream, std::uint64_t offset, std::size_t bytes, Sender sender);
  // For a frame of a stream that is not there.
  Judgement judge_absent(StreamId stream, Sender sender) const;
  bool proof_step(Handshake from, Handshake to);

  Side self_;
  Side peer_;
  bool dialled_;
  Handshake handshake_ = Handshake::kFresh;
  StreamId last_given_ = 0;
  std::unordered_map<StreamId, State> streams_;
};

}  // namespace space::wire::hop
