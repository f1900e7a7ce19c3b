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

}  // namespace space
