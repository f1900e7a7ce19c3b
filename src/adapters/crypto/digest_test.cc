#include <gtest/gtest.h>
#include <sodium.h>

#include "adapters/crypto/system_entropy.h"
#include "core/identity/ids.h"
#include "core/identity/sha256.h"
#include "core/identity/testing/samples.h"

namespace space::crypto {
namespace {

const unsigned char* raw(ByteView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

TEST(Digest, Sha256AgreesWithLibsodiumForEveryLength) {
  identity::testing::SplitMix random(21);
  for (std::size_t size = 0; size < 600; ++size) {
    const auto bytes = random.bytes(size);
    identity::Digest expected{};
    crypto_hash_sha256(reinterpret_cast<unsigned char*>(expected.data()), raw(bytes), size);
    ASSERT_EQ(identity::sha256(bytes), expected) << size;
  }
}

TEST(Digest, HmacSha256AgreesWithLibsodiumForEveryKeyLength) {
  identity::testing::SplitMix random(22);
  for (std::size_t size = 1; size < 200; ++size) {
    const auto key = random.bytes(size);
    const auto message = random.bytes(1 + random.below(300));
    identity::Digest expected{};
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, raw(key), key.size());
    crypto_auth_hmacsha256_update(&state, raw(message), message.size());
    crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(expected.data()));
    ASSERT_EQ(identity::hmac_sha256(key, message), expected) << size;
  }
}

TEST(SystemEntropy, FillsLargeBuffersWithoutRepeating) {
  SystemEntropy entropy;
  Bytes first(100'000);
  Bytes second(100'000);
  entropy.fill(first);
  entropy.fill(second);
  EXPECT_NE(first, second);
  EXPECT_NE(Bytes(first.end() - 64, first.end()), Bytes(64));
  EXPECT_NE(random_id<identity::SessionId>(entropy), random_id<identity::SessionId>(entropy));
}

}  // namespace
}  // namespace space::crypto
