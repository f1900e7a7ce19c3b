#pragma once
#include <string.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/bytes.h"

namespace space {

// Secret bytes of fixed size: cannot be copied, printed or compared with ==, and are wiped at the
// end. The bytes come out only through `reveal()`, so that every use can be found by that name.
template <std::size_t Size>
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::span<const std::byte, Size> bytes) {
    std::ranges::copy(bytes, bytes_.begin());
  }
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { other.wipe(); }
  Secret& operator=(Secret&& other) noexcept {
    bytes_ = other.bytes_;
    if (this != &other) other.wipe();
    return *this;
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { wipe(); }

  // A second owner of the same secret; the name makes every copy visible in review.
  Secret duplicate() const { return Secret(std::span<const std::byte, Size>(bytes_)); }
  std::span<const std::byte, Size> reveal() const { return bytes_; }

 private:
  void wipe() { ::explicit_bzero(bytes_.data(), bytes_.size()); }
  std::array<std::byte, Size> bytes_{};
};

using GuestSecret = Secret<32>;  // per incarnation; proves the guest (P-23)

}  // namespace space
