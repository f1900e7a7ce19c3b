// The frames of a byte string do not depend on how it is split, and each is the only reading of its
// bytes. Input: bytes that choose the splits, up to a zero byte; then the stream.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "core/wire/hop.h"

using namespace space;
using namespace space::wire;

namespace {

struct Decoded {
  Bytes frames;  // encoded again
  std::optional<hop::FrameError> error;
};

void drain(hop::Decoder& decoder, Decoded& decoded) {
  for (;;) {
    const auto next = decoder.next();
    if (!next) {
      SPACE_ASSERT(!decoded.error || *decoded.error == next.error());
      decoded.error = next.error();
      return;
    }
    if (!*next) {
      SPACE_ASSERT(decoder.buffered() < hop::kHeaderBytes + hop::kMaxPayloadBytes);
      return;
    }
    SPACE_ASSERT(!decoded.error);
    hop::encode(**next, decoded.frames);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  const auto zero = std::ranges::find(input, std::byte{0});
  if (zero == input.end()) return 0;
  const ByteView splits(input.begin(), zero);
  const ByteView stream(zero + 1, input.end());

  Decoded whole;
  hop::Decoder at_once;
  at_once.feed(stream);
  drain(at_once, whole);
  SPACE_ASSERT(whole.frames.size() <= stream.size());
  SPACE_ASSERT(std::ranges::equal(whole.frames, stream.first(whole.frames.size())));

  Decoded parts;
  hop::Decoder in_parts;
  auto rest = stream;
  for (std::size_t i = 0; !rest.empty(); ++i) {
    const auto wish =
        splits.empty() ? std::size_t{1} : std::to_integer<std::size_t>(splits[i % splits.size()]);
    const auto part = rest.first(std::min(wish, rest.size()));
    rest = rest.subspan(part.size());
    in_parts.feed(part);
    drain(in_parts, parts);
  }
  SPACE_ASSERT(parts.frames == whole.frames && parts.error == whole.error);
  return 0;
}
