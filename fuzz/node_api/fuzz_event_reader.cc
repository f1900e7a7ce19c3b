// A guest's process events, at any split: each event read is the one its bytes mean, and after a
// bad one nothing more is read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/node_api/event_reader.h"

using namespace space;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t piece = data[0] % 17 + std::size_t{1};
  auto rest = std::as_bytes(std::span(data + 1, size - 1));
  node_api::EventReader reader;
  while (!rest.empty()) {
    const auto part = rest.first(std::min(piece, rest.size()));
    reader.feed(part);
    rest = rest.subspan(part.size());
    const bool was_bad = reader.bad();
    while (const auto event = reader.next()) {
      if (was_bad) __builtin_trap();
      const auto again = wire::decode<wire::ProcessEvent>(wire::encode(*event));
      if (!again || wire::encode(*again) != wire::encode(*event)) __builtin_trap();
    }
  }
  return 0;
}
