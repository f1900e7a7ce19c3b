#pragma once
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/identity/sha256.h"
#include "ports/control_store.h"

// What every ControlStore must do, as one typed test: instantiate StoreConformance with a factory
// type that has `std::unique_ptr<ControlStore> open()`, which opens the same store again on a
// second call when `kDurable`.
namespace space::testing {

template <class T>
StoreResult<T> complete(Task<StoreResult<T>> task) {
  boost::asio::io_context loop;
  std::optional<StoreResult<T>> result;
  boost::asio::co_spawn(
      loop, std::move(task),
      [&](const std::exception_ptr&, StoreResult<T> value) { result = std::move(value); });
  loop.run();
  return *std::move(result);
}

template <class Id>
Id id_of(std::uint8_t value) {
  return *Id::from(Bytes(Id::kBytes, std::byte{value}));
}

inline WallTime at(std::int64_t seconds) {
  return WallTime{std::chrono::seconds{1'800'000'000 + seconds}};
}

template <class Factory>
class StoreConformance : public ::testing::Test {
 protected:
  StoreConformance() : store(factory.open()) {
    EXPECT_TRUE(complete(store->add_api_key({key, team, at(0), std::nullopt})));
  }
  fleet::Sandbox sandbox(const char* name) {
    fleet::Sandbox made;
    made.id = *identity::SandboxId::parse(name);
    made.team = team;
    made.access = *CredentialHash::from(identity::sha256(as_bytes(made.id.text())));
    made.template_name = "host";
    made.metadata = {{"purpose", "test"}, {"empty", ""}};
    made.envs = {{"LANG", "C"}};
    made.memory_bytes = 1U << 30;
    made.started_at = at(0);
    made.ends_at = at(300);
    return made;
  }
  fleet::Execution execution(const fleet::Sandbox& of, std::uint64_t generation,
                             std::uint8_t activation) {
    fleet::Execution made;
    made.route.sandbox = of.id;
    made.route.generation = {generation};
    made.route.worker = *identity::WorkerId::parse("w1");
    made.route.activation = id_of<identity::ActivationId>(activation);
    made.secret = Bytes(32, std::byte{7});
    made.handle = "handle";
    return made;
  }
  const CredentialHash key = id_of<CredentialHash>(1);
  const identity::TeamId team = *identity::TeamId::parse("team-a");
  const identity::HolderId holder = id_of<identity::HolderId>(4);
  Factory factory;
  std::unique_ptr<ControlStore> store;
};
TYPED_TEST_SUITE_P(StoreConformance);

TYPED_TEST_P(StoreConformance, KeysAreAddedOnceListedAndRevoked) {
  auto& store = *this->store;
  const ApiKeyRow row{this->key, this->team, at(0), std::nullopt};
  EXPECT_EQ(complete(store.add_api_key(row)).error().error, StoreError::kAlreadyExists);
  EXPECT_EQ(*complete(store.list_api_keys()), std::vector{row});
  EXPECT_EQ(complete(store.revoke_api_key(id_of<CredentialHash>(9), at(1))).error().error,
            StoreError::kNotFound);
  EXPECT_TRUE(complete(store.revoke_api_key(this->key, at(1))));
  EXPECT_TRUE(complete(store.revoke_api_key(this->key, at(2))));
  EXPECT_EQ(complete(store.list_api_keys())->front().revoked_at, at(1));
}

TYPED_TEST_P(StoreConformance, P18_ASessionIsExtendedWhileItLivesAndReplacedAfter) {
  auto& store = *this->store;
  const auto open = [&](std::uint8_t fresh, std::int64_t now) {
    return complete(store.open_session(this->key, this->holder, id_of<identity::SessionId>(fresh),
                                       at(now), at(now + 600)));
  };
  EXPECT_EQ(open(1, 0)->id, id_of<identity::SessionId>(1));
  const auto extended = open(2, 599);
  EXPECT_EQ(extended->id, id_of<identity::SessionId>(1));
  EXPECT_EQ(extended->expires_at, at(1199));
  EXPECT_EQ(extended->team, this->team);
  EXPECT_EQ(*complete(store.live_session(extended->id, at(1198))), *extended);
  EXPECT_EQ(complete(store.live_session(extended->id, at(1199))).error().error,
            StoreError::kNotFound);
  EXPECT_EQ(open(3, 1199)->id, id_of<identity::SessionId>(3));
  const auto other = complete(store.open_session(
      this->key, id_of<identity::HolderId>(5), id_of<identity::SessionId>(6), at(1200), at(1300)));
  EXPECT_EQ(other->id, id_of<identity::SessionId>(6));
  EXPECT_EQ(complete(store.open_session(id_of<CredentialHash>(9), this->holder,
                                        id_of<identity::SessionId>(7), at(0), at(1)))
                .error()
                .error,
            StoreError::kNotFound);
}

TYPED_TEST_P(StoreConformance, P11_ARevokedKeyHasNoLiveSessionAndNamesTheEnded) {
  auto& store = *this->store;
  const auto id = id_of<identity::SessionId>(1);
  ASSERT_TRUE(complete(store.open_session(this->key, this->holder, id, at(0), at(600))));
  EXPECT_TRUE(complete(store.end_sessions(at(1)))->empty());
  ASSERT_TRUE(complete(store.revoke_api_key(this->key, at(1))));
  EXPECT_FALSE(complete(store.live_session(id, at(2))));
  EXPECT_FALSE(complete(store.open_session(this->key, this->holder, id, at(2), at(600))));
  EXPECT_EQ(*complete(store.end_sessions(at(2))), std::vector{id});
  EXPECT_TRUE(complete(store.end_sessions(at(2)))->empty());
}

TYPED_TEST_P(StoreConformance, P18_AnAccessTokenHasSessionsUntilAKillBegins) {
  auto& store = *this->store;
  const auto sandbox = this->sandbox("aaa");
  ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  ASSERT_TRUE(complete(store.insert_sandbox(this->sandbox("bbb"))));
  const auto open = [&](std::uint8_t fresh, std::int64_t now) {
    return complete(store.open_session(sandbox.access, this->holder,
                                       id_of<identity::SessionId>(fresh), at(now), at(now + 600)));
  };
  const auto opened = open(1, 0);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->sandbox, sandbox.id);
  EXPECT_EQ(opened->team, this->team);
  EXPECT_EQ(open(2, 10)->id, opened->id);
  EXPECT_EQ(complete(store.live_session(opened->id, at(20)))->sandbox, sandbox.id);
  EXPECT_EQ(complete(store.mint_view(opened->id, sandbox.id, at(20)))->session->sandbox,
            sandbox.id);
  for (const auto state : {wire::SandboxState::kPaused, wire::SandboxState::kLost,
                           wire::SandboxState::kKilling, wire::SandboxState::kKilled}) {
    auto snapshot = *complete(store.load(sandbox.id));
    snapshot.sandbox.state = state;
    ASSERT_TRUE(complete(store.commit(snapshot)));
    const bool live = state != wire::SandboxState::kKilling && state != wire::SandboxState::kKilled;
    EXPECT_EQ(open(1, 30).has_value(), live) << to_string(state);
    EXPECT_EQ(complete(store.live_session(opened->id, at(40))).has_value(), live);
    if (live) EXPECT_TRUE(complete(store.end_sessions(at(40)))->empty());
  }
  EXPECT_EQ(*complete(store.end_sessions(at(40))), std::vector{opened->id});
  EXPECT_TRUE(complete(store.end_sessions(at(40)))->empty());
}

TYPED_TEST_P(StoreConformance, P18_AnAccessTokenIsOfOneSandboxAndMayChange) {
  auto& store = *this->store;
  const auto sandbox = this->sandbox("aaa");
  ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  auto same_token = this->sandbox("bbb");
  same_token.access = sandbox.access;
  EXPECT_EQ(complete(store.insert_sandbox(same_token)).error().error, StoreError::kAlreadyExists);
  const auto session = id_of<identity::SessionId>(1);
  ASSERT_TRUE(complete(store.open_session(sandbox.access, this->holder, session, at(0), at(600))));
  auto snapshot = *complete(store.load(sandbox.id));
  snapshot.sandbox.access = id_of<CredentialHash>(9);
  ASSERT_TRUE(complete(store.commit(snapshot)));
  EXPECT_FALSE(complete(store.live_session(session, at(1))));
  EXPECT_EQ(*complete(store.end_sessions(at(1))), std::vector{session});
  EXPECT_TRUE(complete(store.open_session(snapshot.sandbox.access, this->holder,
                                          id_of<identity::SessionId>(2), at(1), at(600))));
}

TYPED_TEST_P(StoreConformance, P34_CommitsCompareTheRevision) {
  auto& store = *this->store;
  auto sandbox = this->sandbox("aaa");
  ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  EXPECT_EQ(complete(store.insert_sandbox(sandbox)).error().error, StoreError::kAlreadyExists);
  auto mine = *complete(store.load(sandbox.id));
  EXPECT_EQ(mine.sandbox, sandbox);
  auto late = mine;
  mine.sandbox.state = wire::SandboxState::kRunning;
  mine.executions.push_back(this->execution(sandbox, 1, 1));
  ASSERT_TRUE(complete(store.commit(mine)));
  EXPECT_EQ(complete(store.commit(late)).error().error, StoreError::kConflict);
  const auto now = *complete(store.load(sandbox.id));
  EXPECT_EQ(now.sandbox.revision, mine.sandbox.revision + 1);
  EXPECT_EQ(now.executions, mine.executions);
  late.sandbox.id = *identity::SandboxId::parse("none");
  EXPECT_EQ(complete(store.commit(late)).error().error, StoreError::kNotFound);
  EXPECT_EQ(complete(store.load(late.sandbox.id)).error().error, StoreError::kNotFound);
}

TYPED_TEST_P(StoreConformance, LC1_AnOperationOfEveryKindReadsBackAsItWasWritten) {
  auto& store = *this->store;
  auto sandbox = this->sandbox("aaa");
  ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  for (auto kind = fleet::OperationKind::kCreate; fleet::is_known(kind);
       kind = static_cast<fleet::OperationKind>(std::to_underlying(kind) + 1)) {
    for (const bool targeted : {false, true}) {
      auto snapshot = *complete(store.load(sandbox.id));
      auto& operation = snapshot.sandbox.operation.emplace();
      operation.kind = kind;
      operation.owner = *identity::OwnerId::parse("control-1");
      operation.base = {3};
      if (targeted) {
        operation.target = *identity::WorkerId::parse("w1");
        operation.timeout_s = 60;
      }
      ASSERT_TRUE(complete(store.commit(snapshot)));
      const auto read = complete(store.load(sandbox.id));
      ASSERT_TRUE(read) << read.error().detail;
      EXPECT_EQ(read->sandbox.operation, snapshot.sandbox.operation);
    }
  }
}

TYPED_TEST_P(StoreConformance, P34_AGenerationIsOneRouteForEver) {
  auto& store = *this->store;
  const auto sandbox = this->sandbox("aaa");
  ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  auto snapshot = *complete(store.load(sandbox.id));
  snapshot.executions = {this->execution(sandbox, 1, 1)};
  snapshot.executions[0].state = fleet::ExecutionState::kGone;
  ASSERT_TRUE(complete(store.commit(snapshot)));
  snapshot = *complete(store.load(sandbox.id));
  EXPECT_TRUE(snapshot.executions.empty());  // gone
  snapshot.sandbox.reason = "changed";
  snapshot.executions = {this->execution(sandbox, 1, 2)};
  EXPECT_EQ(complete(store.commit(snapshot)).error().error, StoreError::kAlreadyExists);
  EXPECT_EQ(complete(store.load(sandbox.id))->sandbox.reason, "");  // nothing of it was written
}

TYPED_TEST_P(StoreConformance, FindsWhatIsUnfinishedExpiredCountedAndPurged) {
  auto& store = *this->store;
  const auto make = [&](const char* name, wire::SandboxState state) {
    auto sandbox = this->sandbox(name);
    sandbox.state = state;
    EXPECT_TRUE(complete(store.insert_sandbox(sandbox)));
    return *complete(store.load(sandbox.id));
  };
  auto running = make("aaa", wire::SandboxState::kRunning);
  make("bbb", wire::SandboxState::kPaused);
  auto killed = make("ccc", wire::SandboxState::kKilled);
  auto busy = make("ddd", wire::SandboxState::kResuming);
  busy.sandbox.operation = fleet::Operation{};
  busy.sandbox.operation->target = *identity::WorkerId::parse("w1");
  busy.sandbox.operation->owner = *identity::OwnerId::parse("control-1");
  ASSERT_TRUE(complete(store.commit(busy)));
  running.executions = {this->execution(running.sandbox, 1, 1),
                        this->execution(running.sandbox, 2, 2)};
  running.executions[0].state = fleet::ExecutionState::kDiscarding;
  ASSERT_TRUE(complete(store.commit(running)));

  using Ids = std::vector<identity::SandboxId>;
  EXPECT_EQ(*complete(store.unfinished()), (Ids{running.sandbox.id, busy.sandbox.id}));
  EXPECT_TRUE(complete(store.expired(at(299)))->empty());
  EXPECT_EQ(*complete(store.expired(at(300))), Ids{running.sandbox.id});
  EXPECT_EQ(*complete(store.count(this->team)), (TeamCounts{1, 1}));
  EXPECT_EQ(*complete(store.count(*identity::TeamId::parse("other"))), TeamCounts{});
  EXPECT_EQ(*complete(store.executions()), running.executions);
  ASSERT_TRUE(complete(store.purge(at(300))));
  EXPECT_TRUE(complete(store.load(killed.sandbox.id)));
  ASSERT_TRUE(complete(store.purge(at(301))));
  EXPECT_FALSE(complete(store.load(killed.sandbox.id)));
  EXPECT_TRUE(complete(store.load(running.sandbox.id)));
}

TYPED_TEST_P(StoreConformance, C110_PagesFollowTheOrderAndEndWhenNothingIsLeft) {
  auto& store = *this->store;
  const auto make = [&](const char* name, std::int64_t started, wire::SandboxState state,
                        const char* stage) {
    auto sandbox = this->sandbox(name);
    sandbox.started_at = at(started);
    sandbox.state = state;
    sandbox.metadata["stage"] = stage;
    EXPECT_TRUE(complete(store.insert_sandbox(sandbox)));
  };
  using enum wire::SandboxState;
  make("d", 1, kRunning, "live");
  make("c", 2, kPaused, "live");
  make("b", 2, kRunning, "test");
  make("a", 3, kKilled, "live");
  make("e", 4, kCreating, "live");
  ASSERT_TRUE(complete(store.add_api_key(
      {id_of<CredentialHash>(2), *identity::TeamId::parse("team-b"), at(0), {}})));
  auto foreign = this->sandbox("f");
  foreign.team = *identity::TeamId::parse("team-b");
  ASSERT_TRUE(complete(store.insert_sandbox(foreign)));

  const auto names = [](const fleet::Page& page) {
    std::string all;
    for (const auto& snapshot : page.sandboxes) all += snapshot.sandbox.id.text();
    return all;
  };
  fleet::Filter filter;
  filter.team = this->team;
  const auto all = complete(store.list(filter, std::nullopt, 100));
  EXPECT_EQ(names(*all), "dbce");
  EXPECT_FALSE(all->next);
  EXPECT_EQ(all->sandboxes[0].sandbox.metadata.at("stage"), "live");
  const auto first = complete(store.list(filter, std::nullopt, 2));
  EXPECT_EQ(names(*first), "db");
  ASSERT_TRUE(first->next);
  const auto second = complete(store.list(filter, first->next, 2));
  EXPECT_EQ(names(*second), "ce");
  EXPECT_FALSE(second->next);

  filter.newest_first = true;
  const auto newest = complete(store.list(filter, std::nullopt, 3));
  EXPECT_EQ(names(*newest), "ecb");
  ASSERT_TRUE(newest->next);
  const auto oldest = complete(store.list(filter, newest->next, 3));
  EXPECT_EQ(names(*oldest), "d");
  EXPECT_FALSE(oldest->next);

  filter.newest_first = false;
  filter.metadata = {{"stage", "live"}};
  EXPECT_EQ(names(*complete(store.list(filter, std::nullopt, 100))), "dce");
  filter.states = {kRunning, kPaused, kKilled};
  EXPECT_EQ(names(*complete(store.list(filter, std::nullopt, 100))), "dc");
  filter.started_after = at(1);
  EXPECT_EQ(names(*complete(store.list(filter, std::nullopt, 100))), "c");
  filter.template_name = "other";
  const auto none = complete(store.list(filter, std::nullopt, 100));
  EXPECT_TRUE(none->sandboxes.empty());
  EXPECT_FALSE(none->next);
}

TYPED_TEST_P(StoreConformance, C110_AListLooksAtABoundedNumber) {
  auto& store = *this->store;
  for (std::size_t i = 0; i <= kMaxListScan; ++i) {
    auto sandbox = this->sandbox(("s" + std::to_string(i)).c_str());
    sandbox.started_at = at(static_cast<std::int64_t>(i));
    if (i == kMaxListScan) sandbox.template_name = "wanted";
    ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  }
  fleet::Filter filter;
  filter.team = this->team;
  filter.template_name = "wanted";
  const auto first = complete(store.list(filter, std::nullopt, 10));
  EXPECT_TRUE(first->sandboxes.empty());
  ASSERT_TRUE(first->next);
  const auto second = complete(store.list(filter, first->next, 10));
  EXPECT_EQ(second->sandboxes.size(), 1U);
  EXPECT_FALSE(second->next);
}

TYPED_TEST_P(StoreConformance, P3_TheMintViewShowsSessionAndExecutionTogether) {
  auto& store = *this->store;
  const auto sandbox = this->sandbox("aaa");
  ASSERT_TRUE(complete(store.insert_sandbox(sandbox)));
  const auto session = id_of<identity::SessionId>(1);
  auto view = complete(store.mint_view(session, sandbox.id, at(0)));
  EXPECT_FALSE(view->session);
  EXPECT_TRUE(view->snapshot);
  ASSERT_TRUE(complete(store.open_session(this->key, this->holder, session, at(0), at(600))));
  view = complete(store.mint_view(session, *identity::SandboxId::parse("none"), at(0)));
  EXPECT_TRUE(view->session);
  EXPECT_FALSE(view->snapshot);
  EXPECT_FALSE(complete(store.mint_view(session, sandbox.id, at(600)))->session);
}

TYPED_TEST_P(StoreConformance, P6_BundleVersionsNeverGoBack) {
  auto& store = *this->store;
  EXPECT_EQ(complete(store.load_bundle()).error().error, StoreError::kNotFound);
  identity::KeyBundle bundle;
  bundle.version = {2};
  bundle.issuer = *identity::Issuer::parse("space");
  bundle.valid_until = at(600);
  bundle.keys = {{{1}, identity::KeyState::kActive, id_of<identity::PublicKey>(1), {}}};
  ASSERT_TRUE(complete(store.save_bundle(bundle)));
  bundle.valid_until = at(700);
  ASSERT_TRUE(complete(store.save_bundle(bundle)));
  EXPECT_EQ(*complete(store.load_bundle()), bundle);
  auto older = bundle;
  older.version = {1};
  EXPECT_EQ(complete(store.save_bundle(older)).error().error, StoreError::kConflict);
  const WorkerRow worker{
      *identity::WorkerId::parse("w1"), id_of<identity::BootNonce>(3), {2}, at(5)};
  ASSERT_TRUE(complete(store.save_worker(worker)));
  ASSERT_TRUE(complete(store.save_worker(worker)));
  EXPECT_EQ(*complete(store.list_workers()), std::vector{worker});
}

REGISTER_TYPED_TEST_SUITE_P(
    StoreConformance, KeysAreAddedOnceListedAndRevoked,
    P18_ASessionIsExtendedWhileItLivesAndReplacedAfter,
    P11_ARevokedKeyHasNoLiveSessionAndNamesTheEnded, P18_AnAccessTokenHasSessionsUntilAKillBegins,
    P18_AnAccessTokenIsOfOneSandboxAndMayChange, LC1_AnOperationOfEveryKindReadsBackAsItWasWritten,
    P34_CommitsCompareTheRevision, P34_AGenerationIsOneRouteForEver,
    FindsWhatIsUnfinishedExpiredCountedAndPurged, C110_PagesFollowTheOrderAndEndWhenNothingIsLeft,
    C110_AListLooksAtABoundedNumber, P3_TheMintViewShowsSessionAndExecutionTogether,
    P6_BundleVersionsNeverGoBack);

}  // namespace space::testing
