#include "services/node_api/gateway.h"

#include <gtest/gtest.h>

#include "services/node_api/testing/fake_platform.h"

namespace space::node_api {
namespace {

using frame::Outcome;
using identity::RefreshReason;
using policy::Operation;
using std::chrono::seconds;
using Called = std::optional<Result<Gateway::Answer>>;

class GatewayTest : public testing::PlatformTest {
 protected:
  static Task<void> call_task(Gateway& gateway, std::string key, identity::SandboxId sandbox,
                              Operation operation, Called& out) {
    auto caller = co_await gateway.authorise(std::move(key));
    if (!caller) {
      out = std::unexpected(caller.error());
      co_return;
    }
    auto metadata = to_bytes("m");
    out = co_await gateway.call(*caller, std::move(sandbox), operation, std::move(metadata));
  }
  Result<Gateway::Answer> call(std::string key = "e2b_aa",
                               Operation operation = Operation::kFileStat,
                               identity::SandboxId sandbox = abc()) {
    Called out;
    EXPECT_TRUE(world_.run(call_task(gateway_, std::move(key), std::move(sandbox), operation, out),
                           seconds(60)));
    return out ? *out : Result<Gateway::Answer>(std::unexpected(Failure{}));
  }
  static Task<void> create_task(Gateway& gateway, std::optional<Result<wire::SandboxInfo>>& out) {
    auto caller = co_await gateway.authorise("e2b_aa");
    out = co_await gateway.ask<wire::SandboxInfo>(*caller, Operation::kSandboxCreate,
                                                  wire::SandboxCreateRequest{});
  }
  static Task<void> open_task(Gateway& gateway, Operation operation,
                              std::unique_ptr<Admission>& admission) {
    auto caller = co_await gateway.authorise("e2b_aa");
    auto opened = co_await gateway.open(*caller, abc(), operation, to_bytes("m"));
    if (opened) admission = std::move(*opened);
  }
};

TEST_F(GatewayTest, CallsAndReusesSessionRouteCapabilityAndConnection) {
  for (int i = 0; i < 5; ++i) {
    const auto answer = call();
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(to_text(answer->result), "m");
    EXPECT_EQ(answer->identity.generation.value, 7U);
    EXPECT_FALSE(answer->repaired);
  }
  EXPECT_EQ(control_.sessions, 1);
  EXPECT_EQ(control_.resolves, 1);
  EXPECT_EQ(control_.mints, 1);
  EXPECT_EQ(w1_.part.connections(), 1U);
}

TEST_F(GatewayTest, RC2_AStaleRouteIsRepairedOnceWithTheSameRequestIdAndAFreshCapability) {
  ASSERT_TRUE(call());
  move_to_w2();
  const auto answer = call();
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_TRUE(answer->repaired);
  EXPECT_EQ(answer->identity, w2_.installed["abc"]);
  ASSERT_EQ(w1_.opens.size(), 2U);
  ASSERT_EQ(w2_.opens.size(), 1U);
  EXPECT_EQ(w1_.opens[1].request, w2_.opens[0].request);
  EXPECT_EQ(w1_.opens[1].attempt, 0);
  EXPECT_EQ(w2_.opens[0].attempt, 1);
  EXPECT_EQ(gateway_.counters().repairs, 1U);
  EXPECT_EQ(control_.minted.back().route, w2_.installed["abc"]);
}

TEST_F(GatewayTest, RC2_ASecondRefusalGoesToTheCaller) {
  ASSERT_TRUE(call());
  select(testing::route_at(8, w2_.part, "w2", "sim:w2"));
  w1_.installed.clear();
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kUnavailable);
  EXPECT_EQ(answer.error().reason, "not_here");
  EXPECT_EQ(w1_.opens.size(), 2U);
  EXPECT_EQ(w2_.opens.size(), 1U);
}

TEST_F(GatewayTest, P16_NoSecondAttemptWhenTheLookUpReturnsTheIdentityJustRefused) {
  w1_.installed.clear();
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kUnavailable);
  EXPECT_EQ(w1_.opens.size(), 1U);
  EXPECT_EQ(control_.resolves, 2);
}

TEST_F(GatewayTest, RC6_DeniedIsNeverRefreshedNorRetried) {
  ASSERT_TRUE(call());
  w1_.verdict = [](const frame::Open&) {
    return frame::Refused{frame::Denied{identity::DenyReason::kBadSignature}};
  };
  move_to_w2();
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kPermissionDenied);
  EXPECT_EQ(answer.error().reason, to_string(identity::DenyReason::kBadSignature));
  EXPECT_EQ(w1_.opens.size(), 2U);
  EXPECT_TRUE(w2_.opens.empty());
  EXPECT_EQ(control_.resolves, 1);
  EXPECT_EQ(gateway_.counters().repairs, 0U);
}

TEST_F(GatewayTest, RC1_AResetBeforeAdmissionNeverStartsARepair) {
  ASSERT_TRUE(call());
  move_to_w2();
  // The manager resets in place of a verdict.
  w1_.part.stop();
  testing::FakePart resetting(world_, network_, "sim:w1", frame::Role::kManager, "w1", 12,
                              [](std::shared_ptr<hop::Channel> channel, frame::Open) {
                                channel->reset(frame::ResetCode::kInternal,
                                               frame::Forwarded::kUnknown);
                              });
  const auto answer = call("e2b_aa", Operation::kProcessSignal);
  EXPECT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kInterrupted);
  EXPECT_EQ(control_.resolves, 1);
  EXPECT_EQ(gateway_.counters().repairs, 0U);
  EXPECT_TRUE(w2_.opens.empty());
  resetting.stop();
}

TEST_F(GatewayTest, RC5_AfterATransportFailureOnlyWhatTheTableAllowsIsSentAgain) {
  ASSERT_TRUE(call());
  int opens = 0;
  auto forwarded = frame::Forwarded::kUnknown;
  w1_.part.stop();
  testing::FakePart resetting(world_, network_, "sim:w1", frame::Role::kManager, "w1", 12,
                              [&](std::shared_ptr<hop::Channel> channel, frame::Open) {
                                ++opens;
                                channel->reset(frame::ResetCode::kConnectionLost, forwarded);
                              });
  EXPECT_FALSE(call("e2b_aa", Operation::kFileRemove));
  EXPECT_EQ(opens, 1);  // never: outcome unknown
  opens = 0;
  EXPECT_FALSE(call("e2b_aa", Operation::kFileStat));
  EXPECT_EQ(opens, 2);  // idempotent: once more
  opens = 0;
  forwarded = frame::Forwarded::kNone;
  EXPECT_FALSE(call("e2b_aa", Operation::kFileRemove));
  EXPECT_EQ(opens, 2);  // nothing of it was forwarded
  resetting.stop();
}

TEST_F(GatewayTest, ID3_AdmittedWithAnotherIdentityClosesTheConnectionAndFails) {
  ASSERT_TRUE(call());
  w1_.twist = [](frame::Admitted& admitted) { admitted.route.generation = {8}; };
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().reason, "wrong_identity");
  EXPECT_EQ(gateway_.counters().misroutes, 1U);
  EXPECT_EQ(log_.alarms, 1);
  w1_.twist = {};
  ASSERT_TRUE(call());
  EXPECT_EQ(w1_.part.connections(), 2U);
}

TEST_F(GatewayTest, C001_AConnectionIsKeyedByWorkerAndBootNeverByAddressAlone) {
  ASSERT_TRUE(call());
  // Another worker takes over the very address; w1's own connection lives on meanwhile.
  testing::FakeManager w3(world_, network_, clock_, "w3", "sim:w1", 33);
  select(testing::route_at(8, w3.part, "w3", "sim:w1"));
  w3.installed["abc"] = control_.routes["abc"].route;
  w1_.installed.clear();
  const auto answer = call();
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->identity.worker.text(), "w3");
  EXPECT_EQ(w3.part.connections(), 1U);
  EXPECT_EQ(w3.opens.size(), 1U);
  w3.part.stop();
}

TEST_F(GatewayTest, C001_APeerThatIsNotTheWantedWorkerGetsNothing) {
  testing::FakeManager w3(world_, network_, clock_, "w3", "sim:w1", 33);
  w3.installed["abc"] = control_.routes["abc"].route;
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().reason, "worker_unreachable");
  EXPECT_TRUE(w3.opens.empty());
  w3.part.stop();
}

TEST_F(GatewayTest, RC3_AThousandConcurrentRefusalsMakeOneLookUp) {
  ASSERT_TRUE(call());
  move_to_w2();
  control_.resolves = 0;
  std::vector<Called> out(1000);
  TaskScope tasks(world_);
  for (auto& one : out) {
    tasks.spawn("call", call_task(gateway_, "e2b_aa", abc(), Operation::kFileStat, one));
  }
  EXPECT_TRUE(world_.run(tasks.join(), seconds(60)));
  for (const auto& one : out) {
    ASSERT_TRUE(one && *one) << (one ? one->error().message : "not done");
    EXPECT_TRUE((*one)->repaired);
  }
  EXPECT_EQ(control_.resolves, 1);
  EXPECT_EQ(w2_.opens.size(), 1000U);
}

TEST_F(GatewayTest, P17_ACachedRouteGivesAnotherCallerNothingAndBothFailuresAreAlike) {
  ASSERT_TRUE(call());
  const auto foreign = call("e2b_bb");
  const auto unknown = call("e2b_bb", Operation::kFileStat, *identity::SandboxId::parse("zzz"));
  ASSERT_FALSE(foreign);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(w1_.opens.size(), 1U);
  EXPECT_EQ(foreign.error().outcome, Outcome::kNotFound);
  EXPECT_EQ(foreign.error().outcome, unknown.error().outcome);
  EXPECT_EQ(foreign.error().message, unknown.error().message);
  EXPECT_EQ(foreign.error().reason, unknown.error().reason);
}

TEST_F(GatewayTest, P17_CapabilitiesAreNeverSharedBetweenSessions) {
  control_.owns[2].insert("abc");
  ASSERT_TRUE(call("e2b_aa"));
  ASSERT_TRUE(call("e2b_bb"));
  ASSERT_EQ(control_.minted.size(), 2U);
  EXPECT_NE(control_.minted[0].session, control_.minted[1].session);
  EXPECT_EQ(control_.resolves, 1);
}

TEST_F(GatewayTest, P17_AForeignLeaderOfALookUpDoesNotFailTheOwner) {
  Called foreign;
  Called owner;
  TaskScope tasks(world_);
  ASSERT_TRUE(call("e2b_aa"));  // opens the session
  ASSERT_FALSE(call("e2b_bb"));
  move_to_w2();
  w1_.part.stop();
  control_.resolves = 0;
  tasks.spawn("foreign", call_task(gateway_, "e2b_bb", abc(), Operation::kFileStat, foreign));
  tasks.spawn("owner", call_task(gateway_, "e2b_aa", abc(), Operation::kFileStat, owner));
  EXPECT_TRUE(world_.run(tasks.join(), seconds(60)));
  ASSERT_TRUE(foreign && owner);
  EXPECT_FALSE(*foreign);
  EXPECT_TRUE(*owner);
}

TEST_F(GatewayTest, RC4_RepairNeverExtendsTheSession) {
  ASSERT_TRUE(call());
  move_to_w2();
  ASSERT_TRUE(call());
  EXPECT_EQ(control_.sessions, 1);
  // Near its end the caller's own credential is presented again.
  world_.run_for(control_.session_life - seconds(30));
  ASSERT_TRUE(call());
  EXPECT_EQ(control_.sessions, 2);
}

TEST_F(GatewayTest, AnEndedSessionIsOpenedAgainFromTheCallersCredential) {
  ASSERT_TRUE(call());
  control_.part.send_session_ended(testing::FakeControl::session(1));
  world_.run_for(seconds(1));
  ASSERT_TRUE(call());
  EXPECT_EQ(control_.sessions, 2);
  EXPECT_EQ(control_.mints, 2);
  control_.keys.clear();
  control_.part.send_session_ended(testing::FakeControl::session(1));
  world_.run_for(seconds(1));
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kUnauthenticated);
}

TEST_F(GatewayTest, C009_WhatTheControlPlaneCannotDoNowSaysWhenToAskAgain) {
  control_.intercept = [&](hop::Channel& channel, const frame::Open& open) {
    if (open.operation != Operation::kRouteResolve) return false;
    testing::refuse(channel, Outcome::kUnavailable, "the sandbox is resuming");
    return true;
  };
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kUnavailable);
  EXPECT_NE(answer.error().retry_after_ms, 0U);
}

TEST_F(GatewayTest, P9_InstallingIsWaitedForUpToTwoSecondsThenAborted) {
  int refusals = 0;
  w1_.verdict = [&refusals](const frame::Open&) -> std::optional<frame::Refused> {
    ++refusals;
    return frame::Refused{frame::Unavailable{frame::UnavailableReason::kInstalling, 0}};
  };
  const auto started = world_.now();
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kConflict);
  EXPECT_EQ(answer.error().reason, "installing");
  EXPECT_NE(answer.error().retry_after_ms, 0U);
  EXPECT_GT(refusals, 2);
  EXPECT_GE(world_.now() - started, seconds(2));
  EXPECT_LT(world_.now() - started, seconds(4));
  w1_.verdict = [&refusals](const frame::Open&) -> std::optional<frame::Refused> {
    if (refusals-- > 0) return testing::FakeManager::refresh(RefreshReason::kNotYet);
    return std::nullopt;
  };
  refusals = 2;
  EXPECT_TRUE(call());
}

TEST_F(GatewayTest, APausedSandboxIsAConflictThatSaysSo) {
  control_.unroutable["abc"] = "paused";
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().outcome, Outcome::kConflict);
  EXPECT_EQ(answer.error().reason, "paused");
}

TEST_F(GatewayTest, ARestartedWorkerIsDialledAgainAndTheRouteKept) {
  ASSERT_TRUE(call());
  w1_.part.stop();
  testing::FakeManager again(world_, network_, clock_, "w1", "sim:w1", 99);
  again.installed["abc"] = control_.routes["abc"].route;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(call());
  EXPECT_EQ(again.part.connections(), 1U);
  EXPECT_EQ(control_.resolves, 1);
  again.part.stop();
}

TEST_F(GatewayTest, ADeadControlPlaneIsUnavailableWithinABoundAndComesBack) {
  control_.part.stop();
  world_.run_for(seconds(1));
  const auto started = world_.now();
  const auto answer = call();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().reason, "control_plane_down");
  EXPECT_LT(world_.now() - started, seconds(5));
  testing::FakeControl again(world_, network_, clock_);
  again.routes = control_.routes;
  world_.run_for(seconds(5));
  EXPECT_TRUE(call());
  again.part.stop();
}

TEST_F(GatewayTest, WhetherACreateWasDoneIsUnknownWhenTheControlPlaneGoesAwayInIt) {
  int creates = 0;
  control_.intercept = [&](hop::Channel&, const frame::Open& open) {
    if (open.operation != Operation::kSandboxCreate) return false;
    ++creates;
    control_.part.cut();
    return true;
  };
  std::optional<Result<wire::SandboxInfo>> created;
  ASSERT_TRUE(world_.run(create_task(gateway_, created), seconds(60)));
  ASSERT_TRUE(created && !*created);
  EXPECT_EQ(created->error().outcome, Outcome::kInterrupted);
  EXPECT_EQ(created->error().retry_after_ms, 0U);  // a retry may make a second sandbox
  EXPECT_EQ(creates, 1);
}

TEST_F(GatewayTest, P11_ALongOperationRenewsItsLeaseWithTheSameSessionRouteAndAccess) {
  std::vector<testing::FakeClaims> renewed;
  std::shared_ptr<hop::Channel> kept;
  w1_.operate = [&kept](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    kept = std::move(channel);
  };
  w1_.part.on_renew([this, &renewed](std::shared_ptr<hop::Channel> channel, frame::Renew renew) {
    renewed.push_back(*wire::decode<testing::FakeClaims>(renew.capability.sealed));
    frame::Renewed answer;
    answer.lease_deadline = clock_.now();
    channel->send(std::move(answer));
  });
  std::unique_ptr<Admission> admission;
  ASSERT_TRUE(world_.run(open_task(gateway_, Operation::kProcessStart, admission)));
  ASSERT_TRUE(admission);
  world_.run_for(std::chrono::minutes(20));
  EXPECT_GE(renewed.size(), 10U);
  EXPECT_LE(renewed.size(), 20U);
  for (const auto& claims : renewed) {
    EXPECT_EQ(claims.session, control_.minted[0].session);
    EXPECT_EQ(claims.route, control_.minted[0].route);
    EXPECT_EQ(claims.access, control_.minted[0].access);
  }
  EXPECT_GE(control_.sessions, 2);
  admission.reset();
  const auto count = renewed.size();
  world_.run_for(std::chrono::minutes(10));
  EXPECT_EQ(renewed.size(), count);
  kept.reset();
}

}  // namespace
}  // namespace space::node_api
