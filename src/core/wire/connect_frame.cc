#include "core/wire/connect_frame.h"

#include <utility>

#include "base/check.h"

namespace space::wire {

std::string_view to_string(ConnectFrameError error) {
  switch (error) {
    case ConnectFrameError::kCompressed:
      return "a compressed message, though no compression was offered";
    case ConnectFrameError::kUnknownFlag:
      return "an unknown flag in a message's envelope";
    case ConnectFrameError::kTooLarge:
      return "a message larger than 1 MiB";
  }
  std::unreachable();
}

std::expected<std::optional<ConnectFrame>, ConnectFrameError> ConnectFrameReader::next() {
  if (error_) return std::unexpected(*error_);
  ByteReader in(as_bytes(buffer_));
  const auto flags = in.u8();
  const auto length = in.u32();
  if (in.failed()) return std::nullopt;
  if ((flags & 1U) != 0) {
    error_ = ConnectFrameError::kCompressed;
  } else if (flags != static_cast<std::uint8_t>(ConnectFlag::kMessage) &&
             flags != static_cast<std::uint8_t>(ConnectFlag::kEndOfStream)) {
    error_ = ConnectFrameError::kUnknownFlag;
  } else if (length > kMaxConnectMessageBytes) {
    error_ = ConnectFrameError::kTooLarge;
  }
  if (error_) return std::unexpected(*error_);
  const auto message = in.raw(length);
  if (in.failed()) return std::nullopt;
  ConnectFrame frame{static_cast<ConnectFlag>(flags), to_text(message)};
  buffer_.erase(0, kConnectHeaderBytes + length);
  return frame;
}

void append_connect_frame(std::string& out, ConnectFlag flag, std::string_view message) {
  SPACE_ASSERT(message.size() <= kMaxConnectMessageBytes);
  ByteWriter writer;
  writer.u8(static_cast<std::uint8_t>(flag));
  writer.bytes32(as_bytes(message));
  out += as_text(writer.view());
}

}  // namespace space::wire
