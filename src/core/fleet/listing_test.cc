#include "core/fleet/listing.h"

#include <gtest/gtest.h>

namespace space::fleet {
namespace {

constexpr WallTime kStart{std::chrono::seconds{1'800'000'000}};

Sandbox sandbox() {
  Sandbox made;
  made.team = *TeamId::parse("team-a");
  made.state = SandboxState::kRunning;
  made.template_name = "base";
  made.metadata = {{"app", "web"}, {"stage", "test"}};
  made.started_at = kStart;
  return made;
}

TEST(Listing, C110_EveryPartOfAFilterCounts) {
  Filter filter;
  filter.team = *TeamId::parse("team-a");
  EXPECT_TRUE(matches(filter, sandbox()));
  const auto with = [&](auto change) {
    auto changed = filter;
    change(changed);
    return matches(changed, sandbox());
  };
  EXPECT_FALSE(with([](Filter& f) { f.team = *TeamId::parse("team-b"); }));
  EXPECT_TRUE(with([](Filter& f) { f.states = {SandboxState::kPaused, SandboxState::kRunning}; }));
  EXPECT_FALSE(with([](Filter& f) { f.states = {SandboxState::kPaused}; }));
  EXPECT_TRUE(with([](Filter& f) { f.template_name = "base"; }));
  EXPECT_FALSE(with([](Filter& f) { f.template_name = "host"; }));
  EXPECT_TRUE(with([](Filter& f) { f.metadata = {{"stage", "test"}}; }));
  EXPECT_TRUE(with([](Filter& f) { f.metadata = {{"app", "web"}, {"stage", "test"}}; }));
  EXPECT_FALSE(with([](Filter& f) { f.metadata = {{"app", "web"}, {"stage", "live"}}; }));
  EXPECT_FALSE(with([](Filter& f) { f.metadata = {{"stag", "test"}}; }));
  EXPECT_TRUE(with([](Filter& f) { f.started_after = kStart - std::chrono::milliseconds(1); }));
  EXPECT_FALSE(with([](Filter& f) { f.started_after = kStart; }));
}

TEST(Listing, C110_AKilledSandboxIsNeverShown) {
  auto killed = sandbox();
  killed.state = SandboxState::kKilled;
  Filter filter;
  filter.team = killed.team;
  EXPECT_FALSE(matches(filter, killed));
  filter.states = {SandboxState::kKilled};
  EXPECT_FALSE(matches(filter, killed));
}

TEST(Listing, C110_APageEndsAtItsLimitOrWhenEnoughWasLookedAt) {
  using Verdict = Pager::Verdict;
  Filter filter;
  filter.team = sandbox().team;
  filter.template_name = "base";
  const auto at = [](int second, const char* name) {
    auto made = sandbox();
    made.started_at = kStart + std::chrono::seconds(second);
    made.template_name = name;
    return made;
  };
  Pager exact(filter, 2, 100);
  EXPECT_EQ(exact.offer(at(1, "base")), Verdict::kTaken);
  EXPECT_EQ(exact.offer(at(2, "host")), Verdict::kSkipped);
  EXPECT_EQ(exact.offer(at(3, "base")), Verdict::kTaken);
  EXPECT_EQ(exact.offer(at(4, "host")), Verdict::kSkipped);
  EXPECT_FALSE(exact.next()) << "the second page would be empty";
  EXPECT_EQ(exact.offer(at(5, "base")), Verdict::kFull);
  EXPECT_EQ(exact.next(), position_of(at(4, "host")));

  Pager tired(filter, 2, 2);
  EXPECT_EQ(tired.offer(at(1, "host")), Verdict::kSkipped);
  EXPECT_EQ(tired.offer(at(2, "host")), Verdict::kSkipped);
  EXPECT_EQ(tired.offer(at(3, "host")), Verdict::kFull);
  EXPECT_EQ(tired.next(), position_of(at(2, "host")));
}

}  // namespace
}  // namespace space::fleet
