#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "core/identity/runtime_record.h"

// Every accepted byte string is the one encoding of what it means.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  if (const auto value = space::identity::decode_record(input)) {
    SPACE_ASSERT(space::equal(space::identity::encode_record(*value), input));
  }
  return 0;
}
