#include "core/identity/key_bundle.h"

#include <gtest/gtest.h>

#include "core/identity/testing/samples.h"

namespace space::identity {
namespace {

using namespace std::chrono_literals;
using testing::filled;
using testing::kIssuedAt;
using testing::sample_bundle;

const Issuer kIssuer = sample_bundle().issuer;
constexpr WallTime kNow = kIssuedAt;

BundleKey key_of(std::uint32_t id, KeyState state, WallTime retired_until = {}) {
  return {.id = {id},
          .state = state,
          .key = filled<PublicKey>(static_cast<std::uint8_t>(0xe0 + id)),
          .retired_until = retired_until};
}
KeyBundle bundle_of(std::uint64_t version, std::vector<BundleKey> keys) {
  auto bundle = sample_bundle();
  bundle.version = {version};
  bundle.keys = std::move(keys);
  return bundle;
}

TEST(KeyBundle, P6_RandomBundlesReadBackAsWritten) {
  testing::SplitMix random(4);
  for (int i = 0; i < 500; ++i) {
    const auto bundle = testing::random_bundle(random);
    ASSERT_EQ(decode_bundle(encode_bundle(bundle)), bundle);
  }
}

TEST(KeyBundle, EveryTruncationAndExtensionIsRefused) {
  auto bytes = encode_bundle(
      bundle_of(3, {key_of(1, KeyState::kRetired, kNow), key_of(2, KeyState::kActive)}));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_bundle(ByteView(bytes).first(size))) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_bundle(bytes));
}

TEST(KeyBundle, EveryAcceptedByteStringIsTheOneEncoding) {
  const auto good = encode_bundle(
      bundle_of(3, {key_of(1, KeyState::kRetired, kNow), key_of(2, KeyState::kActive)}));
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      auto bytes = good;
      bytes[at] = static_cast<std::byte>(value);
      if (const auto bundle = decode_bundle(bytes)) ASSERT_EQ(encode_bundle(*bundle), bytes);
    }
  }
}

TEST(KeyBundle, IdsAscendAndNoMoreThanEightKeysExist) {
  EXPECT_DEATH(
      encode_bundle(bundle_of(1, {key_of(2, KeyState::kActive), key_of(1, KeyState::kNext)})),
      "well_formed");
  EXPECT_DEATH(
      encode_bundle(bundle_of(1, {key_of(1, KeyState::kActive), key_of(1, KeyState::kNext)})),
      "well_formed");
  EXPECT_DEATH(encode_bundle(bundle_of(1, {key_of(1, KeyState::kActive, kNow)})), "well_formed");
  std::vector<BundleKey> nine;
  for (std::uint32_t id = 1; id <= 9; ++id) nine.push_back(key_of(id, KeyState::kActive));
  EXPECT_DEATH(encode_bundle(bundle_of(1, nine)), "well_formed");
  nine.pop_back();
  auto bytes = encode_bundle(bundle_of(1, nine));
  ASSERT_TRUE(decode_bundle(bytes));
  // The count stands after version, bundle version, issuer and valid-until.
  bytes[1 + 8 + 8 + 8] = std::byte{9};
  EXPECT_FALSE(decode_bundle(bytes));
}

TEST(KeyRing, CAP6_NextActiveAndRecentlyRetiredKeysVerify) {
  KeyRing ring;
  ASSERT_EQ(ring.install(bundle_of(1, {key_of(1, KeyState::kRetired, kNow + 135s),
                                       key_of(2, KeyState::kActive), key_of(3, KeyState::kNext),
                                       key_of(4, KeyState::kCompromised)}),
                         kNow),
            std::nullopt);
  for (const std::uint32_t id : {1U, 2U, 3U}) {
    const auto found = ring.find(kIssuer, {id}, kNow);
    ASSERT_TRUE(found) << id;
    EXPECT_EQ(found->key, key_of(id, KeyState::kActive).key);
  }
  EXPECT_EQ(ring.find(kIssuer, {4}, kNow).error(), DenyReason::kCompromisedKey);
  EXPECT_EQ(ring.find(kIssuer, {5}, kNow).error(), DenyReason::kUnknownKey);
}

TEST(KeyRing, CAP6_ARetiredKeyStopsAtItsTime) {
  KeyRing ring;
  ASSERT_EQ(ring.install(bundle_of(1, {key_of(1, KeyState::kRetired, kNow + 135s),
                                       key_of(2, KeyState::kActive)}),
                         kNow),
            std::nullopt);
  EXPECT_TRUE(ring.find(kIssuer, {1}, kNow + 135s - 1ms));
  EXPECT_EQ(ring.find(kIssuer, {1}, kNow + 135s).error(), DenyReason::kRetiredKey);
}

TEST(KeyRing, TR2_NoKeyIsFoundWithoutAnUnexpiredBundle) {
  KeyRing ring;
  EXPECT_FALSE(ring.usable(kNow));
  EXPECT_EQ(ring.find(kIssuer, {1}, kNow).error(), DenyReason::kNoBundle);
  ASSERT_EQ(ring.install(sample_bundle(), kNow), std::nullopt);
  const auto end = sample_bundle().valid_until;
  EXPECT_TRUE(ring.find(kIssuer, {1}, end - 1ms));
  EXPECT_EQ(ring.find(kIssuer, {1}, end).error(), DenyReason::kNoBundle);
}

TEST(KeyRing, C011_TheIssuerIsPartOfTheKeysName) {
  KeyRing ring;
  ASSERT_EQ(ring.install(sample_bundle(), kNow), std::nullopt);
  EXPECT_EQ(ring.find(*Issuer::parse("other"), {1}, kNow).error(), DenyReason::kUnknownKey);
  auto other = sample_bundle();
  other.version = {9};
  other.issuer = *Issuer::parse("other");
  EXPECT_EQ(ring.install(other, kNow), BundleRefusal::kOtherIssuer);
}

TEST(KeyRing, P6_TheVersionNeverGoesBelowTheDurableFloor) {
  KeyRing ring(BundleVersion{5});
  EXPECT_EQ(ring.install(bundle_of(4, {key_of(1, KeyState::kActive)}), kNow),
            BundleRefusal::kOlderThanFloor);
  EXPECT_EQ(ring.bundle(), std::nullopt);
  EXPECT_EQ(ring.install(bundle_of(5, {key_of(1, KeyState::kActive)}), kNow), std::nullopt)
      << "after a restart the same version comes again";
  EXPECT_EQ(ring.install(bundle_of(6, {key_of(1, KeyState::kActive)}), kNow), std::nullopt);
  EXPECT_EQ(ring.floor(), BundleVersion{6});
  EXPECT_EQ(ring.install(bundle_of(5, {key_of(1, KeyState::kActive)}), kNow),
            BundleRefusal::kOlderThanFloor);
  EXPECT_EQ(ring.bundle()->version, BundleVersion{6});
}

TEST(KeyRing, P6_TheSameVersionMayOnlyExtend) {
  KeyRing ring;
  auto bundle = sample_bundle();
  ASSERT_EQ(ring.install(bundle, kNow), std::nullopt);
  EXPECT_EQ(ring.install(bundle, kNow), std::nullopt);
  bundle.valid_until += 60s;
  EXPECT_EQ(ring.install(bundle, kNow), std::nullopt);
  EXPECT_EQ(ring.bundle()->valid_until, bundle.valid_until);
  EXPECT_EQ(ring.install(sample_bundle(), kNow), BundleRefusal::kOlderThanFloor)
      << "a delayed older copy must not shorten it";
  bundle.keys.push_back(key_of(2, KeyState::kNext));
  EXPECT_EQ(ring.install(bundle, kNow), BundleRefusal::kOlderThanFloor);
  EXPECT_EQ(ring.bundle()->keys.size(), 1U);
}

TEST(KeyRing, P6_ExpiredOrKeylessBundlesAreRefused) {
  KeyRing ring;
  EXPECT_EQ(ring.install(sample_bundle(), sample_bundle().valid_until), BundleRefusal::kExpired);
  EXPECT_EQ(ring.install(bundle_of(1, {}), kNow), BundleRefusal::kNoActiveKey);
  EXPECT_EQ(ring.install(bundle_of(1, {key_of(1, KeyState::kNext)}), kNow),
            BundleRefusal::kNoActiveKey);
  EXPECT_FALSE(ring.usable(kNow));
  EXPECT_EQ(ring.floor(), BundleVersion{});
}

TEST(KeyRing, C012_OtherKeyMaterialUnderAKnownIdIsRefused) {
  KeyRing ring;
  ASSERT_EQ(ring.install(bundle_of(1, {key_of(1, KeyState::kActive)}), kNow), std::nullopt);
  auto changed = bundle_of(2, {key_of(1, KeyState::kActive)});
  changed.keys[0].key = filled<PublicKey>(0x66);
  EXPECT_EQ(ring.install(changed, kNow), BundleRefusal::kKeyChanged);
  EXPECT_EQ(ring.bundle()->version, BundleVersion{1});
}

TEST(KeyRing, P6_AKeyNeverComesBack) {
  const auto active = key_of(9, KeyState::kActive);
  const auto tried = [&](BundleKey from, BundleKey to) {
    KeyRing ring;
    EXPECT_EQ(ring.install(bundle_of(1, {from, active}), kNow), std::nullopt);
    return ring.install(bundle_of(2, {to, active}), kNow);
  };
  const auto retired = key_of(1, KeyState::kRetired, kNow + 60s);
  const auto longer = key_of(1, KeyState::kRetired, kNow + 61s);
  const auto compromised = key_of(1, KeyState::kCompromised);
  const auto revived = std::optional(BundleRefusal::kKeyRevived);
  EXPECT_EQ(tried(retired, key_of(1, KeyState::kActive)), revived);
  EXPECT_EQ(tried(retired, key_of(1, KeyState::kNext)), revived);
  EXPECT_EQ(tried(retired, longer), revived);
  EXPECT_EQ(tried(compromised, key_of(1, KeyState::kActive)), revived);
  EXPECT_EQ(tried(compromised, retired), revived);
  auto renamed = key_of(2, KeyState::kActive);
  renamed.key = compromised.key;
  EXPECT_EQ(tried(compromised, renamed), revived) << "the same key under a new id";
  EXPECT_EQ(tried(longer, retired), std::nullopt);
  EXPECT_EQ(tried(retired, compromised), std::nullopt);
  EXPECT_EQ(tried(key_of(1, KeyState::kNext), key_of(1, KeyState::kActive)), std::nullopt);
  EXPECT_EQ(tried(key_of(1, KeyState::kActive), retired), std::nullopt);
}

TEST(KeyRing, C012_ARotationPassesAfterOneBundle) {
  KeyRing ring;
  ASSERT_EQ(ring.install(bundle_of(1, {key_of(1, KeyState::kActive)}), kNow), std::nullopt);
  EXPECT_EQ(ring.find(kIssuer, {2}, kNow).error(), DenyReason::kUnknownKey);
  ASSERT_EQ(ring.install(bundle_of(2, {key_of(1, KeyState::kRetired, kNow + 135s),
                                       key_of(2, KeyState::kActive)}),
                         kNow),
            std::nullopt);
  EXPECT_TRUE(ring.find(kIssuer, {2}, kNow));
  EXPECT_TRUE(ring.find(kIssuer, {1}, kNow)) << "overlap";
}

TEST(RefreshLimiter, C012_TenThousandUnknownKeyIdsStartOneRefreshPerCoolDown) {
  RefreshLimiter limiter;
  const MonoTime start{3s};
  int started = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (limiter.try_start(start + std::chrono::microseconds{100} * i)) ++started;
  }
  EXPECT_EQ(started, 1);
  EXPECT_FALSE(limiter.try_start(start + kBundleRefreshCoolDown - 1ns));
  EXPECT_TRUE(limiter.try_start(start + kBundleRefreshCoolDown));
  EXPECT_FALSE(limiter.try_start(start + kBundleRefreshCoolDown));
}

Bytes numbered(std::uint64_t value) {
  ByteWriter out;
  out.u64(value);
  return out.take();
}

TEST(SignatureCache, P4_RemembersExactBytesOnly) {
  SignatureCache cache(1);
  const auto claims = testing::sample_claims();
  cache.insert(numbered(5), claims);
  ASSERT_NE(cache.find(numbered(5)), nullptr);
  EXPECT_EQ(*cache.find(numbered(5)), claims);
  EXPECT_EQ(cache.find(numbered(6)), nullptr);
  const auto longer = to_bytes(std::string(as_text(numbered(5))) + "x");
  EXPECT_EQ(cache.find(longer), nullptr);
  cache.clear();
  EXPECT_EQ(cache.find(numbered(5)), nullptr);
  EXPECT_EQ(cache.size(), 0U);
}

TEST(SignatureCache, P4_StaysWithinItsBoundAndKeepsTheNewerHalf) {
  SignatureCache cache(1, 16);
  const auto claims = testing::sample_claims();
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    cache.insert(numbered(i), claims);
    cache.insert(numbered(i), claims);
    ASSERT_LE(cache.size(), 16U);
    for (std::uint64_t back = 0; back < 8 && back <= i; ++back) {
      ASSERT_NE(cache.find(numbered(i - back)), nullptr);
    }
  }
  EXPECT_EQ(cache.find(numbered(0)), nullptr);
  SignatureCache none(1, 0);
  none.insert(numbered(1), claims);
  EXPECT_EQ(none.size(), 0U);
}

TEST(SipHash, MatchesTheReferenceVectors) {
  // Key 00..0f, message of i bytes 00..; from the reference implementation.
  const std::uint64_t key0 = 0x0706050403020100;
  const std::uint64_t key1 = 0x0f0e0d0c0b0a0908;
  Bytes message;
  EXPECT_EQ(sip_hash(key0, key1, message), 0x726fdb47dd0e0e31);
  for (std::uint8_t i = 0; i < 15; ++i) message.push_back(std::byte{i});
  EXPECT_EQ(sip_hash(key0, key1, ByteView(message).first(1)), 0x74f839c593dc67fd);
  EXPECT_EQ(sip_hash(key0, key1, ByteView(message).first(8)), 0x93f5f5799a932462);
  EXPECT_EQ(sip_hash(key0, key1, message), 0xa129ca6149be45e5);
}

}  // namespace
}  // namespace space::identity
