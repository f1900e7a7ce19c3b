#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "core/identity/key_bundle.h"

// Every accepted byte string is the one encoding of what it means.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  if (const auto value = space::identity::decode_bundle(input)) {
    SPACE_ASSERT(space::equal(space::identity::encode_bundle(*value), input));
  }
  return 0;
}
