#include "core/identity/lease.h"

#include <gtest/gtest.h>

#include "core/identity/key_bundle.h"
#include "core/identity/testing/samples.h"

namespace space::identity {
namespace {

using namespace std::chrono_literals;
using testing::filled;
using testing::kIssuedAt;
using testing::sample_claims;
using testing::sample_port_claims;

using Ids = std::vector<LeaseId>;
constexpr WallTime kDeadline = kIssuedAt + 135s;
const Epoch kEpoch{.boot = filled<BootNonce>(0xb0), .counter = 4};

// A verified capability with the claims, minted at its issue time.
VerifiedCapability verified(const Claims& claims) {
  KeyRing keys;
  auto bundle = testing::sample_bundle();
  bundle.keys[0].id = claims.key;
  bundle.valid_until = claims.issued_at + kBundleValidity;
  EXPECT_EQ(keys.install(bundle, claims.issued_at), std::nullopt);
  const testing::KeyedHashVerifier signatures;
  auto verdict = verify(testing::hash_seal(claims, bundle.keys[0].key), keys, signatures, nullptr,
                        {.now = claims.issued_at, .demand = testing::demand_of(claims)});
  EXPECT_TRUE(verdict);
  return *std::move(verdict);
}
Claims later(Claims claims, std::chrono::seconds by = 60s) {
  claims.issued_at += by;
  claims.expires_at += by;
  claims.id = filled<CapabilityId>(0x2d);
  return claims;
}

class Leases : public ::testing::Test {
 protected:
  LeaseId take(const Claims& claims) { return table_.take(claims, kEpoch, kMaxClockTolerance); }
  std::optional<DenyReason> renew(LeaseId id, const Claims& fresh, WallTime now = kIssuedAt + 60s) {
    return table_.renew(id, verified(fresh), kMaxClockTolerance, now);
  }
  LeaseTable table_;
};

TEST_F(Leases, P10_ALeaseKeepsWhatItWasTakenFor) {
  const auto id = take(sample_port_claims());
  const auto* const lease = table_.live(id, kIssuedAt);
  ASSERT_NE(lease, nullptr);
  EXPECT_EQ(lease->id, id);
  EXPECT_EQ(lease->epoch, kEpoch);
  EXPECT_EQ(lease->route, sample_claims().route);
  EXPECT_EQ(lease->sandbox, sample_claims().route.sandbox);
  EXPECT_EQ(lease->session, sample_claims().session);
  EXPECT_EQ(lease->holder, sample_claims().holder);
  EXPECT_EQ(lease->port, 8080);
  EXPECT_EQ(lease->deadline, kDeadline);
  EXPECT_NE(take(sample_claims()), id);
  EXPECT_EQ(table_.live({0}, kIssuedAt), nullptr);
}

TEST_F(Leases, P11_EndsAtCapabilityExpiryPlusToleranceEvenBeforeItIsSwept) {
  const auto id = take(sample_claims());
  EXPECT_NE(table_.live(id, kDeadline - 1ms), nullptr);
  EXPECT_EQ(table_.live(id, kDeadline), nullptr);
  EXPECT_EQ(table_.size(), 1U);
  EXPECT_EQ(table_.end_expired(kDeadline - 1ms), Ids{});
  EXPECT_EQ(table_.end_expired(kDeadline), Ids{id});
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(Leases, CAP3_NoToleranceStretchesALeaseBeyond15Seconds) {
  const auto longest = table_.take(sample_claims(), kEpoch, std::chrono::milliseconds::max());
  EXPECT_EQ(table_.live(longest, kDeadline), nullptr);
  const auto shortest = table_.take(sample_claims(), kEpoch, std::chrono::milliseconds::min());
  EXPECT_EQ(table_.live(shortest, kIssuedAt + 120s), nullptr);
  EXPECT_NE(table_.live(shortest, kIssuedAt + 120s - 1ms), nullptr);
}

TEST_F(Leases, P11_AFreshCapabilityOfTheSameRightExtends) {
  const auto id = take(sample_claims());
  EXPECT_EQ(renew(id, later(sample_claims())), std::nullopt);
  EXPECT_NE(table_.live(id, kDeadline), nullptr);
  EXPECT_EQ(table_.next_deadline(), kDeadline + 60s);
  EXPECT_EQ(table_.end_expired(kDeadline), Ids{});
  EXPECT_EQ(table_.end_expired(kDeadline + 60s), Ids{id});
}

TEST_F(Leases, P11_ARenewalNeverShortens) {
  const auto id = take(later(sample_claims()));
  EXPECT_EQ(renew(id, sample_claims()), std::nullopt);
  EXPECT_EQ(table_.next_deadline(), kDeadline + 60s);
}

TEST_F(Leases, P12_AnAttemptChangeKeepsTheStreamRenewable) {
  const auto id = take(sample_claims());
  auto fresh = later(sample_claims());
  fresh.attempt = {2};
  EXPECT_EQ(renew(id, fresh), std::nullopt);
}

TEST_F(Leases, P11_AnyOtherRightIsASessionMismatchAndChangesNothing) {
  auto base = sample_port_claims();
  base.constraint = filled<ConstraintHash>(0xc0);
  const auto id = take(base);
  std::vector<Claims> others(12, later(base));
  others[0].session = filled<SessionId>(0x52);
  others[1].holder = filled<HolderId>(0x42);
  others[2].route.sandbox = *SandboxId::parse("other");
  others[3].route.generation = {8};
  others[4].route.worker = *WorkerId::parse("worker-b");
  others[5].route.substrate = Substrate::kHost;
  others[6].route.activation = filled<ActivationId>(0xa2);
  others[7].route.pod_uid = std::nullopt;
  others[8].port = 8081;
  others[9].protocol = PortProtocol::kTcp;
  others[10].constraint = std::nullopt;
  others[11] = later(sample_claims());  // the other purpose
  for (const auto& other : others) {
    EXPECT_EQ(renew(id, other), DenyReason::kSessionMismatch);
  }
  EXPECT_EQ(table_.next_deadline(), kDeadline);

  const auto control = take(sample_claims());
  auto wider = later(sample_claims());
  wider.access = wider.access.with(Access::kWatch);
  EXPECT_EQ(renew(control, wider), DenyReason::kSessionMismatch);
  auto narrower = later(sample_claims());
  narrower.access = AccessSet{}.with(Access::kFilesRead);
  EXPECT_EQ(renew(control, narrower), DenyReason::kSessionMismatch);
}

TEST_F(Leases, C021_AnEndedLeaseCannotBeRenewed) {
  const auto id = take(sample_claims());
  EXPECT_EQ(renew(id, later(sample_claims(), 100s), kDeadline), DenyReason::kExpired)
      << "past its deadline, though nobody swept it";
  table_.release(id);
  EXPECT_EQ(renew(id, later(sample_claims())), DenyReason::kExpired);
}

TEST_F(Leases, P11_EndsByCauseInAscendingOrderAndOnlyThose) {
  auto other_sandbox = sample_claims();
  other_sandbox.route.sandbox = *SandboxId::parse("other");
  auto other_session = later(sample_claims());
  other_session.session = filled<SessionId>(0x52);
  auto other_key = sample_claims();
  other_key.key = {2};
  const auto a = take(later(sample_claims()));
  const auto b = take(other_sandbox);
  const auto c = take(other_session);
  const auto d = take(other_key);
  const auto e = take(sample_claims());
  EXPECT_EQ(table_.count(sample_claims().route.sandbox), 4U);
  EXPECT_EQ(table_.end_key({2}), Ids{d});
  EXPECT_EQ(table_.end_session(other_session.session), Ids{c});
  EXPECT_EQ(table_.end_sandbox(sample_claims().route.sandbox), (Ids{a, e}));
  EXPECT_EQ(table_.count(sample_claims().route.sandbox), 0U);
  EXPECT_EQ(table_.live(a, kIssuedAt), nullptr);
  EXPECT_NE(table_.live(b, kIssuedAt), nullptr);
  EXPECT_EQ(table_.next_deadline(), kDeadline);
  EXPECT_EQ(table_.end_all(), Ids{b});
  EXPECT_EQ(table_.next_deadline(), std::nullopt);
  EXPECT_EQ(table_.end_all(), Ids{});
}

TEST_F(Leases, P11_ExpiryReportsAscendingIdsWhateverTheDeadlines) {
  const auto a = take(later(sample_claims()));
  const auto b = take(sample_claims());
  EXPECT_EQ(table_.end_expired(kDeadline + 60s), (Ids{a, b}));
}

TEST_F(Leases, P6_ACompromisedKeyEndsWhatItOpenedOrLastRenewed) {
  const auto opened = take(sample_claims());
  const auto renewed = take(sample_claims());
  auto fresh = later(sample_claims());
  fresh.key = {2};
  ASSERT_EQ(renew(renewed, fresh), std::nullopt);
  EXPECT_EQ(table_.end_key({2}), Ids{renewed});
  EXPECT_EQ(table_.end_key({1}), Ids{opened});
  const auto both = take(sample_claims());
  ASSERT_EQ(renew(both, fresh), std::nullopt);
  EXPECT_EQ(table_.end_key({1}), Ids{both});
}

TEST_F(Leases, ReleasingTwiceIsHarmless) {
  const auto id = take(sample_claims());
  table_.release(id);
  table_.release(id);
  EXPECT_EQ(table_.size(), 0U);
  EXPECT_EQ(table_.next_deadline(), std::nullopt);
}

TEST(LeaseTableProperty, P11_AgreesWithAPlainListOverRandomOperations) {
  struct Model {
    LeaseId id;
    Claims claims;
  };
  testing::SplitMix random(11);
  LeaseTable table;
  std::vector<Model> model;
  const auto end = [&](auto matches) {
    Ids ended;
    std::erase_if(model, [&](const Model& m) {
      if (!matches(m.claims)) return false;
      ended.push_back(m.id);
      return true;
    });
    return ended;
  };
  for (int step = 0; step < 5'000; ++step) {
    auto claims = later(sample_claims(), std::chrono::seconds{random.below(300)});
    claims.session = filled<SessionId>(static_cast<std::uint8_t>(random.below(6)));
    claims.route.sandbox = *SandboxId::parse("s" + std::to_string(random.below(6)));
    claims.key = {static_cast<std::uint32_t>(1 + random.below(12))};
    const auto now = kIssuedAt + std::chrono::seconds{random.below(150)};
    switch (random.below(40)) {
      case 0:
        ASSERT_EQ(table.end_session(claims.session),
                  end([&](const Claims& c) { return c.session == claims.session; }));
        break;
      case 1:
        ASSERT_EQ(table.end_sandbox(claims.route.sandbox),
                  end([&](const Claims& c) { return c.route.sandbox == claims.route.sandbox; }));
        break;
      case 2:
        ASSERT_EQ(table.end_key(claims.key),
                  end([&](const Claims& c) { return c.key == claims.key; }));
        break;
      case 3:
        ASSERT_EQ(table.end_expired(now),
                  end([&](const Claims& c) { return c.expires_at + 15s <= now; }));
        break;
      default:
        model.push_back({table.take(claims, kEpoch, 15s), claims});
    }
    ASSERT_EQ(table.size(), model.size());
  }
}

}  // namespace
}  // namespace space::identity
