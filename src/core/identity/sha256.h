#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace space::identity {

inline constexpr std::size_t kSha256Bytes = 32;
using Digest = std::array<std::byte, kSha256Bytes>;

// Incremental SHA-256 (FIPS 180-4).
class Sha256 {
 public:
  void update(ByteView bytes);
  // The digest of everything since construction. Ends the object's use.
  Digest finish();

 private:
  void compress(ByteView block);
  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t total_bytes_ = 0;
};

Digest sha256(ByteView bytes);

// HMAC-SHA256 (RFC 2104); any key length.
Digest hmac_sha256(ByteView key, ByteView message);

// Whether the bytes are equal, in a time that depends on the lengths only.
bool constant_time_equal(ByteView a, ByteView b);

}  // namespace space::identity
