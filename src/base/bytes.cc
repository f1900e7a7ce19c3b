#include "base/bytes.h"

#include <algorithm>

#include "base/check.h"

namespace space {

std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::string to_text(ByteView bytes) { return std::string(as_text(bytes)); }
Bytes to_bytes(std::string_view text) {
  const auto view = as_bytes(text);
  return {view.begin(), view.end()};
}
bool equal(ByteView a, ByteView b) { return std::ranges::equal(a, b); }

void ByteWriter::u8(std::uint8_t value) { out_.push_back(std::byte{value}); }
void ByteWriter::u16(std::uint16_t value) {
  u8(static_cast<std::uint8_t>(value >> 8));
  u8(static_cast<std::uint8_t>(value & 0xff));
}
void ByteWriter::u32(std::uint32_t value) {
  u16(static_cast<std::uint16_t>(value >> 16));
  u16(static_cast<std::uint16_t>(value & 0xffff));
}
void ByteWriter::u64(std::uint64_t value) {
  u32(static_cast<std::uint32_t>(value >> 32));
  u32(static_cast<std::uint32_t>(value & 0xffffffff));
}
void ByteWriter::raw(ByteView bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
void ByteWriter::bytes8(ByteView bytes) {
  SPACE_ASSERT(bytes.size() <= 0xff);
  u8(static_cast<std::uint8_t>(bytes.size()));
  raw(bytes);
}
void ByteWriter::bytes16(ByteView bytes) {
  SPACE_ASSERT(bytes.size() <= 0xffff);
  u16(static_cast<std::uint16_t>(bytes.size()));
  raw(bytes);
}
void ByteWriter::bytes32(ByteView bytes) {
  SPACE_ASSERT(bytes.size() <= 0xffffffff);
  u32(static_cast<std::uint32_t>(bytes.size()));
  raw(bytes);
}

ByteView ByteReader::raw(std::size_t count) {
  if (failed_ || count > rest_.size()) {
    failed_ = true;
    return {};
  }
  const auto taken = rest_.first(count);
  rest_ = rest_.subspan(count);
  return taken;
}
std::uint64_t ByteReader::integer(std::size_t bytes) {
  std::uint64_t value = 0;
  for (const auto b : raw(bytes)) value = (value << 8) | std::to_integer<std::uint64_t>(b);
  return value;
}
std::uint8_t ByteReader::u8() { return static_cast<std::uint8_t>(integer(1)); }
std::uint16_t ByteReader::u16() { return static_cast<std::uint16_t>(integer(2)); }
std::uint32_t ByteReader::u32() { return static_cast<std::uint32_t>(integer(4)); }
std::uint64_t ByteReader::u64() { return integer(8); }

}  // namespace space
