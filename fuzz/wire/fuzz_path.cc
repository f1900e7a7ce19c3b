// No segment or guest path that passes has two readings (C082), and what passes is what is
// re-encoded.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "core/wire/messages.h"
#include "core/wire/path.h"

using namespace space;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(std::as_bytes(std::span(data, size)));
  if (const auto segments = wire::canonical_segments(text)) {
    std::string again;
    for (const auto& segment : *segments) {
      SPACE_ASSERT(!segment.empty() && segment != "." && segment != "..");
      SPACE_ASSERT(segment.find_first_of("/\\;%") == std::string::npos);
      SPACE_ASSERT(!segment.contains('\0'));
      SPACE_ASSERT(percent_decode(segment) == segment);
      again += '/' + percent_encode(segment);
    }
    if (again.empty()) again = "/";
    SPACE_ASSERT(wire::canonical_segments(again) == segments);
  }
  if (const auto pairs = wire::parse_query(text)) {
    for (const auto& [key, value] : *pairs) {
      SPACE_ASSERT(!key.empty() && !key.contains('\0') && !value.contains('\0'));
    }
  }
  if (wire::is_guest_path(text)) {
    SPACE_ASSERT(!text.empty() && text.size() <= wire::kMaxPathBytes && !text.contains('\0'));
  }
  return 0;
}
