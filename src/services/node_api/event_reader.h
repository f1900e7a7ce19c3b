#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "core/wire/messages.h"

namespace space::node_api {

inline constexpr std::size_t kMaxEventBytes = 64U << 10;  // of one process event in the stream

// Takes apart the process events of a guest's stream: u32 length, then the record, at any split.
// Bounded by kMaxEventBytes; stays bad after an event that is none.
class EventReader {
 public:
  void feed(ByteView bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
  // The next whole event; nullopt when more bytes are needed, or when the stream is `bad()`.
  std::optional<wire::ProcessEvent> next() {
    const ByteView rest = ByteView(buffer_).subspan(read_);
    ByteReader in(rest);
    const auto length = in.u32();
    if (!in.failed() && length > kMaxEventBytes) bad_ = true;
    const auto record = in.raw(length);
    if (bad_ || in.failed()) {
      buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(read_));
      read_ = 0;
      return std::nullopt;
    }
    read_ += sizeof(std::uint32_t) + length;
    auto event = wire::decode<wire::ProcessEvent>(record);
    if (!event) bad_ = true;
    return event;
  }
  bool bad() const { return bad_; }

 private:
  Bytes buffer_;
  std::size_t read_ = 0;
  bool bad_ = false;
};

}  // namespace space::node_api
