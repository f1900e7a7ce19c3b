#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  ByteWriter() = default;
  // Appends to `begun`.
  explicit ByteWriter(Bytes begun) : out_(std::move(begun)) {}
  void u8(std::uint8_t value) { integer(value); }
  void u16(std::uint16_t value) { integer(value); }
  void u32(std::uint32_t value) { integer(value); }
  void u64(std::uint64_t value) { integer(value); }
  void raw(ByteView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void bytes8(ByteView bytes);   // u8 length, then the bytes
  void bytes16(ByteView bytes);  // u16 length, then the bytes
  void bytes32(ByteView bytes);  // u32 length, then the bytes
  void text8(std::string_view text) { bytes8(as_bytes(text)); }
  void text16(std::string_view text) { bytes16(as_bytes(text)); }

  std::size_t size() const { return out_.size(); }
  ByteView view() const { return out_; }
  Bytes take() { return std::move(out_); }

 private:
  template <std::unsigned_integral Int>
  void integer(Int value) {
    std::array<std::byte, sizeof(Int)> big_endian;
    for (auto at = big_endian.rbegin(); at != big_endian.rend(); ++at) {
      *at = static_cast<std::byte>(value & 0xff);
      value = static_cast<Int>(std::uint64_t{value} >> 8);
    }
    raw(big_endian);
  }
  Bytes out_;
};

// Reads the fields a ByteWriter wrote. Sticky: after a read past the end every further read returns
// zero or empty and `complete()` stays false, so a parser checks once, at its end. Views returned
// point into the input.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : rest_(bytes) {}
  std::uint8_t u8() { return integer<std::uint8_t>(); }
  std::uint16_t u16() { return integer<std::uint16_t>(); }
  std::uint32_t u32() { return integer<std::uint32_t>(); }
  std::uint64_t u64() { return integer<std::uint64_t>(); }
  ByteView raw(std::size_t count) {
    if (failed_ || count > rest_.size()) {
      failed_ = true;
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
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
  template <std::unsigned_integral Int>
  Int integer() {
    std::uint64_t value = 0;
    for (const auto byte : raw(sizeof(Int))) {
      value = (value << 8) | std::to_integer<std::uint64_t>(byte);
    }
    return static_cast<Int>(value);
  }
  ByteView rest_;
  bool failed_ = false;
};

}  // namespace space
