#include "core/fleet/lifecycle.h"

#include <gtest/gtest.h>

namespace space::fleet {
namespace {

const WorkerId kW1 = *WorkerId::parse("w1");
const WorkerId kW2 = *WorkerId::parse("w2");
constexpr WallTime kNow{std::chrono::milliseconds{1'800'000'000'000}};

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    auto z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % bound;
  }

 private:
  std::uint64_t state_;
};

Operation operation(OperationKind kind, std::optional<WorkerId> target = {}) {
  static std::uint8_t next = 0;
  Operation made;
  made.id = *OperationId::from(Bytes(16, static_cast<std::byte>(++next)));
  made.kind = kind;
  made.target = std::move(target);
  return made;
}

Snapshot fresh() {
  Snapshot snapshot;
  snapshot.sandbox.id = *SandboxId::parse("sandbox");
  EXPECT_TRUE(begin(snapshot, operation(OperationKind::kCreate, kW1)));
  return snapshot;
}

// What the store does between two steps: gone executions are not loaded again.
void reload(Snapshot& snapshot) {
  std::erase_if(snapshot.executions,
                [](const Execution& e) { return e.state == ExecutionState::kGone; });
}

void succeed(Snapshot& snapshot, NextStep step) {
  const auto generation = step.generation;
  switch (step.step) {
    case Step::kNone:
      break;
    case Step::kAllocate:
      EXPECT_TRUE(allocate(snapshot, {{}, {}, identity::Substrate::kHost, Bytes(32)}));
      break;
    case Step::kStart:
      started(snapshot, generation, "rt" + std::to_string(generation.value));
      break;
    case Step::kThaw:
      thawed(snapshot, generation, "thawed");
      break;
    case Step::kInstall:
      installing(snapshot, generation);
      installed(snapshot, generation);
      break;
    case Step::kFreeze:
      frozen(snapshot, generation, find(snapshot, generation)->handle);
      break;
    case Step::kRetire:
      retired(snapshot, generation);
      break;
    case Step::kPublish:
      publishing(snapshot, generation, "artifact" + std::to_string(generation.value));
      published(snapshot, "artifact" + std::to_string(generation.value));
      break;
    case Step::kDiscard:
      discarded(snapshot, generation);
      break;
    case Step::kFinish:
      finish(snapshot, kNow);
      break;
  }
  reload(snapshot);
}

std::vector<Step> complete(Snapshot& snapshot) {
  std::vector<Step> steps;
  while (snapshot.sandbox.operation) {
    const auto step = next_step(snapshot, {});
    steps.push_back(step.step);
    succeed(snapshot, step);
    if (steps.size() > 50) break;
  }
  return steps;
}

Snapshot running() {
  auto snapshot = fresh();
  complete(snapshot);
  return snapshot;
}
Snapshot paused() {
  auto snapshot = running();
  EXPECT_TRUE(begin(snapshot, operation(OperationKind::kPause)));
  complete(snapshot);
  return snapshot;
}

using Steps = std::vector<Step>;

TEST(Lifecycle, LC1_EachOperationHasItsSteps) {
  auto snapshot = fresh();
  EXPECT_EQ(complete(snapshot),
            (Steps{Step::kAllocate, Step::kStart, Step::kInstall, Step::kFinish}));
  EXPECT_EQ(snapshot.sandbox.state, SandboxState::kRunning);
  ASSERT_TRUE(serving(snapshot));
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kPause)));
  EXPECT_FALSE(serving(snapshot));  // P-3: retiring
  EXPECT_EQ(complete(snapshot), (Steps{Step::kFreeze, Step::kRetire, Step::kFinish}));
  EXPECT_EQ(snapshot.sandbox.state, SandboxState::kPaused);
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW1)));
  EXPECT_EQ(complete(snapshot),
            (Steps{Step::kAllocate, Step::kThaw, Step::kInstall, Step::kFinish}));
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kMove, kW2)));
  EXPECT_EQ(complete(snapshot),
            (Steps{Step::kFreeze, Step::kRetire, Step::kPublish, Step::kAllocate, Step::kStart,
                   Step::kInstall, Step::kFinish}));
  EXPECT_EQ(serving(snapshot)->route.worker, kW2);
  EXPECT_EQ(serving(snapshot)->artifact, "artifact2");
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kKill)));
  EXPECT_EQ(complete(snapshot), (Steps{Step::kDiscard, Step::kDiscard, Step::kFinish}));
  EXPECT_EQ(snapshot.sandbox.state, SandboxState::kKilled);
  EXPECT_EQ(next_step(snapshot, {}), NextStep{});
}

TEST(Lifecycle, LC1_OperationsBeginOnlyWhereTheyMay) {
  const auto allowed = [](Snapshot snapshot, OperationKind kind) {
    const auto before = snapshot;
    const bool begun = begin(snapshot, operation(kind, kW1)).has_value();
    if (!begun) EXPECT_EQ(snapshot, before);
    return begun;
  };
  for (auto state = SandboxState::kCreating; wire::is_known(state);
       state = static_cast<SandboxState>(std::to_underlying(state) + 1)) {
    auto snapshot = running();
    snapshot.sandbox.state = state;
    SCOPED_TRACE(wire::to_string(state));
    EXPECT_FALSE(allowed(snapshot, OperationKind::kCreate));
    EXPECT_EQ(allowed(snapshot, OperationKind::kPause), state == SandboxState::kRunning);
    EXPECT_EQ(allowed(snapshot, OperationKind::kResume), state == SandboxState::kPaused);
    EXPECT_EQ(allowed(snapshot, OperationKind::kMove),
              state == SandboxState::kRunning || state == SandboxState::kPaused);
    EXPECT_EQ(allowed(snapshot, OperationKind::kKill), state != SandboxState::kKilled);
  }
}

TEST(Lifecycle, LC1_WhatTheEndOfItsTimeMeansForASandbox) {
  for (const auto action : {wire::TimeoutAction::kKill, wire::TimeoutAction::kPause}) {
    for (auto state = SandboxState::kCreating; wire::is_known(state);
         state = static_cast<SandboxState>(std::to_underlying(state) + 1)) {
      SCOPED_TRACE(wire::to_string(state));
      auto snapshot = running();
      auto& sandbox = snapshot.sandbox;
      sandbox.state = state;
      sandbox.on_timeout = action;
      sandbox.ends_at = kNow;
      EXPECT_FALSE(at_timeout(sandbox, kNow - std::chrono::milliseconds(1)));
      const auto kind = at_timeout(sandbox, kNow);
      const bool pauses = action == wire::TimeoutAction::kPause;
      if (state == SandboxState::kRunning) {
        EXPECT_EQ(kind, pauses ? OperationKind::kPause : OperationKind::kKill);
      } else if (state == SandboxState::kLost && !pauses) {
        EXPECT_EQ(kind, OperationKind::kKill);
      } else if (state == SandboxState::kCreating || state == SandboxState::kFailed) {
        EXPECT_EQ(kind, OperationKind::kKill);  // it never served
      } else {
        EXPECT_FALSE(kind);
      }
      auto wanted = operation(OperationKind::kKill);
      wanted.begun_at = kNow;
      const auto before = snapshot;
      EXPECT_EQ(begin_timeout(snapshot, wanted).has_value(), kind.has_value());
      if (kind) {
        EXPECT_EQ(snapshot.sandbox.operation->kind, *kind);
      } else {
        EXPECT_EQ(snapshot, before);
      }
    }
  }
}

TEST(Lifecycle, C089_APauseThatFailsAtTheTimeoutIsDueAgainLaterAndAnotherChangesNothing) {
  for (const auto left : {std::chrono::seconds(0), std::chrono::seconds(5)}) {
    auto snapshot = running();
    snapshot.sandbox.ends_at = kNow + left;
    auto pause = operation(OperationKind::kPause);
    pause.begun_at = kNow;
    ASSERT_TRUE(begin(snapshot, pause));
    fail(snapshot, next_step(snapshot, {}), "no space");
    EXPECT_EQ(snapshot.sandbox.state, SandboxState::kRunning);
    EXPECT_EQ(snapshot.sandbox.ends_at, kNow + (left.count() == 0 ? kPauseAgain : left));
  }
}

TEST(Lifecycle, P36_AnArtifactGoesAfterWhatMayHaveBeenStartedFromIt) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  succeed(snapshot, next_step(snapshot, {}));  // publish
  succeed(snapshot, next_step(snapshot, {}));  // allocate; the start has no known outcome
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kKill)));
  EXPECT_EQ(next_step(snapshot, {}), (NextStep{Step::kDiscard, {2}}));
  EXPECT_EQ(next_step(snapshot, {{2}}).step, Step::kFinish);  // left for later, both
  discarded(snapshot, {2});
  EXPECT_EQ(next_step(snapshot, {}), (NextStep{Step::kDiscard, {1}}));
  EXPECT_EQ(find(snapshot, {1})->remove_artifacts, std::vector<std::string>{"artifact1"});
}

TEST(Lifecycle, P36_APublishWithoutAnAnswerLeavesNoArtifactBehind) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  publishing(snapshot, {1}, "artifact1");
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kKill)));
  EXPECT_EQ(find(snapshot, {1})->remove_artifacts, std::vector<std::string>{"artifact1"});
}

TEST(Lifecycle, LC1_ATimeThatWasExtendedMeanwhileIsNotOver) {
  auto snapshot = running();
  auto ending = operation(OperationKind::kKill);
  ending.begun_at = kNow;
  snapshot.sandbox.ends_at = kNow + std::chrono::seconds(1);
  EXPECT_FALSE(begin_timeout(snapshot, ending));
  EXPECT_EQ(snapshot.sandbox.state, SandboxState::kRunning);
}

TEST(Lifecycle, C091_WhatIsLeftOfALifeIsKeptHoweverThePauseCame) {
  for (const auto kind : {OperationKind::kPause, OperationKind::kMove}) {
    auto snapshot = running();
    snapshot.sandbox.ends_at = kNow + std::chrono::milliseconds(41'500);
    auto begun = operation(kind, kW2);
    begun.begun_at = kNow;
    ASSERT_TRUE(begin(snapshot, begun));
    succeed(snapshot, next_step(snapshot, {}));  // freeze
    succeed(snapshot, next_step(snapshot, {}));  // retire
    if (kind == OperationKind::kMove) {
      fail(snapshot, next_step(snapshot, {}), "no space");  // at publish
    } else {
      complete(snapshot);
    }
    EXPECT_EQ(snapshot.sandbox.state, SandboxState::kPaused);
    EXPECT_EQ(snapshot.sandbox.left_s, 42U);
    // A resume that fails leaves it.
    auto later = operation(OperationKind::kResume, kW1);
    later.begun_at = kNow + std::chrono::hours(1);
    ASSERT_TRUE(begin(snapshot, later));
    succeed(snapshot, next_step(snapshot, {}));
    fail(snapshot, next_step(snapshot, {}), "rekey: lost");
    EXPECT_EQ(snapshot.sandbox.left_s, 42U);
  }
}

TEST(Lifecycle, P15_NothingIsActivatedBeforeWhatMayServeIsRetired) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  // An earlier activation on w1 whose install had no known outcome.
  Execution stray = snapshot.executions[0];
  stray.route.generation = {2};
  stray.state = ExecutionState::kDiscarding;
  stray.maybe_installed = true;
  snapshot.sandbox.generation = {2};
  snapshot.sandbox.operation->base = {2};
  snapshot.executions.push_back(stray);
  succeed(snapshot, next_step(snapshot, {}));  // publish
  EXPECT_EQ(next_step(snapshot, {{2}}), (NextStep{Step::kDiscard, {2}}));
  retired(snapshot, {2});
  EXPECT_EQ(next_step(snapshot, {{2}}).step, Step::kAllocate);
}

TEST(Lifecycle, C094_AKillWaitsOnlyForWhatMayServe) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kKill)));
  const auto step = next_step(snapshot, {});
  EXPECT_EQ(step, (NextStep{Step::kDiscard, {1}}));
  EXPECT_EQ(next_step(snapshot, {{1}}).step, Step::kFinish);
  auto live = running();
  ASSERT_TRUE(begin(live, operation(OperationKind::kKill)));
  EXPECT_EQ(next_step(live, {{1}}), (NextStep{Step::kDiscard, {1}}));
}

TEST(Lifecycle, P35_AThawThatFailedMayHaveMovedTheDiskOn) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  succeed(snapshot, next_step(snapshot, {}));            // publish
  fail(snapshot, next_step(snapshot, {}), "no worker");  // at allocate
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW1)));
  succeed(snapshot, next_step(snapshot, {}));              // allocate
  fail(snapshot, next_step(snapshot, {}), "rekey: lost");  // at thaw
  EXPECT_TRUE(snapshot.sandbox.artifact.empty());
  reload(snapshot);
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  EXPECT_EQ(next_step(snapshot, {}).step, Step::kPublish);  // anew
}

TEST(Lifecycle, P35_AThawMakesThePublishedCopyStale) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  succeed(snapshot, next_step(snapshot, {}));
  EXPECT_EQ(snapshot.sandbox.artifact, "artifact1");
  fail(snapshot, next_step(snapshot, {}), "no worker");  // at allocate
  EXPECT_EQ(snapshot.sandbox.state, SandboxState::kPaused);
  EXPECT_EQ(snapshot.sandbox.artifact, "artifact1");
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW1)));
  succeed(snapshot, next_step(snapshot, {}));
  succeed(snapshot, next_step(snapshot, {}));  // thaw
  EXPECT_TRUE(snapshot.sandbox.artifact.empty());
  fail(snapshot, next_step(snapshot, {}), "no bridge");  // at install: parked again
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW2)));
  EXPECT_EQ(next_step(snapshot, {}).step, Step::kPublish);  // anew
}

TEST(Lifecycle, ID2_PublicPidsAndGenerationsRunOutBeforeTheyRepeat) {
  auto snapshot = paused();
  ASSERT_TRUE(begin(snapshot, operation(OperationKind::kResume, kW1)));
  ASSERT_TRUE(allocate(snapshot, {{41}, {}, identity::Substrate::kHost, Bytes(32)}));
  EXPECT_EQ(snapshot.sandbox.generation.value, 42U);  // past the receiver's floor
  snapshot.sandbox.next_public_pid = 0x7fffffff;
  EXPECT_FALSE(allocate(snapshot, {}));
}

// Random operations whose steps succeed or fail at random: nothing is lost, and everything ends.
TEST(Lifecycle, C088_AnySequenceOfFailuresKeepsTheOnlyCopy) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    Drawn drawn(seed);
    auto snapshot = fresh();
    Generation last;
    bool served = false;  // has files worth keeping
    for (int turn = 0; turn < 60; ++turn) {
      if (!snapshot.sandbox.operation) {
        const auto kind = static_cast<OperationKind>(2 + drawn.below(drawn.below(20) == 0 ? 4 : 3));
        (void)begin(snapshot, operation(kind, drawn.below(2) == 0 ? kW1 : kW2));
      }
      const auto step = next_step(snapshot, {});
      const bool killing = snapshot.sandbox.state == SandboxState::kKilling;
      const bool may_fail = snapshot.sandbox.operation && !killing && step.step != Step::kRetire &&
                            step.step != Step::kFinish && step.step != Step::kDiscard;
      if (may_fail && drawn.below(4) == 0) {
        if (step.step == Step::kInstall) installing(snapshot, step.generation);
        fail(snapshot, step, "injected");
        reload(snapshot);
      } else {
        succeed(snapshot, step);
      }
      served = served || serving(snapshot) != nullptr;

      ASSERT_GE(snapshot.sandbox.generation, last);
      last = snapshot.sandbox.generation;
      std::size_t may_serve = 0;
      std::size_t copies = 0;
      Generation previous;
      for (const auto& execution : snapshot.executions) {
        ASSERT_GT(execution.route.generation, previous);
        previous = execution.route.generation;
        if (execution.maybe_installed) ++may_serve;
        const bool kept = execution.state == ExecutionState::kInstalled ||
                          execution.state == ExecutionState::kRetiring ||
                          execution.state == ExecutionState::kParked ||
                          (execution.state == ExecutionState::kInstalling && execution.thaw);
        if (kept) ++copies;
      }
      ASSERT_LE(may_serve, 1U);
      if (served && !killing && snapshot.sandbox.state != SandboxState::kKilling &&
          snapshot.sandbox.state != SandboxState::kKilled) {
        ASSERT_GE(copies, 1U);
        ASSERT_NE(snapshot.sandbox.state, SandboxState::kFailed);
      }
      if (snapshot.sandbox.state == SandboxState::kPaused) ASSERT_TRUE(parked(snapshot));
      if (snapshot.sandbox.state == SandboxState::kRunning) ASSERT_TRUE(serving(snapshot));
    }
  }
}

TEST(Lifecycle, PlacementTakesTheEmptiestUsableWorkerWithRoom) {
  const std::vector<Candidate> all{{kW1, true, 3, 10}, {kW2, true, 1, 10}};
  EXPECT_EQ(place(all, std::nullopt, std::nullopt), kW2);
  EXPECT_EQ(place(all, kW1, std::nullopt), kW1);
  EXPECT_EQ(place(all, std::nullopt, kW2), kW1);
  EXPECT_EQ(place({{kW1, false, 0, 10}, {kW2, true, 10, 10}}, std::nullopt, std::nullopt),
            std::nullopt);
  EXPECT_EQ(place({{kW1, true, 1, 10}, {kW2, true, 1, 10}}, std::nullopt, std::nullopt), kW1);
}

}  // namespace
}  // namespace space::fleet
