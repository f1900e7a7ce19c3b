#pragma once
#include "ports/entropy.h"

namespace space::crypto {

// The kernel's random bytes. Waits at early boot until the pool is ready; any thread.
class SystemEntropy final : public Entropy {
 public:
  void fill(std::span<std::byte> out) override;
};

}  // namespace space::crypto
