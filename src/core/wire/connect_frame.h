#pragma once
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

// The envelope of Connect's streams: flags u8, length u32 big-endian, then the message, here always
// JSON. No socket inside.
namespace space::wire {

inline constexpr std::size_t kMaxConnectMessageBytes = 1U << 20;
inline constexpr std::size_t kConnectHeaderBytes = 5;

enum class ConnectFlag : std::uint8_t { kMessage = 0, kEndOfStream = 2 };

struct ConnectFrame {
  ConnectFlag flag = ConnectFlag::kMessage;
  std::string message;
  friend bool operator==(const ConnectFrame&, const ConnectFrame&) = default;
};

enum class ConnectFrameError : std::uint8_t {
  kCompressed = 1,  // flag 0x01: no compression was offered
  kUnknownFlag,
  kTooLarge,  // longer than kMaxConnectMessageBytes
};
std::string_view to_string(ConnectFrameError error);

// Takes a byte stream apart at any split. Holds at most one message, its header and what was fed
// last; stays in error once it was.
class ConnectFrameReader {
 public:
  void feed(ByteView bytes) { buffer_ += as_text(bytes); }
  // The next whole frame; nullopt when more bytes are needed.
  std::expected<std::optional<ConnectFrame>, ConnectFrameError> next();
  // Bytes of a frame that is not whole yet.
  std::size_t buffered() const { return buffer_.size(); }

 private:
  std::string buffer_;
  std::optional<ConnectFrameError> error_;
};

// Appends one frame. A message above kMaxConnectMessageBytes aborts.
void append_connect_frame(std::string& out, ConnectFlag flag, std::string_view message);

}  // namespace space::wire
