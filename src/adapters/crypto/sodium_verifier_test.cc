#include "adapters/crypto/sodium_verifier.h"

#include <gtest/gtest.h>

#include <vector>

#include "adapters/crypto/ed25519_signer.h"
#include "base/text.h"
#include "core/identity/key_bundle.h"
#include "core/identity/testing/samples.h"

namespace space::crypto {
namespace {

using identity::DenyReason;
using identity::PublicKey;
using Signature = std::array<std::byte, 64>;

Signature signature_from(std::string_view hex) {
  const auto bytes = from_hex(hex);
  Signature signature{};
  if (bytes && bytes->size() == signature.size()) std::ranges::copy(*bytes, signature.begin());
  return signature;
}
SigningSeed seed_from(std::string_view hex) {
  return SigningSeed(std::span<const std::byte, 32>(from_hex(hex)->data(), 32));
}

struct Vector {
  std::string_view seed, public_key, message, signature;
};
// RFC 8032, 7.1, TEST 1 to 3.
constexpr std::array<Vector, 3> kRfc8032 = {{
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b"
     "4"
     "6bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11"
     "d"
     "8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc"
     "6"
     "594a7c15e9716ed28dc027beceea1ec40a"},
}};

// The order L of the main subgroup, little-endian.
constexpr std::string_view kOrder =
    "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010";

// The signature with L added to its scalar.
Signature plus_order(Signature signature) {
  const auto order = *from_hex(kOrder);
  unsigned carry = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    carry += std::to_integer<unsigned>(signature[32 + i]) + std::to_integer<unsigned>(order[i]);
    signature[32 + i] = static_cast<std::byte>(carry & 0xff);
    carry >>= 8;
  }
  EXPECT_EQ(carry, 0U);
  return signature;
}

TEST(Ed25519, CAP2_SignsAndVerifiesTheVectorsOfRfc8032) {
  const SodiumVerifier verifier;
  for (const auto& vector : kRfc8032) {
    const Ed25519Signer signer({1}, seed_from(vector.seed));
    const auto message = *from_hex(vector.message);
    EXPECT_EQ(signer.public_key().text(), vector.public_key);
    EXPECT_EQ(to_hex(signer.sign(message)), vector.signature);
    EXPECT_TRUE(verifier.verify(message, signature_from(vector.signature), signer.public_key()));
    EXPECT_TRUE(acceptable_public_key(signer.public_key()));
  }
}

TEST(Ed25519, C013_AScalarPlusTheGroupOrderIsRefused) {
  const SodiumVerifier verifier;
  for (const auto& vector : kRfc8032) {
    const auto key = *PublicKey::parse(vector.public_key);
    const auto message = *from_hex(vector.message);
    EXPECT_FALSE(verifier.verify(message, plus_order(signature_from(vector.signature)), key));
  }
}

TEST(Ed25519, C013_AnAllZeroSignatureIsRefused) {
  const SodiumVerifier verifier;
  const auto key = *PublicKey::parse(kRfc8032[0].public_key);
  EXPECT_FALSE(verifier.verify({}, Signature{}, key));
  EXPECT_FALSE(verifier.verify({}, Signature{}, PublicKey{}));
}

TEST(Ed25519, C014_SmallOrderKeysVerifyNothingAndAreNotAcceptable) {
  const SodiumVerifier verifier;
  // R the identity and S = 0: fits every message under a plain verification by a small-order key.
  const auto universal = signature_from("01" + std::string(126, '0'));
  const std::string zeros(60, '0');
  const std::string ones(60, 'f');
  const std::vector<std::string> keys = {
      "01" + zeros + "00",  // identity
      "01" + zeros + "80",  // identity with the sign bit: non-canonical
      "ee" + ones + "7f",   // identity as y = p + 1: non-canonical
      "ee" + ones + "ff",   // the same with the sign bit
      "00" + zeros + "00",  // order 4
      "ec" + ones + "7f",   // order 2
      "ed" + ones + "7f",   // y = p: non-canonical
      "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",   // order 8
      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"};  // order 8
  for (const auto& key_hex : keys) {
    const auto key = PublicKey::parse(key_hex);
    ASSERT_TRUE(key) << key_hex;
    EXPECT_FALSE(acceptable_public_key(*key)) << key_hex;
    for (const std::string_view message : {"", "a", "any message at all"}) {
      EXPECT_FALSE(verifier.verify(as_bytes(message), universal, *key)) << key_hex;
      EXPECT_FALSE(verifier.verify(as_bytes(message), Signature{}, *key)) << key_hex;
    }
  }
}

class SignedCapability : public ::testing::Test {
 protected:
  SignedCapability() {
    auto bundle = identity::testing::sample_bundle();
    bundle.keys[0].key = signer_.public_key();
    EXPECT_EQ(keys_.install(bundle, identity::testing::kIssuedAt), std::nullopt);
  }
  std::expected<identity::VerifiedCapability, DenyReason> run(
      const identity::SealedCapability& sealed) const {
    return identity::verify(sealed, keys_, verifier_, nullptr, context_);
  }

  Ed25519Signer signer_{{1}, seed_from(kRfc8032[0].seed)};
  SodiumVerifier verifier_;
  identity::KeyRing keys_;
  Bytes claims_ = identity::encode_claims(identity::testing::sample_claims());
  Signature signature_ = signer_.sign(identity::signature_message(claims_));
  identity::VerifyContext context_{
      .now = identity::testing::kIssuedAt,
      .demand = identity::testing::demand_of(identity::testing::sample_claims())};
};

TEST_F(SignedCapability, CAP2_EverySingleBitFlipIsRefused) {
  const auto sealed = identity::seal(claims_, signature_);
  ASSERT_TRUE(run(sealed));
  for (std::size_t bit = 0; bit < sealed.bytes.size() * 8; ++bit) {
    auto flipped = sealed;
    flipped.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(run(flipped)) << bit;
  }
}

TEST_F(SignedCapability, C013_OtherFormsOfTheSignatureAreRefused) {
  EXPECT_EQ(run(identity::seal(claims_, plus_order(signature_))).error(),
            DenyReason::kBadSignature);
  EXPECT_EQ(run(identity::seal(claims_, Signature{})).error(), DenyReason::kBadSignature);
  auto sealed = identity::seal(claims_, signature_);
  sealed.bytes.pop_back();
  EXPECT_EQ(run(sealed).error(), DenyReason::kMalformed) << "63 bytes";
  sealed = identity::seal(claims_, signature_);
  sealed.bytes.push_back(std::byte{0});
  EXPECT_EQ(run(sealed).error(), DenyReason::kMalformed) << "65 bytes";
}

TEST_F(SignedCapability, C016_APublicKeyUsedAsAMacKeySignsNothing) {
  const auto message = identity::signature_message(claims_);
  const auto sealed =
      identity::seal(claims_, identity::testing::keyed_hash_sign(message, signer_.public_key()));
  EXPECT_EQ(run(sealed).error(), DenyReason::kBadSignature);
}

}  // namespace
}  // namespace space::crypto
