#include "core/identity/capability.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "core/identity/key_bundle.h"
#include "core/identity/testing/samples.h"

namespace space::identity {
namespace {

using namespace std::chrono_literals;
using testing::at_ms;
using testing::demand_of;
using testing::filled;
using testing::hash_seal;
using testing::kIssuedAt;
using testing::sample_claims;
using testing::sample_port_claims;

using Verdict = std::expected<VerifiedCapability, DenyReason>;

const PublicKey kKey = filled<PublicKey>(0xe1);

class Verify : public ::testing::Test {
 protected:
  Verify() { EXPECT_EQ(keys_.install(testing::sample_bundle(), kIssuedAt), std::nullopt); }

  Verdict run(const SealedCapability& sealed) {
    return verify(sealed, keys_, signatures_, &cache_, context_);
  }
  // Of claims minted well, against the demand in `context_`.
  std::optional<DenyReason> denial(const Claims& claims) {
    const auto verdict = run(hash_seal(claims, kKey));
    return verdict ? std::nullopt : std::optional(verdict.error());
  }
  std::optional<DenyReason> denial_at(WallTime now) {
    context_.now = now;
    return denial(sample_claims());
  }

  KeyRing keys_;
  testing::KeyedHashVerifier signatures_;
  SignatureCache cache_{42};
  VerifyContext context_{.now = kIssuedAt, .demand = demand_of(sample_claims())};
};

// The byte offsets in the encoding of sample_claims(), to forge single fields.
constexpr std::size_t kPurposeAt = 1 + 4 + 8;
constexpr std::size_t kGenerationAt = kPurposeAt + 1 + 21;
constexpr std::size_t kSubstrateAt = kGenerationAt + 8 + 9;
constexpr std::size_t kPodFlagAt = kSubstrateAt + 1 + 16;
constexpr std::size_t kAttemptAt = kPodFlagAt + 1 + 37;
constexpr std::size_t kAccessAt = kAttemptAt + 4;
constexpr std::size_t kIssuedAtOffset = kAccessAt + 2 + 16 + 32;
constexpr std::size_t kConstraintFlagAt = kIssuedAtOffset + 16 + 16;

Bytes with_byte(Bytes bytes, std::size_t at, std::uint8_t value) {
  bytes.at(at) = std::byte{value};
  return bytes;
}
Bytes with_zeros(Bytes bytes, std::size_t at, std::size_t count) {
  for (std::size_t i = at; i < at + count; ++i) bytes.at(i) = std::byte{0};
  return bytes;
}
Bytes with_u64(Bytes bytes, std::size_t at, std::uint64_t value) {
  ByteWriter out;
  out.u64(value);
  std::ranges::copy(out.view(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

TEST(Claims, P1_RandomClaimsReadBackAsWritten) {
  testing::SplitMix random(1);
  for (int i = 0; i < 2'000; ++i) {
    const auto claims = testing::random_claims(random);
    const auto bytes = encode_claims(claims);
    ASSERT_LE(bytes.size() + kSignatureBytes, kMaxSealedBytes);
    ASSERT_EQ(decode_claims(bytes), claims);
  }
}

TEST(Claims, P1_EveryAcceptedByteStringIsTheOneEncodingOfItsClaims) {
  testing::SplitMix random(2);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = encode_claims(testing::random_claims(random));
    for (auto changes = 1 + random.below(3); changes > 0; --changes) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    }
    if (const auto claims = decode_claims(bytes)) {
      ++accepted;
      ASSERT_EQ(encode_claims(*claims), bytes);
    }
  }
  EXPECT_GT(accepted, 1'000);
}

TEST(Claims, P1_EveryTruncationAndExtensionIsRefused) {
  for (const auto& claims : {sample_claims(), sample_port_claims()}) {
    auto bytes = encode_claims(claims);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode_claims(ByteView(bytes).first(size))) << size;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_claims(bytes));
  }
}

TEST(Claims, P1_ForgedFieldsAreRefused) {
  const auto bytes = encode_claims(sample_claims());
  ASSERT_TRUE(decode_claims(bytes));
  EXPECT_FALSE(decode_claims(with_byte(bytes, 0, 0))) << "version";
  EXPECT_FALSE(decode_claims(with_byte(bytes, 0, 2))) << "version";
  EXPECT_FALSE(decode_claims(with_byte(bytes, 6, 'C'))) << "upper case in a name";
  EXPECT_FALSE(decode_claims(with_byte(bytes, 6, '-'))) << "name begins with '-'";
  EXPECT_FALSE(decode_claims(with_byte(bytes, 6, 0))) << "NUL in a name";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kPurposeAt, 0))) << "purpose";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kPurposeAt, 3))) << "purpose";
  EXPECT_FALSE(decode_claims(with_zeros(bytes, kGenerationAt, 8))) << "generation 0";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kSubstrateAt, 0))) << "substrate";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kSubstrateAt, 3))) << "substrate";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kPodFlagAt, 2))) << "flag";
  EXPECT_FALSE(decode_claims(with_zeros(bytes, kAttemptAt, 4))) << "attempt 0";
  EXPECT_FALSE(decode_claims(with_zeros(bytes, kAccessAt, 2))) << "no access";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kAccessAt + 1, 0x40))) << "unknown access";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kAccessAt, 0x01))) << "unknown access";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kAccessAt + 1, 0x21)))
      << "a port's access in control";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kConstraintFlagAt, 1))) << "constraint missing";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kConstraintFlagAt, 2))) << "flag";
}

TEST(Claims, P1_PortFieldsAreRefusedWhenZeroUnknownOrOfAnotherPurpose) {
  constexpr std::size_t kPortAt = kAccessAt + 2;
  const auto bytes = encode_claims(sample_port_claims());
  ASSERT_TRUE(decode_claims(bytes));
  EXPECT_FALSE(decode_claims(with_zeros(bytes, kPortAt, 2)));
  EXPECT_FALSE(decode_claims(with_byte(bytes, kPortAt + 2, 0)));
  EXPECT_FALSE(decode_claims(with_byte(bytes, kPortAt + 2, 3)));
  EXPECT_FALSE(decode_claims(with_byte(bytes, kPurposeAt, 1)));
  EXPECT_FALSE(decode_claims(with_byte(bytes, kAccessAt + 1, 0x01))) << "control's access";
  EXPECT_FALSE(decode_claims(with_byte(bytes, kAccessAt + 1, 0x21))) << "more than the port";
  EXPECT_FALSE(decode_claims(with_byte(encode_claims(sample_claims()), kPurposeAt, 2)));
}

TEST(Claims, P2_AnyOtherLifetimeThan120SecondsIsMalformed) {
  const auto bytes = encode_claims(sample_claims());
  const auto issued = static_cast<std::uint64_t>(kIssuedAt.time_since_epoch().count());
  ASSERT_EQ(with_u64(bytes, kIssuedAtOffset, issued), bytes);
  for (const std::uint64_t expires :
       {issued + 119'999, issued + 120'001, issued, issued - 120'000, std::uint64_t{0},
        std::uint64_t{1} << 63, UINT64_MAX, issued + (std::uint64_t{1} << 32) + 120'000}) {
    EXPECT_FALSE(decode_claims(with_u64(bytes, kIssuedAtOffset + 8, expires))) << expires;
  }
}

TEST(Claims, P2_TimesOutOfRangeAreMalformedEvenWithTheRightDifference) {
  const auto bytes = encode_claims(sample_claims());
  const auto forged = [&](std::uint64_t issued) {
    return with_u64(with_u64(bytes, kIssuedAtOffset, issued), kIssuedAtOffset + 8,
                    issued + 120'000);
  };
  EXPECT_TRUE(decode_claims(forged(0)));
  EXPECT_TRUE(decode_claims(forged(253'402'300'799'999 - 120'000)));
  for (const std::uint64_t issued :
       {std::uint64_t{253'402'300'799'999} - 119'999, (std::uint64_t{1} << 63) - 120'000,
        (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63, UINT64_MAX - 120'000, UINT64_MAX,
        std::uint64_t{0} - 120'000}) {
    EXPECT_FALSE(decode_claims(forged(issued))) << issued;
  }
}

TEST(Claims, IllFormedClaimsAreNeverEncoded) {
  const std::vector<std::function<void(Claims&)>> spoil = {
      [](Claims& c) { c.route.generation = {0}; },
      [](Claims& c) { c.attempt = {0}; },
      [](Claims& c) { c.access = {}; },
      [](Claims& c) { c.access = {0x40}; },
      [](Claims& c) { c.port = 80; },
      [](Claims& c) { c.protocol = PortProtocol::kTcp; },
      [](Claims& c) { c.access = c.access.with(Access::kServicePort); },
      [](Claims& c) { c.purpose = Purpose::kServicePort; },
      [](Claims& c) { c.expires_at += 1ms; },
      [](Claims& c) { c.issued_at = c.expires_at = at_ms(0); },
      [](Claims& c) {
        c.issued_at = at_ms(-1);
        c.expires_at = c.issued_at + kCapabilityLifetime;
      }};
  EXPECT_TRUE(well_formed(sample_claims()));
  for (std::size_t i = 0; i < spoil.size(); ++i) {
    auto claims = sample_claims();
    spoil[i](claims);
    EXPECT_FALSE(well_formed(claims)) << i;
  }
  auto claims = sample_claims();
  claims.expires_at += 1ms;
  EXPECT_DEATH(encode_claims(claims), "well_formed");
}

TEST(Claims, P1_TheSignedMessageIsDomainSeparated) {
  const auto claims = to_bytes("claims");
  const auto message = to_text(signature_message(claims));
  EXPECT_EQ(message, std::string("SPACE capability v1\0claims", 26));
}

TEST_F(Verify, CAP2_AcceptsWhatWasMintedForThisDemand) {
  const auto verdict = run(hash_seal(sample_claims(), kKey));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->claims(), sample_claims());
}

TEST_F(Verify, CAP2_EverySingleBitFlipIsRefused) {
  for (const auto& claims : {sample_claims(), sample_port_claims()}) {
    context_.demand = demand_of(claims);
    const auto sealed = hash_seal(claims, kKey);
    ASSERT_TRUE(run(sealed));
    for (std::size_t bit = 0; bit < sealed.bytes.size() * 8; ++bit) {
      auto flipped = sealed;
      flipped.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      const auto verdict = run(flipped);
      ASSERT_FALSE(verdict) << bit;
      EXPECT_TRUE(verdict.error() == DenyReason::kMalformed ||
                  verdict.error() == DenyReason::kUnknownKey ||
                  verdict.error() == DenyReason::kBadSignature)
          << bit << " " << to_string(verdict.error());
    }
  }
}

TEST_F(Verify, P1_EveryTruncationAndExtensionIsRefused) {
  const auto sealed = hash_seal(sample_claims(), kKey);
  for (std::size_t size = 0; size < sealed.bytes.size(); ++size) {
    EXPECT_FALSE(run(
        {Bytes(sealed.bytes.begin(), sealed.bytes.begin() + static_cast<std::ptrdiff_t>(size))}));
  }
  for (std::size_t extra = 1; extra < kMaxSealedBytes; ++extra) {
    auto longer = sealed;
    longer.bytes.resize(sealed.bytes.size() + extra);
    const auto verdict = run(longer);
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error(), DenyReason::kMalformed);
  }
}

TEST_F(Verify, C015_C017_AnotherEncodingIsMalformedEvenWithARightSignature) {
  const auto bytes = encode_claims(sample_claims());
  auto longer = bytes;
  longer.push_back(std::byte{0});
  for (const auto& other : {longer, with_byte(bytes, kPodFlagAt, 2), with_byte(bytes, 0, 2),
                            with_byte(bytes, kConstraintFlagAt, 0x80)}) {
    const auto sealed = seal(other, testing::keyed_hash_sign(signature_message(other), kKey));
    const auto verdict = run(sealed);
    ASSERT_FALSE(verdict);
    EXPECT_EQ(verdict.error(), DenyReason::kMalformed);
  }
  EXPECT_EQ(signatures_.calls, 0) << "refused before any signature work";
}

TEST_F(Verify, P1_ASignatureWithoutTheDomainIsBad) {
  const auto bytes = encode_claims(sample_claims());
  const auto verdict = run(seal(bytes, testing::keyed_hash_sign(bytes, kKey)));
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error(), DenyReason::kBadSignature);
}

TEST_F(Verify, P2_C019_TheAcceptedInterval) {
  const auto expires = kIssuedAt + 120s;
  EXPECT_EQ(denial_at(kIssuedAt - 15s - 1ms), DenyReason::kNotYetValid);
  EXPECT_EQ(denial_at(kIssuedAt - 15s), std::nullopt);
  EXPECT_EQ(denial_at(expires + 15s - 1ms), std::nullopt);
  EXPECT_EQ(denial_at(expires + 15s), DenyReason::kExpired);
}

TEST_F(Verify, P2_C019_TheSameLowerToleranceHoldsAtBothEnds) {
  context_.tolerance = 5s;
  const auto expires = kIssuedAt + 120s;
  EXPECT_EQ(denial_at(kIssuedAt - 5s - 1ms), DenyReason::kNotYetValid);
  EXPECT_EQ(denial_at(kIssuedAt - 5s), std::nullopt);
  EXPECT_EQ(denial_at(expires + 5s - 1ms), std::nullopt);
  EXPECT_EQ(denial_at(expires + 5s), DenyReason::kExpired);
}

TEST_F(Verify, CAP3_NoToleranceAbove15SecondsOrBelowZeroIsGranted) {
  const auto expires = kIssuedAt + 120s;
  context_.tolerance = std::chrono::milliseconds::max();
  EXPECT_EQ(denial_at(kIssuedAt - 15s - 1ms), DenyReason::kNotYetValid);
  EXPECT_EQ(denial_at(expires + 15s), DenyReason::kExpired);
  context_.tolerance = std::chrono::milliseconds::min();
  EXPECT_EQ(denial_at(kIssuedAt - 1ms), DenyReason::kNotYetValid);
  EXPECT_EQ(denial_at(kIssuedAt), std::nullopt);
  EXPECT_EQ(denial_at(expires), DenyReason::kExpired);
}

TEST_F(Verify, P2_AnUnhealthyClockRefusesEverything) {
  context_.clock_healthy = false;
  EXPECT_EQ(denial(sample_claims()), DenyReason::kClockUnhealthy);
  EXPECT_EQ(run({}).error(), DenyReason::kClockUnhealthy);
}

TEST_F(Verify, TR2_WithoutAValidBundleEverythingIsRefused) {
  const auto sealed = hash_seal(sample_claims(), kKey);
  const KeyRing empty;
  EXPECT_EQ(verify(sealed, empty, signatures_, &cache_, context_).error(), DenyReason::kNoBundle);
  ASSERT_TRUE(run(sealed));
  context_.now = testing::sample_bundle().valid_until;
  EXPECT_EQ(run(sealed).error(), DenyReason::kNoBundle) << "cached, but the bundle ran out";
}

TEST_F(Verify, P7_DemandsAreCheckedOneByOne) {
  context_.demand.purpose = Purpose::kServicePort;
  EXPECT_EQ(denial(sample_claims()), DenyReason::kWrongPurpose);
  context_.demand = demand_of(sample_claims());
  context_.demand.peer = filled<HolderId>(0x42);
  EXPECT_EQ(denial(sample_claims()), DenyReason::kWrongHolder);
  context_.demand = demand_of(sample_claims());
  context_.demand.access = context_.demand.access.with(Access::kWatch);
  EXPECT_EQ(denial(sample_claims()), DenyReason::kAccessNotGranted);
  context_.demand.access = {};
  EXPECT_EQ(denial(sample_claims()), DenyReason::kAccessNotGranted) << "asks for nothing";
  context_.demand.access = AccessSet{}.with(Access::kFilesRead);
  EXPECT_EQ(denial(sample_claims()), std::nullopt) << "a part of the granted access";
}

TEST_F(Verify, CAP4_PurposesDoNotReplaceEachOther) {
  context_.demand = demand_of(sample_port_claims());
  EXPECT_EQ(denial(sample_port_claims()), std::nullopt);
  EXPECT_EQ(denial(sample_claims()), DenyReason::kWrongPurpose);
  context_.demand = demand_of(sample_claims());
  EXPECT_EQ(denial(sample_port_claims()), DenyReason::kWrongPurpose);
}

TEST_F(Verify, P7_PortAndProtocolMustBeThoseNamed) {
  context_.demand = demand_of(sample_port_claims());
  context_.demand.port = 8081;
  EXPECT_EQ(denial(sample_port_claims()), DenyReason::kWrongPort);
  context_.demand.port = {};
  EXPECT_EQ(denial(sample_port_claims()), DenyReason::kWrongPort);
  context_.demand = demand_of(sample_port_claims());
  context_.demand.protocol = PortProtocol::kTcp;
  EXPECT_EQ(denial(sample_port_claims()), DenyReason::kWrongPort);
}

TEST_F(Verify, P7_AConstrainedCapabilityOpensOnlyTheConstrainedOperation) {
  auto claims = sample_claims();
  claims.constraint = filled<ConstraintHash>(0xc0);
  EXPECT_EQ(denial(claims), DenyReason::kWrongConstraint);
  context_.demand.constraint = filled<ConstraintHash>(0xc1);
  EXPECT_EQ(denial(claims), DenyReason::kWrongConstraint);
  context_.demand.constraint = claims.constraint;
  EXPECT_EQ(denial(claims), std::nullopt);
  EXPECT_EQ(denial(sample_claims()), std::nullopt) << "an unconstrained one opens it too";
}

TEST_F(Verify, P7_TheFirstFailureOfTheOrderIsTheReason) {
  auto claims = sample_port_claims();
  claims.constraint = filled<ConstraintHash>(0xc0);
  context_.demand = {.purpose = Purpose::kControl,
                     .peer = filled<HolderId>(0x42),
                     .access = AccessSet{}.with(Access::kWatch),
                     .port = 1,
                     .protocol = PortProtocol::kTcp,
                     .constraint = {}};
  context_.now = kIssuedAt + 200s;
  auto sealed = hash_seal(claims, kKey);
  const auto reason = [&] { return run(sealed).error(); };

  auto forged = sealed;
  forged.bytes.back() ^= std::byte{1};
  EXPECT_EQ(run(forged).error(), DenyReason::kBadSignature);
  EXPECT_EQ(reason(), DenyReason::kExpired);
  context_.now = kIssuedAt;
  EXPECT_EQ(reason(), DenyReason::kWrongPurpose);
  context_.demand.purpose = Purpose::kServicePort;
  EXPECT_EQ(reason(), DenyReason::kWrongHolder);
  context_.demand.peer = claims.holder;
  EXPECT_EQ(reason(), DenyReason::kAccessNotGranted);
  context_.demand.access = claims.access;
  EXPECT_EQ(reason(), DenyReason::kWrongPort);
  context_.demand.port = claims.port;
  EXPECT_EQ(reason(), DenyReason::kWrongPort);
  context_.demand.protocol = claims.protocol;
  EXPECT_EQ(reason(), DenyReason::kWrongConstraint);
  context_.demand.constraint = claims.constraint;
  EXPECT_TRUE(run(sealed));
}

TEST_F(Verify, P4_ACachedSignatureIsNotVerifiedAgainAndSkipsNothingElse) {
  const auto sealed = hash_seal(sample_claims(), kKey);
  ASSERT_TRUE(run(sealed));
  ASSERT_TRUE(run(sealed));
  EXPECT_EQ(signatures_.calls, 1);
  context_.demand.peer = filled<HolderId>(0x42);
  EXPECT_EQ(run(sealed).error(), DenyReason::kWrongHolder);
  context_.demand = demand_of(sample_claims());
  context_.now = kIssuedAt + 200s;
  EXPECT_EQ(run(sealed).error(), DenyReason::kExpired);
  EXPECT_EQ(signatures_.calls, 1);
}

TEST_F(Verify, P4_KeyStateIsCheckedOnACacheHit) {
  const auto sealed = hash_seal(sample_claims(), kKey);
  ASSERT_TRUE(run(sealed));
  auto bundle = testing::sample_bundle();
  bundle.version.value += 1;
  bundle.keys[0].state = KeyState::kCompromised;
  bundle.keys.push_back({{2}, KeyState::kActive, filled<PublicKey>(0xe2), {}});
  ASSERT_EQ(keys_.install(bundle, kIssuedAt), std::nullopt);
  EXPECT_EQ(run(sealed).error(), DenyReason::kCompromisedKey) << "even before the cache is emptied";
}

TEST_F(Verify, P4_ABadSignatureIsNeverRemembered) {
  auto forged = hash_seal(sample_claims(), filled<PublicKey>(0xee));
  EXPECT_EQ(run(forged).error(), DenyReason::kBadSignature);
  EXPECT_EQ(cache_.size(), 0U);
  EXPECT_EQ(run(forged).error(), DenyReason::kBadSignature);
  EXPECT_EQ(signatures_.calls, 2);
}

TEST_F(Verify, C011_AKeyIdIsOnlyItsOwnKeyOfItsOwnIssuer) {
  auto bundle = testing::sample_bundle();
  bundle.version.value += 1;
  bundle.keys.push_back({{2}, KeyState::kActive, filled<PublicKey>(0xe2), {}});
  ASSERT_EQ(keys_.install(bundle, kIssuedAt), std::nullopt);
  auto claims = sample_claims();
  claims.key = {2};
  EXPECT_EQ(denial(claims), DenyReason::kBadSignature) << "names key 2, signed by key 1";
  claims = sample_claims();
  claims.issuer = *Issuer::parse("other");
  EXPECT_EQ(denial(claims), DenyReason::kUnknownKey) << "the other issuer's key 1";
  claims = sample_claims();
  claims.key = {9};
  EXPECT_EQ(denial(claims), DenyReason::kUnknownKey);
}

TEST_F(Verify, WorksWithoutACache) {
  const auto sealed = hash_seal(sample_claims(), kKey);
  EXPECT_TRUE(verify(sealed, keys_, signatures_, nullptr, context_));
}

TEST(DenyReasons, HaveDistinctNames) {
  std::set<std::string_view> names;
  for (int i = 1; i <= 17; ++i) names.insert(to_string(static_cast<DenyReason>(i)));
  EXPECT_EQ(names.size(), 17U);
}

}  // namespace
}  // namespace space::identity
