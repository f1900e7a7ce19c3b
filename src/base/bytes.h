#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace space {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

// The bytes of `text`, viewed. Valid as long as `text`.
inline ByteView as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
// The bytes viewed as characters. Valid as long as `bytes`.
std::string_view as_text(ByteView bytes);
// A copy of `bytes` as a string; of `text` as bytes.
std::string to_text(ByteView bytes);
Bytes to_bytes(std::string_view text);
bool equal(ByteView a, ByteView b);

// Appends fixed-order big-endian fields to a byte string. Lengths that do not fit their prefix
// abort: callers check their limits before they encode.
class ByteWriter {
 public:
  void u8(std::uint8_t value);
  void u16(std::uint16_t value);
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);
  void raw(ByteView bytes);
  void bytes8(ByteView bytes);   // u8 length, then the bytes
  void bytes16(ByteView bytes);  // u16 length, then the bytes
  void bytes32(ByteView bytes);  // u32 length, then the bytes
  void text8(std::string_view text) { bytes8(as_bytes(text)); }
  void text16(std::string_view text) { bytes16(as_bytes(text)); }

  std::size_t size() const { return out_.size(); }
  ByteView view() const { return out_; }
  Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

// Reads the fields a ByteWriter wrote. Sticky: after a read past the end every further read returns
// zero or empty and `complete()` stays false, so a parser checks once, at its end. Views returned
// point into the input.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : rest_(bytes) {}
  std::uint8_t u8();
  std::uint16_t u16();
  std::uint32_t u32();
  std::uint64_t u64();
  ByteView raw(std::size_t count);
  ByteView bytes8() { return raw(u8()); }
  ByteView bytes16() { return raw(u16()); }
  ByteView bytes32() { return raw(u32()); }
  std::string_view text8() { return as_text(bytes8()); }
  std::string_view text16() { return as_text(bytes16()); }

  bool failed() const { return failed_; }
  // Everything was there and nothing is left: the only success of a strict parser.
  bool complete() const { return !failed_ && rest_.empty(); }
  ByteView rest() const { return rest_; }

 private:
  std::uint64_t integer(std::size_t bytes);
  ByteView rest_;
  bool failed_ = false;
};

}  // namespace space
