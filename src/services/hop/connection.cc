#include "services/hop/connection.h"

#include "base/check.h"

namespace space::hop {

std::string_view to_string(CloseCause cause) {
  switch (cause) {
    case CloseCause::kLocal:
      return "local";
    case CloseCause::kPeer:
      return "peer";
    case CloseCause::kProtocol:
      return "protocol";
    case CloseCause::kDeadPeer:
      return "dead_peer";
    case CloseCause::kOverflow:
      return "overflow";
  }
  std::unreachable();
}

Connection::Connection(std::unique_ptr<Stream> stream, Timer& timer, Options options)
    : stream_(std::move(stream)),
      timer_(timer),
      options_(std::move(options)),
      rules_(options_.self, options_.peer, options_.dialled),
      read_buffer_(64 * 1024),
      tasks_(timer) {}

Connection::~Connection() = default;

void Connection::close(CloseCause cause) {
  if (cause_) return;
  cause_ = cause;
  stream_->close();
  wake_writer_.notify();
  written_.notify();
  pong_.notify();
}

void Connection::queued(frame::StreamId stream, bool data, std::size_t before) {
  index_.push_back(Queued{stream, data, queue_.size() - before});
  last_sent_ = timer_.now();
  if (queued_bytes() > kMaxQueuedBytes) {
    close(CloseCause::kOverflow);
    return;
  }
  wake_writer_.notify();
}

void Connection::send(frame::Frame to_send) {
  if (cause_) return;
  SPACE_ASSERT(!rules_.sending(to_send));
  const auto before = queue_.size();
  frame::encode(to_send, queue_);
  queued(to_send.stream, false, before);
}

void Connection::send_data(frame::StreamId stream, ByteView bytes) {
  if (cause_) return;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), frame::kMaxDataBytes));
    const auto offset = rules_.sent_offset(stream);
    SPACE_ASSERT(!rules_.sending_data(stream, offset, part.size()));
    const auto before = queue_.size();
    frame::encode_data(stream, offset, part, queue_);
    queued(stream, true, before);
    if (cause_) return;
    bytes = bytes.subspan(part.size());
  }
}

void Connection::discard(frame::StreamId stream) {
  Bytes kept;
  std::vector<Queued> kept_index;
  std::size_t at = 0;
  for (const auto& entry : index_) {
    if (!(entry.data && entry.stream == stream)) {
      const auto bytes = ByteView(queue_).subspan(at, entry.bytes);
      kept.insert(kept.end(), bytes.begin(), bytes.end());
      kept_index.push_back(entry);
    }
    at += entry.bytes;
  }
  queue_ = std::move(kept);
  index_ = std::move(kept_index);
}

Task<void> Connection::write_loop() {
  while (!cause_) {
    if (queue_.empty()) {
      co_await wake_writer_.wait(timer_);
      continue;
    }
    // Whole frames, at most kMaxWriteBytes (but at least one): what is handed over can no longer be
    // discarded, so it stays small (P-14).
    std::size_t bytes = 0;
    std::size_t frames = 0;
    while (frames < index_.size() &&
           (frames == 0 || bytes + index_[frames].bytes <= kMaxWriteBytes)) {
      bytes += index_[frames++].bytes;
    }
    if (frames == index_.size()) {
      writing_ = std::move(queue_);
      queue_ = {};
      index_.clear();
    } else {
      const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(bytes);
      writing_.assign(queue_.begin(), end);
      queue_.erase(queue_.begin(), end);
      index_.erase(index_.begin(), index_.begin() + static_cast<std::ptrdiff_t>(frames));
    }
    const auto result = co_await stream_->write_all(writing_);
    writing_.clear();
    if (!result) {
      close(CloseCause::kPeer);
      break;
    }
    if (queue_.empty()) written_.notify();
  }
}

Task<void> Connection::drained() {
  while (!cause_ && queued_bytes() > 0) co_await written_.wait(timer_);
}

namespace {
// Tokens of round trips, apart from those of the keep-alive.
constexpr std::uint64_t kRoundTrip = 1ULL << 63;
}  // namespace

Task<bool> Connection::round_trip(MonoTime deadline) {
  const auto trip = ++round_trips_;
  frame::Frame ping{0, frame::Ping{kRoundTrip | trip}};
  send(std::move(ping));
  while (!cause_ && answered_ < trip) {
    if (co_await pong_.wait(timer_, deadline) != Notifier::Wake::kNotified) break;
  }
  co_return answered_ >= trip;
}

Task<void> Connection::keepalive_loop() {
  std::uint64_t token = 0;
  while (!cause_) {
    co_await wake_keepalive_.wait(timer_, timer_.now() + kPingEvery);
    if (cause_) break;
    const auto silent = timer_.now() - last_received_;
    if (silent >= kDeadPeerAfter) {
      close(CloseCause::kDeadPeer);
      break;
    }
    // Also while the peer talks: one that may not ping knows us by what we send.
    if (options_.pings && (silent >= kPingEvery || timer_.now() - last_sent_ >= kPingEvery)) {
      frame::Frame ping{0, frame::Ping{++token}};
      send(std::move(ping));
    }
  }
}

Task<IoResult<frame::Frame>> Connection::next_frame() {
  for (;;) {
    auto decoded = decoder_.next();
    if (!decoded) {
      close(CloseCause::kProtocol);
      co_return io_error(std::errc::protocol_error);
    }
    if (*decoded) {
      const auto verdict = rules_.received(**decoded);
      if (!verdict) {
        close(CloseCause::kProtocol);
        co_return io_error(std::errc::protocol_error);
      }
      if (*verdict == frame::ConnectionRules::Verdict::kDiscard) continue;
      co_return std::move(**decoded);
    }
    const auto count = co_await stream_->read_some(read_buffer_);
    if (!count || *count == 0) {
      close(CloseCause::kPeer);
      if (!count) co_return std::unexpected(count.error());
      co_return io_error(std::errc::connection_reset);
    }
    last_received_ = timer_.now();
    decoder_.feed(ByteView(read_buffer_).first(*count));
  }
}

Task<IoResult<frame::Frame>> Connection::read_frame(MonoTime deadline) {
  bool late = false;
  // The alarm closes the stream, which ends the pending read.
  auto alarm = timer_.at(deadline, [this, &late] {
    late = true;
    close(CloseCause::kLocal);
  });
  // What was queued before run() is written here, since no writer runs yet.
  if (!queue_.empty()) {
    writing_ = std::move(queue_);
    queue_ = {};
    index_.clear();
    const auto written = co_await stream_->write_all(writing_);
    writing_.clear();
    if (!written) {
      close(CloseCause::kPeer);
      if (late) co_return io_error(std::errc::timed_out);
      co_return std::unexpected(written.error());
    }
  }
  auto received = co_await next_frame();
  if (!received && late) co_return io_error(std::errc::timed_out);
  co_return received;
}

Task<IoResult<frame::Hello>> Connection::handshake(MonoTime deadline) {
  last_received_ = timer_.now();
  own_hello_.role = options_.self;
  own_hello_.peer_id = options_.id;
  own_hello_.boot = options_.boot;
  send(frame::Frame{0, own_hello_});
  auto received = co_await read_frame(deadline);
  if (!received) co_return std::unexpected(received.error());
  const auto* peer = std::get_if<frame::Hello>(&received->payload);
  if (peer == nullptr || peer->version != frame::kVersion || peer->role != options_.peer ||
      peer->operation_table != policy::kOperationTableVersion) {
    close(CloseCause::kProtocol);
    co_return io_error(std::errc::protocol_error);
  }
  peer_hello_ = *peer;
  co_return *peer;
}

Task<void> Connection::run(FrameSink& sink) {
  last_received_ = timer_.now();
  tasks_.spawn("hop.write", write_loop());
  tasks_.spawn("hop.keepalive", keepalive_loop());
  for (;;) {
    auto received = co_await next_frame();
    if (!received) break;
    if (const auto* ping = std::get_if<frame::Ping>(&received->payload)) {
      frame::Frame pong{0, frame::Pong{ping->token}};
      send(std::move(pong));
      continue;
    }
    if (const auto* pong = std::get_if<frame::Pong>(&received->payload)) {
      const auto trip = pong->token & ~kRoundTrip;
      if ((pong->token & kRoundTrip) != 0 && trip > answered_ && trip <= round_trips_) {
        answered_ = trip;
        pong_.notify();
      }
      continue;
    }
    sink.on_frame(std::move(*received));
  }
  wake_keepalive_.notify();
  co_await tasks_.join();
  sink.on_close(*cause_);
}

}  // namespace space::hop
