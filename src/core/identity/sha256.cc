#include "core/identity/sha256.h"

#include <string.h>

#include <algorithm>
#include <bit>

namespace space::identity {
namespace {

constexpr std::size_t kBlockBytes = 64;

constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::compress(ByteView block) {
  std::array<std::uint32_t, 64> w;
  ByteReader in(block);
  for (std::size_t i = 0; i < 16; ++i) w[i] = in.u32();
  for (std::size_t i = 16; i < 64; ++i) {
    const auto s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const auto s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const auto s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const auto t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const auto s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const auto t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
}

void Sha256::update(ByteView bytes) {
  total_bytes_ += bytes.size();
  if (pending_size_ > 0) {
    const auto taken = std::min(bytes.size(), kBlockBytes - pending_size_);
    std::ranges::copy(bytes.first(taken),
                      pending_.begin() + static_cast<std::ptrdiff_t>(pending_size_));
    pending_size_ += taken;
    bytes = bytes.subspan(taken);
    if (pending_size_ < kBlockBytes) return;
    compress(pending_);
    pending_size_ = 0;
  }
  for (; bytes.size() >= kBlockBytes; bytes = bytes.subspan(kBlockBytes)) {
    compress(bytes.first(kBlockBytes));
  }
  std::ranges::copy(bytes, pending_.begin());
  pending_size_ = bytes.size();
}

Digest Sha256::finish() {
  const auto total_bits = total_bytes_ * 8;
  const auto zeros = (kBlockBytes * 2 - 9 - pending_size_) % kBlockBytes;
  ByteWriter padding;
  padding.u8(0x80);
  for (std::size_t i = 0; i < zeros; ++i) padding.u8(0);
  padding.u64(total_bits);
  update(padding.view());

  ByteWriter out;
  for (const auto word : state_) out.u32(word);
  Digest digest{};
  std::ranges::copy(out.view(), digest.begin());
  return digest;
}

Digest sha256(ByteView bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Digest hmac_sha256(ByteView key, ByteView message) {
  std::array<std::byte, kBlockBytes> inner_key{};
  if (key.size() > kBlockBytes) {
    std::ranges::copy(sha256(key), inner_key.begin());
  } else {
    std::ranges::copy(key, inner_key.begin());
  }
  auto outer_key = inner_key;
  for (auto& b : inner_key) b ^= std::byte{0x36};
  for (auto& b : outer_key) b ^= std::byte{0x5c};

  Sha256 inner;
  inner.update(inner_key);
  inner.update(message);
  Sha256 outer;
  outer.update(outer_key);
  outer.update(inner.finish());
  ::explicit_bzero(inner_key.data(), inner_key.size());
  ::explicit_bzero(outer_key.data(), outer_key.size());
  return outer.finish();
}

bool constant_time_equal(ByteView a, ByteView b) {
  if (a.size() != b.size()) return false;
  // Volatile, so that the compiler cannot stop at the first difference.
  volatile unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace space::identity
