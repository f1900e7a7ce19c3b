#include "core/identity/comparator.h"

#include <gtest/gtest.h>

#include "core/identity/testing/samples.h"

namespace space::identity {
namespace {

using testing::filled;
using testing::sample_claims;
using testing::sample_record;

const SandboxId kSandbox = testing::sample_route().sandbox;
const SandboxId kOther = *SandboxId::parse("sbxbbbbbbbbbbbbbbbbb");
constexpr Comparison kStale = RefreshRoute{RefreshReason::kStale};
constexpr Comparison kNotYet = RefreshRoute{RefreshReason::kNotYet};
constexpr Comparison kConflict = RefreshRoute{RefreshReason::kConflict};
constexpr Comparison kNotHere = RefreshRoute{RefreshReason::kNotHere};

Comparison compare_with(const Claims& claims, const RuntimeRecord& record) {
  return compare(claims.route.sandbox, claims, {.only_sandbox = {}, .record = &record});
}

// Every placement that differs from the sample's in exactly one field.
std::vector<RouteIdentity> other_placements() {
  std::vector<RouteIdentity> others(5, testing::sample_route());
  others[0].worker = *WorkerId::parse("worker-b");
  others[1].substrate = Substrate::kHost;
  others[2].activation = filled<ActivationId>(0xa2);
  others[3].pod_uid = PodUid::parse("11111111-2222-3333-4444-555555555556");
  others[4].pod_uid = std::nullopt;
  return others;
}

TEST(Comparator, RCV5_AllEqualIsAMatch) {
  EXPECT_EQ(compare_with(sample_claims(), sample_record()), Comparison(Match{}));
}

TEST(Comparator, RCV5_AnotherSandboxIsDenied) {
  const auto record = sample_record();
  EXPECT_EQ(compare(kOther, sample_claims(), {.only_sandbox = {}, .record = &record}),
            Comparison(Deny{}));
  EXPECT_EQ(compare(kOther, sample_claims(), {.only_sandbox = {}, .record = nullptr}),
            Comparison(Deny{}));
  EXPECT_EQ(compare(kSandbox, sample_claims(), {.only_sandbox = kOther, .record = &record}),
            Comparison(Deny{}));
  EXPECT_EQ(compare(kSandbox, sample_claims(), {.only_sandbox = kOther, .record = nullptr}),
            Comparison(Deny{}));
  auto others_record = record;
  others_record.route.sandbox = kOther;
  EXPECT_EQ(compare_with(sample_claims(), others_record), Comparison(Deny{}));
}

TEST(Comparator, P8_ASingleSandboxReceiverMatchesItsOwn) {
  const auto record = sample_record();
  EXPECT_EQ(compare(kSandbox, sample_claims(), {.only_sandbox = kSandbox, .record = &record}),
            Comparison(Match{}));
}

TEST(Comparator, P8_WithoutARecordTheRouteIsNotHere) {
  EXPECT_EQ(compare(kSandbox, sample_claims(), {}), kNotHere);
  EXPECT_EQ(compare(kSandbox, sample_claims(), {.only_sandbox = kSandbox, .record = nullptr}),
            kNotHere);
}

TEST(Comparator, ID4_SelectedForEightLandsOnSevenAndFails) {
  auto claims = sample_claims();
  claims.route.generation = {8};
  EXPECT_EQ(compare_with(claims, sample_record()), kNotYet);
}

TEST(Comparator, RCV3_SelectedForSevenAfterEightIsInstalledIsStale) {
  auto record = sample_record();
  record.route.generation = {8};
  EXPECT_EQ(compare_with(sample_claims(), record), kStale);
}

TEST(Comparator, P8_TheGenerationDecidesBeforePlacementAndAttempt) {
  for (const auto& other : other_placements()) {
    auto record = sample_record();
    record.route = other;
    record.attempt = {5};
    auto claims = sample_claims();
    claims.route.generation = {6};
    EXPECT_EQ(compare_with(claims, record), kStale);
    claims.route.generation = {8};
    EXPECT_EQ(compare_with(claims, record), kNotYet);
  }
}

TEST(Comparator, ID4_P8_AnyOtherPlacementOfAnEqualGenerationIsAConflict) {
  for (const auto& other : other_placements()) {
    for (const std::uint32_t attempt : {1U, 2U}) {
      auto record = sample_record();
      record.route = other;
      record.attempt = {attempt};
      EXPECT_EQ(compare_with(sample_claims(), record), kConflict);
      // The other way round: the capability has what the record has not.
      auto claims = sample_claims();
      claims.route = other;
      claims.attempt = {attempt};
      EXPECT_EQ(compare_with(claims, sample_record()), kConflict);
    }
  }
}

TEST(Comparator, ID4_AnAbsentPodUidEqualsOnlyAnAbsentOne) {
  auto record = sample_record();
  auto claims = sample_claims();
  record.route.pod_uid = std::nullopt;
  claims.route.pod_uid = std::nullopt;
  EXPECT_EQ(compare_with(claims, record), Comparison(Match{}));
}

TEST(Comparator, P8_AnotherAttemptIsStaleInBothDirections) {
  auto record = sample_record();
  auto claims = sample_claims();
  claims.attempt = {2};
  EXPECT_EQ(compare_with(claims, record), kStale);
  claims.attempt = {1};
  record.attempt = {2};
  EXPECT_EQ(compare_with(claims, record), kStale);
}

TEST(Comparator, ID5_OwnerAndOperationAreNotCompared) {
  auto record = sample_record();
  record.owner = *OwnerId::parse("replica-2");
  record.operation = filled<OperationId>(0x0a);
  record.guest_process = {};
  record.transport = {};
  EXPECT_EQ(compare_with(sample_claims(), record), Comparison(Match{}));
}

TEST(Comparator, P8_TheExtremesOfAGenerationOrderAsNumbers) {
  auto record = sample_record();
  auto claims = sample_claims();
  record.route.generation = {UINT64_MAX};
  claims.route.generation = {1};
  EXPECT_EQ(compare_with(claims, record), kStale);
  std::swap(record.route.generation, claims.route.generation);
  EXPECT_EQ(compare_with(claims, record), kNotYet);
}

class JudgeInstall : public ::testing::Test {
 protected:
  InstallVerdict judge(const RuntimeRecord& next) const {
    return judge_install(&installed_, installed_.route.generation, next);
  }
  RuntimeRecord installed_ = sample_record();
  RuntimeRecord next_ = sample_record();
};

TEST_F(JudgeInstall, RCV3_OnlyAGenerationAboveTheFloorReplaces) {
  next_.route.generation = {8};
  EXPECT_EQ(judge(next_), InstallVerdict::kReplace);
  next_.route.worker = *WorkerId::parse("worker-b");
  EXPECT_EQ(judge(next_), InstallVerdict::kReplace);
  next_.route.generation = {6};
  EXPECT_EQ(judge(next_), InstallVerdict::kBehindFloor);
}

TEST_F(JudgeInstall, P13_TheFloorOutlivesTheRecord) {
  EXPECT_EQ(judge_install(nullptr, {0}, next_), InstallVerdict::kReplace);
  EXPECT_EQ(judge_install(nullptr, {6}, next_), InstallVerdict::kReplace);
  EXPECT_EQ(judge_install(nullptr, {7}, next_), InstallVerdict::kBehindFloor);
  EXPECT_EQ(judge_install(nullptr, {8}, next_), InstallVerdict::kBehindFloor);
}

TEST_F(JudgeInstall, RCV3_ARecordBelowTheFloorIsNoReasonToGoBackwards) {
  EXPECT_EQ(judge_install(&installed_, {9}, next_), InstallVerdict::kBehindFloor);
  next_.route.generation = {8};
  EXPECT_EQ(judge_install(&installed_, {9}, next_), InstallVerdict::kBehindFloor);
  EXPECT_EQ(judge_install(&installed_, {0}, sample_record()), InstallVerdict::kIdentical)
      << "a floor below the installed record counts as the record's";
  next_.route.generation = {6};
  EXPECT_EQ(judge_install(&installed_, {0}, next_), InstallVerdict::kBehindFloor);
}

TEST_F(JudgeInstall, P13_ARedeliveryIsIdentical) {
  EXPECT_EQ(judge(next_), InstallVerdict::kIdentical);
  next_.guest_process = {};
  next_.transport = {};
  next_.runtime_handle = {};
  EXPECT_EQ(judge(next_), InstallVerdict::kIdentical)
      << "the control plane does not name what the receiver found";
}

TEST_F(JudgeInstall, P13_EqualGenerationWithOtherPlacementConflicts) {
  for (const auto& other : other_placements()) {
    next_.route = other;
    EXPECT_EQ(judge(next_), InstallVerdict::kConflicting);
    next_.attempt = {2};
    EXPECT_EQ(judge(next_), InstallVerdict::kConflicting);
    next_.attempt = {1};
  }
}

TEST_F(JudgeInstall, P13_ASecondRuntimeUnderOneGenerationConflicts) {
  next_.attempt = {2};
  next_.guest_process->start_time_ticks += 1;
  EXPECT_EQ(judge(next_), InstallVerdict::kConflicting);
}

TEST_F(JudgeInstall, P13_TheSameOperationWithOtherPublicPidsConflicts) {
  next_.first_public_pid += kPublicPidBlock;
  EXPECT_EQ(judge(next_), InstallVerdict::kConflicting);
}

TEST_F(JudgeInstall, P12_OwnerOrAttemptAdvancedKeepsTheRoute) {
  next_.owner = *OwnerId::parse("replica-2");
  EXPECT_EQ(judge(next_), InstallVerdict::kSameRoute);
  next_.attempt = {2};
  EXPECT_EQ(judge(next_), InstallVerdict::kSameRoute);
  next_ = sample_record();
  next_.operation = filled<OperationId>(0x0a);
  EXPECT_EQ(judge(next_), InstallVerdict::kSameRoute);
}

TEST_F(JudgeInstall, P13_AnAttemptNeverGoesBackwards) {
  installed_.attempt = {3};
  next_.attempt = {2};
  EXPECT_EQ(judge(next_), InstallVerdict::kAttemptBackwards);
  next_.owner = *OwnerId::parse("replica-2");
  EXPECT_EQ(judge(next_), InstallVerdict::kAttemptBackwards);
}

TEST(JudgeInstallProperty, RCV3_NoSequenceOfInstallsLowersTheGeneration) {
  testing::SplitMix random(7);
  for (int run = 0; run < 200; ++run) {
    std::optional<RuntimeRecord> installed;
    Generation floor{0};
    for (int step = 0; step < 50; ++step) {
      auto next = sample_record();
      next.route.generation = {1 + random.below(6)};
      next.attempt = {static_cast<std::uint32_t>(1 + random.below(3))};
      if (random.below(4) == 0) next.route.activation = random.id<ActivationId>();
      const auto verdict = judge_install(installed ? &*installed : nullptr, floor, next);
      if (verdict == InstallVerdict::kReplace) {
        ASSERT_GT(next.route.generation, floor);
        installed = next;
        floor = next.route.generation;
      } else if (verdict == InstallVerdict::kSameRoute) {
        ASSERT_EQ(next.route, installed->route);
        ASSERT_GE(next.attempt, installed->attempt);
        installed = next;
      }
      if (random.below(10) == 0) installed.reset();
    }
  }
}

}  // namespace
}  // namespace space::identity
