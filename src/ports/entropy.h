#pragma once
#include <array>
#include <cstddef>
#include <span>

namespace space {
// Unpredictable bytes. Never fails: an implementation that cannot deliver aborts.
class Entropy {
 public:
  virtual ~Entropy() = default;
  virtual void fill(std::span<std::byte> out) = 0;
};

// A fresh random identifier of a StrongBytes type.
template <class Id>
Id random_id(Entropy& entropy) {
  std::array<std::byte, Id::kBytes> bytes{};
  entropy.fill(bytes);
  return *Id::from(bytes);
}
}  // namespace space
