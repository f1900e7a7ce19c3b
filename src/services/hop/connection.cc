#include "services/hop/connection.h"

#include <algorithm>
#include <utility>

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

template <class Append>
void Connection::enqueue(frame::StreamId stream, bool data, Append append) {
  constexpr auto kMostFrameBytes = frame::kHeaderBytes + frame::kMaxPayloadBytes;
  if (queue_.empty() || queue_.back().bytes.size() > kMaxWriteBytes - kMostFrameBytes) {
    queue_.push_back(std::exchange(spare_, {}));
  }
  auto& batch = queue_.back();
  const auto before = batch.bytes.size();
  append(batch.bytes);
  const auto added = batch.bytes.size() - before;
  batch.index.push_back(Queued{stream, data, added});
  queued_bytes_ += added;
  if (queued_bytes_ > kMaxQueuedBytes) {
    close(CloseCause::kOverflow);
    return;
  }
  wake_writer_.notify();
}

void Connection::send(frame::Frame to_send) {
  if (cause_) return;
  SPACE_ASSERT(!rules_.sending(to_send));
  enqueue(to_send.stream, false, [&](Bytes& out) { frame::encode(to_send, out); });
}

void Connection::send_data(frame::StreamId stream, ByteView bytes) {
  while (!cause_ && !bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), frame::kMaxDataBytes));
    const auto offset = rules_.sent_offset(stream);
    SPACE_ASSERT(!rules_.sending_data(stream, offset, part.size()));
    enqueue(stream, true, [&](Bytes& out) { frame::encode_data(stream, offset, part, out); });
    bytes = bytes.subspan(part.size());
  }
}

void Connection::discard(frame::StreamId stream) {
  const auto dropped = [stream](const Queued& entry) {
    return entry.data && entry.stream == stream;
  };
  for (auto& batch : queue_) {
    if (std::ranges::none_of(batch.index, dropped)) continue;
    Batch kept;
    ByteView rest = batch.bytes;
    for (const auto& entry : batch.index) {
      const auto bytes = rest.first(entry.bytes);
      rest = rest.subspan(entry.bytes);
      if (dropped(entry)) {
        queued_bytes_ -= entry.bytes;
        continue;
      }
      kept.bytes.insert(kept.bytes.end(), bytes.begin(), bytes.end());
      kept.index.push_back(entry);
    }
    batch = std::move(kept);
  }
  std::erase_if(queue_, [](const Batch& batch) { return batch.index.empty(); });
}

// The oldest batch. What is handed over can no longer be discarded, so it is small (P-14).
Task<IoResult<void>> Connection::write_batch() {
  writing_ = std::move(queue_.front());
  queue_.pop_front();
  last_sent_ = timer_.now();
  auto written = co_await stream_->write_all(writing_.bytes);
  queued_bytes_ -= writing_.bytes.size();
  spare_ = std::exchange(writing_, {});
  spare_.bytes.clear();
  spare_.index.clear();
  if (!written) close(CloseCause::kPeer);
  co_return written;
}

Task<void> Connection::write_loop() {
  while (!cause_) {
    if (queue_.empty()) {
      co_await wake_writer_.wait(timer_);
      // What is ready to run now may have frames too: one write takes them all.
      co_await next_turn(timer_);
      continue;
    }
    static_cast<void>(co_await write_batch());
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

Task<IoResult<void>> Connection::read_more() {
  const auto count = co_await stream_->read_some(decoder_.prepare());
  if (count && *count > 0) {
    last_received_ = timer_.now();
    decoder_.commit(*count);
    co_return IoResult<void>{};
  }
  close(CloseCause::kPeer);
  if (!count) co_return std::unexpected(count.error());
  co_return io_error(std::errc::connection_reset);
}

Task<IoResult<frame::Frame>> Connection::next_frame() {
  for (;;) {
    auto decoded = decoder_.next();
    if (decoded && *decoded) {
      const auto verdict = rules_.received(**decoded);
      if (verdict == frame::ConnectionRules::Verdict::kDiscard) continue;
      if (verdict) co_return std::move(**decoded);
    }
    if (!decoded || *decoded) {
      close(CloseCause::kProtocol);
      co_return io_error(std::errc::protocol_error);
    }
    const auto more = co_await read_more();
    if (!more) co_return std::unexpected(more.error());
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
  IoResult<void> written;
  while (written && !queue_.empty()) written = co_await write_batch();
  IoResult<frame::Frame> received = io_error(std::errc::timed_out);
  if (written) {
    received = co_await next_frame();
  } else {
    received = std::unexpected(written.error());
  }
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

// False when the frame is malformed or illegal.
bool Connection::accept(const frame::Decoder::Raw& raw, FrameSink& sink) {
  using enum frame::ConnectionRules::Verdict;
  if (raw.type == frame::FrameType::kData) {
    const auto data = frame::decode_data(raw);
    if (!data) return false;
    const auto verdict = rules_.received_data(raw.stream, data->offset, data->bytes.size());
    if (verdict == kDeliver) sink.on_data(raw.stream, *data);
    return verdict.has_value();
  }
  auto payload = frame::decode_payload(raw);
  if (!payload) return false;
  frame::Frame received{raw.stream, *std::move(payload)};
  const auto verdict = rules_.received(received);
  if (verdict != kDeliver) return verdict.has_value();
  if (const auto* ping = std::get_if<frame::Ping>(&received.payload)) {
    send(frame::Frame{0, frame::Pong{ping->token}});
  } else if (const auto* pong = std::get_if<frame::Pong>(&received.payload)) {
    const auto trip = pong->token & ~kRoundTrip;
    if ((pong->token & kRoundTrip) != 0 && trip > answered_ && trip <= round_trips_) {
      answered_ = trip;
      pong_.notify();
    }
  } else {
    sink.on_frame(std::move(received));
  }
  return true;
}

// Delivers every whole frame that is there. False when the connection is over.
bool Connection::deliver(FrameSink& sink) {
  while (!cause_) {
    const auto raw = decoder_.next_raw();
    if (raw && !*raw) return true;
    if (!raw || !accept(**raw, sink)) close(CloseCause::kProtocol);
  }
  return false;
}

Task<void> Connection::run(FrameSink& sink) {
  last_received_ = timer_.now();
  tasks_.spawn("hop.write", write_loop());
  tasks_.spawn("hop.keepalive", keepalive_loop());
  while (deliver(sink)) {
    const auto more = co_await read_more();
    if (!more) break;
  }
  wake_keepalive_.notify();
  co_await tasks_.join();
  sink.on_close(*cause_);
}

}  // namespace space::hop
