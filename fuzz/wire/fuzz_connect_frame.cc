// The frames of a byte string do not depend on how it is split, and written again they are the same
// bytes. Input: the size of the pieces, then the stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "core/wire/connect_frame.h"

using namespace space;
using namespace space::wire;

namespace {

struct Told {
  std::string again;
  std::optional<ConnectFrameError> error;
  std::size_t left = 0;
};

Told told(ByteView stream, std::size_t piece) {
  ConnectFrameReader reader;
  Told out;
  while (!stream.empty() && !out.error) {
    const auto part = stream.first(std::min(piece, stream.size()));
    reader.feed(part);
    stream = stream.subspan(part.size());
    for (;;) {
      const auto next = reader.next();
      if (!next) out.error = next.error();
      if (!next || !*next) break;
      append_connect_frame(out.again, (*next)->flag, (*next)->message);
    }
    SPACE_ASSERT(out.error || reader.buffered() < kConnectHeaderBytes + kMaxConnectMessageBytes);
  }
  out.left = reader.buffered();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto stream = std::as_bytes(std::span(data + 1, size - 1));
  const auto whole = told(stream, std::max<std::size_t>(stream.size(), 1));
  const auto pieces = told(stream, data[0] % 17 + std::size_t{1});
  SPACE_ASSERT(whole.again == pieces.again && whole.error == pieces.error);
  SPACE_ASSERT(whole.error || whole.again.size() + whole.left == stream.size());
  SPACE_ASSERT(as_text(stream).starts_with(whole.again));
  return 0;
}
