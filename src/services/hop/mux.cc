#include "services/hop/mux.h"

#include "base/check.h"
#include "base/result.h"

namespace space::hop {

Channel::Channel(Mux& mux, frame::StreamId id, bool opener)
    : mux_(&mux), timer_(mux.timer()), id_(id), opener_(opener) {}

Channel::~Channel() {
  if (mux_ == nullptr) return;
  if (!over_) reset(frame::ResetCode::kCancelled);
  if (mux_ != nullptr) mux_->forget(id_);
}

void Channel::deliver(ChannelEvent event, bool last) {
  if (last) {
    over_ = true;
    // What a cut lease still had under way goes no further (P-14); nor does input of an operation
    // that was given up. Output that arrived before a connection was lost is the opener's to read.
    const bool cut = std::holds_alternative<frame::Revoked>(event) ||
                     (!opener_ && !std::holds_alternative<frame::End>(event));
    if (cut) events_.clear();
    last_ = std::move(event);
  } else {
    events_.push_back(std::move(event));
  }
  changed_.notify();
}

Task<ChannelEvent> Channel::next(std::optional<MonoTime> deadline) {
  while (events_.empty()) {
    if (last_) co_return *last_;
    const auto wake = co_await changed_.wait(timer_, deadline);
    if (wake == Notifier::Wake::kTimedOut && events_.empty() && !last_) co_return TimedOut{};
    if (wake == Notifier::Wake::kCancelled) co_return Lost{CloseCause::kLocal};
  }
  auto event = std::move(events_.front());
  events_.pop_front();
  if (const auto* data = std::get_if<frame::Data>(&event); data != nullptr && !over_) {
    // Credit goes back in quarters of a window, so that it costs few frames.
    owed_credit_ += static_cast<std::uint32_t>(data->bytes.size());
    if (owed_credit_ >= frame::kInitialWindow / 4 && mux_ != nullptr) {
      frame::Credit credit{owed_credit_};
      owed_credit_ = 0;
      send(credit);
    }
  }
  co_return event;
}

Task<bool> Channel::write(ByteView bytes) {
  while (!bytes.empty()) {
    if (over_ || mux_ == nullptr || mux_->closed()) co_return false;
    const auto window = mux_->connection_.rules().send_window(id_);
    if (window == 0) {
      if (co_await changed_.wait(timer_) == Notifier::Wake::kCancelled) co_return false;
      continue;
    }
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), window));
    mux_->connection_.send_data(id_, part);
    bytes = bytes.subspan(part.size());
  }
  co_return !over_;
}

void Channel::send(frame::Payload payload) {
  if (over_ || mux_ == nullptr || mux_->closed()) return;
  mux_->connection_.send(frame::Frame{id_, std::move(payload)});
  // A frame that ends the stream on our side: nothing more can be sent or arrive.
  if (!mux_->connection_.rules().is_open(id_)) {
    over_ = true;
    if (!last_) last_ = Lost{CloseCause::kLocal};
    changed_.notify();
  }
}

void Channel::end(frame::End end) { send(std::move(end)); }

void Channel::reset(frame::ResetCode code, frame::Forwarded forwarded) {
  discard();
  send(frame::Reset{code, forwarded});
}

void Channel::discard() {
  if (mux_ != nullptr) mux_->connection_.discard(id_);
}

Mux::Mux(Connection& connection, Timer& timer) : connection_(connection), timer_(timer) {}

Mux::~Mux() {
  for (auto& [id, weak] : channels_) {
    if (const auto channel = weak.lock()) {
      channel->mux_ = nullptr;
      if (!channel->over_) channel->deliver(Lost{CloseCause::kLocal}, true);
    }
  }
}

Task<void> Mux::run() { co_await connection_.run(*this); }

std::shared_ptr<Channel> Mux::open(frame::Open open) {
  if (connection_.closed()) {
    auto channel = std::make_shared<Channel>(*this, 0, true);
    channel->deliver(Lost{CloseCause::kPeer}, true);
    return channel;
  }
  if (!connection_.rules().may_open()) {
    auto channel = std::make_shared<Channel>(*this, 0, true);
    frame::Refused refused{frame::Unavailable{frame::UnavailableReason::kOverloaded, 100}};
    channel->deliver(std::move(refused), true);
    return channel;
  }
  auto channel = std::make_shared<Channel>(*this, connection_.rules().next_stream(), true);
  channels_.emplace(channel->id(), channel);
  connection_.send(frame::Frame{channel->id(), std::move(open)});
  return channel;
}

Task<std::optional<frame::Payload>> Mux::exchange(frame::Payload request, MonoTime deadline) {
  if (connection_.closed() || !connection_.rules().may_open()) co_return std::nullopt;
  const auto id = connection_.rules().next_stream();
  Waiting waiting;
  waiting_.emplace(id, &waiting);
  connection_.send(frame::Frame{id, std::move(request)});
  while (!waiting.answer && !waiting.lost) {
    if (co_await waiting.changed.wait(timer_, deadline) != Notifier::Wake::kNotified) break;
  }
  waiting_.erase(id);
  if (!waiting.answer && !waiting.lost && !connection_.closed()) {
    frame::Reset reset{frame::ResetCode::kDeadline, frame::Forwarded::kUnknown};
    connection_.send(frame::Frame{id, reset});
  }
  co_return std::move(waiting.answer);
}

void Mux::respond(frame::StreamId stream, frame::Payload answer) {
  if (connection_.closed() || !connection_.rules().is_open(stream)) return;
  connection_.send(frame::Frame{stream, std::move(answer)});
}

void Mux::on_frame(frame::Frame received) {
  if (auto* open = std::get_if<frame::Open>(&received.payload)) {
    if (!open_handler_) {
      frame::Refused refused{frame::Unavailable{frame::UnavailableReason::kNoSuchOperation, 0}};
      connection_.send(frame::Frame{received.stream, std::move(refused)});
      return;
    }
    auto channel = std::make_shared<Channel>(*this, received.stream, false);
    channels_.emplace(received.stream, channel);
    open_handler_(std::move(channel), std::move(*open));
    return;
  }
  if (const auto at = waiting_.find(received.stream); at != waiting_.end()) {
    at->second->answer = std::move(received.payload);
    at->second->changed.notify();
    return;
  }
  if (const auto at = channels_.find(received.stream); at != channels_.end()) {
    const auto channel = at->second.lock();
    if (!channel) return;
    const bool open = connection_.rules().is_open(received.stream);
    std::visit(Overload{
                   [&](frame::Credit&) { channel->changed_.notify(); },
                   [&](frame::Admitted& f) { channel->deliver(std::move(f), false); },
                   [&](frame::Opened& f) { channel->deliver(f, false); },
                   [&](frame::Consumed& f) { channel->deliver(f, false); },
                   [&](frame::Renewed& f) { channel->deliver(std::move(f), false); },
                   [&](frame::End& f) { channel->deliver(std::move(f), !open); },
                   [&](frame::Refused& f) { channel->deliver(std::move(f), true); },
                   [&](frame::Reset& f) { channel->deliver(f, true); },
                   [&](frame::Revoked& f) { channel->deliver(f, true); },
                   [&](frame::Renew& f) {
                     if (renew_handler_) renew_handler_(channel, std::move(f));
                   },
                   [](auto&) {},
               },
               received.payload);
    return;
  }
  if (request_handler_) request_handler_(received.stream, std::move(received.payload));
}

void Mux::on_data(frame::StreamId stream, frame::DataView data) {
  const auto at = channels_.find(stream);
  const auto channel = at != channels_.end() ? at->second.lock() : nullptr;
  if (!channel) return;
  channel->deliver(frame::Data{data.offset, {data.bytes.begin(), data.bytes.end()}}, false);
}

void Mux::on_close(CloseCause cause) {
  for (auto& [id, waiting] : waiting_) {
    waiting->lost = true;
    waiting->changed.notify();
  }
  auto channels = std::exchange(channels_, {});
  for (auto& [id, weak] : channels) {
    const auto channel = weak.lock();
    if (!channel) continue;
    channel->mux_ = nullptr;
    if (!channel->over_) channel->deliver(Lost{cause}, true);
  }
}

namespace {
frame::End failure(frame::Outcome outcome, std::string message) {
  frame::End end;
  end.outcome = outcome;
  end.message = std::move(message);
  return end;
}
frame::End refusal(const frame::Refused& refused) {
  return std::visit(Overload{
                        [](const frame::Refresh& r) {
                          return failure(frame::Outcome::kUnavailable,
                                         "route refused: " + std::string(to_string(r.reason)));
                        },
                        [](const frame::Denied& d) {
                          return failure(frame::Outcome::kPermissionDenied,
                                         "denied: " + std::string(to_string(d.reason)));
                        },
                        [](const frame::Unavailable& u) {
                          return failure(frame::Outcome::kUnavailable,
                                         "unavailable: " + std::string(to_string(u.reason)));
                        },
                    },
                    refused.verdict);
}
}  // namespace

Task<frame::End> call(Mux& mux, frame::Open open, MonoTime deadline) {
  if (open.metadata.size() > frame::kMaxMetadataBytes) {
    co_return failure(frame::Outcome::kTooLarge, "the parameters are larger than 16 KiB");
  }
  const auto channel = mux.open(std::move(open));
  Bytes data;
  for (;;) {
    auto event = co_await channel->next(deadline);
    if (auto* chunk = std::get_if<frame::Data>(&event)) {
      if (data.size() + chunk->bytes.size() > frame::kMaxRecordBytes) {
        channel->reset(frame::ResetCode::kLimit);
        co_return failure(frame::Outcome::kTooLarge, "the answer is larger than 1 MiB");
      }
      data.insert(data.end(), chunk->bytes.begin(), chunk->bytes.end());
      continue;
    }
    if (auto* end = std::get_if<frame::End>(&event)) {
      if (!data.empty()) end->result = std::move(data);
      co_return std::move(*end);
    }
    if (const auto* refused = std::get_if<frame::Refused>(&event)) co_return refusal(*refused);
    if (std::holds_alternative<TimedOut>(event)) {
      channel->reset(frame::ResetCode::kDeadline);
      co_return failure(frame::Outcome::kDeadlineExceeded, "no answer within the deadline");
    }
    if (std::holds_alternative<Lost>(event)) {
      co_return failure(frame::Outcome::kUnavailable, "the connection ended before the answer");
    }
    if (std::holds_alternative<frame::Reset>(event) ||
        std::holds_alternative<frame::Revoked>(event)) {
      co_return failure(frame::Outcome::kInterrupted, "the operation was interrupted");
    }
  }
}

}  // namespace space::hop
