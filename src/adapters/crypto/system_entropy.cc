#include "adapters/crypto/system_entropy.h"

#include <errno.h>
#include <sys/random.h>

#include "base/check.h"

namespace space::crypto {

void SystemEntropy::fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const auto got = ::getrandom(out.data(), out.size(), 0);
    SPACE_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace space::crypto
