#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>

#include "services/hop/connection.h"

namespace space::hop {

// The connection under a channel ended.
struct Lost {
  CloseCause cause;
};
// The deadline of the wait passed; the channel is as before.
struct TimedOut {};

using ChannelEvent =
    std::variant<frame::Admitted, frame::Opened, frame::Refused, frame::Data, frame::Consumed,
                 frame::End, frame::Reset, frame::Revoked, frame::Renewed, Lost, TimedOut>;

class Mux;

// One operation on a connection, as its opener or as its receiver. Owned by shared_ptr: the task
// that works on it, and the Mux while frames may still come. Dropping the last owner of an open
// channel resets it. One task reads, one writes.
class Channel {
 public:
  // `opener`: this end sent the OPEN.
  Channel(Mux& mux, frame::StreamId id, bool opener);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // The next thing that happened. Taking DATA returns its credit to the sender. After REFUSED, the
  // receiver's END (opener's side), RESET, REVOKED or Lost nothing more comes: the same event
  // again. DATA not taken before REVOKED is dropped, and so is a receiver's before RESET or Lost.
  Task<ChannelEvent> next(std::optional<MonoTime> deadline = std::nullopt);
  // Something to take without waiting.
  bool ready() const { return !events_.empty(); }

  // Sends bytes as the window allows; false when the channel is over, then an unknown part was
  // sent. `bytes` outlives the task.
  Task<bool> write(ByteView bytes);
  void end(frame::End end);
  void reset(frame::ResetCode code, frame::Forwarded forwarded = frame::Forwarded::kUnknown);
  // Anything else legal on the stream: OPENED, ADMITTED, REFUSED, CONSUMED, RENEW, RENEWED,
  // REVOKED.
  void send(frame::Payload payload);
  // Drops queued DATA of ours (P-14).
  void discard();

  bool over() const { return over_; }
  frame::StreamId id() const { return id_; }

 private:
  friend class Mux;
  void deliver(ChannelEvent event, bool last);

  Mux* mux_;  // null once the connection is gone
  Timer& timer_;
  frame::StreamId id_;
  bool opener_;
  std::deque<ChannelEvent> events_;
  std::optional<ChannelEvent> last_;
  bool over_ = false;
  std::uint32_t owed_credit_ = 0;
  Notifier changed_;
};

// Operations over one Connection: opens and serves channels and the one-shot requests of the
// control leg. Owned by one loop.
class Mux final : public FrameSink {
 public:
  using OpenHandler = std::function<void(std::shared_ptr<Channel>, frame::Open)>;
  // A one-shot request (INSTALL, RETIRE, BUNDLE, LEASE) or a frame of stream 0 (SESSION_ENDED,
  // GOAWAY).
  using RequestHandler = std::function<void(frame::StreamId, frame::Payload)>;

  using RenewHandler = std::function<void(std::shared_ptr<Channel>, frame::Renew)>;

  // `connection` has shaken hands and outlives the mux.
  Mux(Connection& connection, Timer& timer);
  ~Mux() override;

  // Set before run(). Without a handler, an OPEN is refused with Unavailable{kNoSuchOperation}.
  void on_open(OpenHandler handler) { open_handler_ = std::move(handler); }
  void on_request(RequestHandler handler) { request_handler_ = std::move(handler); }
  void on_renew(RenewHandler handler) { renew_handler_ = std::move(handler); }

  // Serves the connection until it ends.
  Task<void> run();

  // Sends OPEN in this turn. On a closed connection the channel is Lost at once; at the peer's
  // stream limit it is refused at once with Unavailable{kOverloaded}.
  std::shared_ptr<Channel> open(frame::Open open);
  // Sends a one-shot request and awaits its answer; nullopt when the connection ended, the peer's
  // stream limit is reached, or the deadline passed (then it is reset).
  Task<std::optional<frame::Payload>> exchange(frame::Payload request, MonoTime deadline);
  // Answers a one-shot request; nothing when its connection or stream has ended meanwhile.
  void respond(frame::StreamId stream, frame::Payload answer);

  Connection& connection() { return connection_; }
  Timer& timer() { return timer_; }
  bool closed() const { return connection_.closed(); }
  std::size_t channels() const { return channels_.size(); }

 private:
  friend class Channel;
  struct Waiting {
    std::optional<frame::Payload> answer;
    bool lost = false;
    Notifier changed;
  };
  void on_frame(frame::Frame received) override;
  void on_data(frame::StreamId stream, frame::DataView data) override;
  void on_close(CloseCause cause) override;
  void forget(frame::StreamId id) { channels_.erase(id); }

  Connection& connection_;
  Timer& timer_;
  OpenHandler open_handler_;
  RequestHandler request_handler_;
  RenewHandler renew_handler_;
  std::unordered_map<frame::StreamId, std::weak_ptr<Channel>> channels_;
  std::unordered_map<frame::StreamId, Waiting*> waiting_;
};

// Sends one unary operation and collects its answer: the END, with bytes the receiver sent as DATA
// (at most kMaxRecordBytes) put into `result`. A refusal or loss becomes an END with kUnavailable
// (or kPermissionDenied for Denied) and a message that names the reason. Metadata above
// kMaxMetadataBytes is not sent: kTooLarge.
Task<frame::End> call(Mux& mux, frame::Open open, MonoTime deadline);

}  // namespace space::hop
