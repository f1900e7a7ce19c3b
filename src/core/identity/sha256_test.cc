#include "core/identity/sha256.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace space::identity {
namespace {

std::string hash_of(std::string_view text) { return to_hex(sha256(as_bytes(text))); }
std::string hmac_of(ByteView key, std::string_view text) {
  return to_hex(hmac_sha256(key, as_bytes(text)));
}

TEST(Sha256, MatchesTheExamplesOfFips180) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, GivesTheSameDigestForEverySplit) {
  const std::string text(150, 'q');
  const auto whole = sha256(as_bytes(text));
  for (std::size_t first = 0; first <= text.size(); ++first) {
    Sha256 hash;
    hash.update(as_bytes(text).first(first));
    hash.update(as_bytes(text).subspan(first));
    EXPECT_EQ(hash.finish(), whole) << first;
  }
}

TEST(HmacSha256, MatchesTheVectorsOfRfc4231) {
  EXPECT_EQ(hmac_of(Bytes(20, std::byte{0x0b}), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_of(to_bytes("Jefe"), "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_of(Bytes(20, std::byte{0xaa}), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hmac_of(*from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"),
                    std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac_of(Bytes(131, std::byte{0xaa}),
                    "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac_of(Bytes(131, std::byte{0xaa}),
                    "This is a test using a larger than block-size key and a larger than "
                    "block-size data. The key needs to be hashed before being used by the HMAC "
                    "algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(ConstantTimeEqual, ComparesEveryByteAndTheLength) {
  const auto bytes = to_bytes("0123456789");
  EXPECT_TRUE(constant_time_equal(bytes, bytes));
  EXPECT_TRUE(constant_time_equal({}, {}));
  EXPECT_FALSE(constant_time_equal(bytes, ByteView(bytes).first(9)));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto other = bytes;
    other[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(constant_time_equal(bytes, other));
  }
}

}  // namespace
}  // namespace space::identity
