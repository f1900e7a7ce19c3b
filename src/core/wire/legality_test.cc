#include "core/wire/legality.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "core/wire/testing/two_ends.h"

namespace space::wire::hop {
namespace {

using testing::kAllTypes;
using testing::kGuestLeg;
using testing::kLegs;
using testing::Leg;
using testing::open_for;
using testing::sample_payload;
using testing::sample_route;
using testing::TwoEnds;
using Verdict = ConnectionRules::Verdict;

class Seeded {
 public:
  explicit Seeded(std::uint64_t seed) : random_(seed) {}
  std::uint32_t operator()(std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_() % bound);
  }

 private:
  std::mt19937_64 random_;
};

constexpr Leg kClientLeg = kLegs[0];   // node-api, manager
constexpr Leg kControlLeg = kLegs[2];  // control plane, manager
constexpr std::size_t kDialler = 0;
constexpr std::size_t kAcceptor = 1;

Data data(std::uint64_t offset, std::size_t bytes) { return Data{offset, Bytes(bytes)}; }

// A connection of node-api (end 0) and manager (end 1) with one admitted stream.
class Client : public ::testing::Test {
 protected:
  Client() : ends(kClientLeg) {
    ends.shake_hands();
    stream = open();
  }
  StreamId open(std::uint32_t window = kInitialWindow) {
    const auto id = ends.rules(kDialler).next_stream();
    ends.must_send(kDialler, open_for(Role::kNodeApi, Role::kManager), id);
    ends.must_send(kAcceptor, Admitted{sample_route(), 1, {1}, {}, window}, id);
    return id;
  }
  void send(std::size_t end, Payload payload) { ends.must_send(end, std::move(payload), stream); }
  std::optional<Violation> refused(std::size_t end, Payload payload) {
    return ends.rules(end).sending(Frame{stream, std::move(payload)});
  }
  std::expected<Verdict, Violation> received(std::size_t end, Payload payload) {
    return ends.rules(end).received(Frame{stream, std::move(payload)});
  }

  TwoEnds ends;
  StreamId stream;
};

TEST(Legality, P20_AGuestMaySendTenTypesAndNoOthers) {
  const std::set<FrameType> allowed{FrameType::kHello, FrameType::kProof,  FrameType::kOpened,
                                    FrameType::kData,  FrameType::kCredit, FrameType::kConsumed,
                                    FrameType::kEnd,   FrameType::kReset,  FrameType::kRekeyed,
                                    FrameType::kPong};
  for (const auto type : kAllTypes) {
    EXPECT_EQ(may_send(Role::kGuest, Role::kBridge, type), allowed.contains(type))
        << to_string(type);
    for (const auto receiver :
         {Role::kNodeApi, Role::kManager, Role::kGuest, Role::kControlPlane, Role::kGateway}) {
      EXPECT_FALSE(may_send(Role::kGuest, receiver, type)) << to_string(type);
    }
  }
}

TEST(Legality, P20_RC1_RefusalsAndRevocationsFromAGuestNeverPassInAnyState) {
  Seeded choose(3);
  for (int run = 0; run < 50; ++run) {
    TwoEnds ends(kGuestLeg);
    if (run % 4 != 0) ends.shake_hands();
    for (int i = 0; i < 200; ++i) {
      ends.step(choose);
      for (const auto type : {FrameType::kRefused, FrameType::kRevoked, FrameType::kGoaway,
                              FrameType::kAdmitted, FrameType::kOpen, FrameType::kPing}) {
        auto bridge = ends.rules(kDialler);
        auto frame = ends.candidate(kAcceptor, choose);
        frame.payload = sample_payload(type, choose);
        const auto judged = bridge.received(frame);
        ASSERT_FALSE(judged);
        ASSERT_EQ(judged.error(), Violation::kNotAllowedForRole);
      }
    }
  }
}

TEST(Legality, P16_ABridgeCanOnlySayUnavailable) {
  for (const auto& leg : {kLegs[3], kLegs[5]}) {
    TwoEnds ends(leg);
    ends.shake_hands();
    auto& manager = ends.rules(kAcceptor);
    for (const auto& refused : {Refused{Refresh{}}, Refused{Denied{}}}) {
      const auto id = manager.next_stream();
      ends.must_send(kAcceptor, open_for(Role::kManager, leg.dialler), id);
      const auto judged = ConnectionRules(manager).received(Frame{id, refused});
      ASSERT_FALSE(judged);
      EXPECT_EQ(judged.error(), Violation::kNotAllowedForRole);
      ends.must_send(kDialler, Refused{Unavailable{}}, id);
      EXPECT_FALSE(manager.is_open(id));
    }
  }
}

TEST(Legality, P5_P22_AnOpenCarriesTheAuthorityAndScopeOfItsLegAlone) {
  for (const auto& leg : kLegs) {
    TwoEnds ends(leg);
    ends.shake_hands();
    const auto end = ends.opener();
    const auto right = open_for(ends.role(end), ends.role(1 - end));
    const auto judge = [&](const Open& open) {
      auto rules = ends.rules(end);
      return !rules.sending(Frame{rules.next_stream(), open}).has_value();
    };
    EXPECT_TRUE(judge(right));
    for (const auto& row : policy::operations()) {
      auto open = right;
      open.operation = row.operation;
      EXPECT_EQ(judge(open), row.scope == policy::info(right.operation).scope) << row.name;
    }
    const decltype(Open::authority) authorities[] = {std::monostate{}, Capability{to_bytes("x")},
                                                     AdmittedOp{sample_route(), 1, {1}}};
    for (const auto& authority : authorities) {
      auto open = right;
      open.authority = authority;
      EXPECT_EQ(judge(open), authority.index() == right.authority.index());
    }
    auto addressed = right;
    if (right.sandbox) {
      addressed.sandbox.reset();
    } else {
      addressed.sandbox = sample_route().sandbox;
    }
    EXPECT_FALSE(judge(addressed));
    if (std::holds_alternative<AdmittedOp>(right.authority)) {
      auto other = right;
      other.sandbox = identity::SandboxId::parse("other");
      EXPECT_FALSE(judge(other));
    }
  }
}

TEST(Legality, HelloComesFirstOnceAndNamesTheRole) {
  ConnectionRules manager(Role::kManager, Role::kNodeApi, false);
  Hello hello;
  hello.role = Role::kGuest;
  EXPECT_FALSE(manager.received(Frame{0, hello}));
  EXPECT_FALSE(manager.received(Frame{0, Ping{1}}));
  hello.role = Role::kNodeApi;
  EXPECT_TRUE(manager.received(Frame{0, hello}));
  EXPECT_TRUE(manager.received(Frame{0, Ping{1}}));
  EXPECT_FALSE(manager.received(Frame{0, hello}));
  // Its own HELLO has not been sent, so nobody can have seen its limits.
  EXPECT_EQ(manager.received(Frame{1, open_for(Role::kNodeApi, Role::kManager)}).error(),
            Violation::kWrongState);
}

TEST(Legality, P23_TheGuestIsProvenOnceInOrderBeforeAnythingIsOpened) {
  const auto open = open_for(Role::kBridge, Role::kGuest);
  TwoEnds ends(kGuestLeg);
  auto& bridge = ends.rules(kDialler);
  Hello hello;
  for (const std::size_t end : {kDialler, kAcceptor}) {
    EXPECT_TRUE(bridge.sending(Frame{0, Challenge{{}, sample_route()}}));
    hello.role = ends.role(end);
    ends.must_send(end, hello);
  }
  const auto id = bridge.next_stream();
  EXPECT_TRUE(bridge.sending(Frame{id, open}));
  EXPECT_FALSE(bridge.received(Frame{0, Proof{}}));
  ends.must_send(kDialler, Challenge{{}, sample_route()});
  EXPECT_TRUE(bridge.sending(Frame{0, Challenge{{}, sample_route()}}));
  ends.must_send(kAcceptor, Proof{});
  EXPECT_FALSE(bridge.received(Frame{0, Proof{}}));
  EXPECT_TRUE(bridge.sending(Frame{id, open}));
  ends.must_send(kDialler, ProofAck{});
  ends.must_send(kDialler, open, id);
  EXPECT_TRUE(bridge.sending(Frame{0, Rekey{sample_route(), Bytes(32), 1, {}}}));
}

TEST(Legality, P23_NothingIsOpenedOnAConnectionThatRekeys) {
  TwoEnds ends(kGuestLeg);
  ends.shake_hands();
  auto& bridge = ends.rules(kDialler);
  EXPECT_FALSE(bridge.received(Frame{0, Rekeyed{}}));
  ends.must_send(kDialler, Rekey{sample_route(), Bytes(32), 1, {}});
  EXPECT_TRUE(bridge.sending(Frame{bridge.next_stream(), open_for(Role::kBridge, Role::kGuest)}));
  ends.must_send(kAcceptor, Rekeyed{});
  EXPECT_FALSE(bridge.received(Frame{0, Rekeyed{}}));
  EXPECT_TRUE(bridge.sending(Frame{bridge.next_stream(), open_for(Role::kBridge, Role::kGuest)}));
}

TEST_F(Client, P19_BeforeAdmittedTheOpenerMayOnlyReset) {
  Seeded choose(4);
  stream = ends.rules(kDialler).next_stream();
  send(kDialler, open_for(Role::kNodeApi, Role::kManager));
  EXPECT_EQ(ends.rules(kDialler).send_window(stream), 0U);
  EXPECT_EQ(received(kAcceptor, data(0, 1)).error(), Violation::kWrongState);
  for (const auto type :
       {FrameType::kCredit, FrameType::kConsumed, FrameType::kEnd, FrameType::kRenew}) {
    EXPECT_EQ(received(kAcceptor, sample_payload(type, choose)).error(), Violation::kWrongState)
        << to_string(type);
  }
  for (const auto type : {FrameType::kData, FrameType::kCredit, FrameType::kConsumed,
                          FrameType::kEnd, FrameType::kRenewed}) {
    EXPECT_EQ(received(kDialler, sample_payload(type, choose)).error(), Violation::kWrongState)
        << to_string(type);
  }
  send(kDialler, Reset{});
  EXPECT_FALSE(ends.rules(kAcceptor).is_open(stream));
}

TEST_F(Client, ARefusalOrRevocationEndsTheStream) {
  const auto id = ends.rules(kDialler).next_stream();
  ends.must_send(kDialler, open_for(Role::kNodeApi, Role::kManager), id);
  ends.must_send(kAcceptor, Refused{Refresh{}}, id);
  EXPECT_FALSE(ends.rules(kDialler).is_open(id));
  EXPECT_EQ(refused(kAcceptor, Refused{Refresh{}}), Violation::kWrongState);
  send(kAcceptor, Revoked{});
  EXPECT_FALSE(ends.rules(kDialler).is_open(stream));
  EXPECT_EQ(refused(kDialler, data(0, 1)), Violation::kWrongState);
}

TEST_F(Client, OffsetsAreContiguousFromZeroInEachDirection) {
  EXPECT_EQ(received(kAcceptor, data(1, 1)).error(), Violation::kOffsetMismatch);
  send(kDialler, data(0, 10));
  send(kAcceptor, data(0, 3));
  EXPECT_EQ(ends.rules(kDialler).sent_offset(stream), 10U);
  for (const std::uint64_t offset : {0U, 9U, 11U}) {
    EXPECT_EQ(received(kAcceptor, data(offset, 1)).error(), Violation::kOffsetMismatch);
  }
  send(kDialler, data(10, 1));
  EXPECT_FALSE(ends.rules(kAcceptor).sending_data(stream, 3, 1));
  EXPECT_EQ(ends.rules(kAcceptor).sending_data(stream, 3, 1), Violation::kOffsetMismatch);
}

TEST_F(Client, P26_WindowsBoundWhatIsOnTheWayInEachDirection) {
  stream = open(100);
  EXPECT_EQ(ends.rules(kDialler).send_window(stream), 100U);
  EXPECT_EQ(ends.rules(kAcceptor).send_window(stream), kInitialWindow);
  EXPECT_EQ(received(kAcceptor, data(0, 101)).error(), Violation::kWindowExceeded);
  send(kDialler, data(0, 100));
  EXPECT_EQ(ends.rules(kDialler).send_window(stream), 0U);
  EXPECT_EQ(refused(kDialler, data(100, 1)), Violation::kWindowExceeded);
  send(kAcceptor, Credit{7});
  EXPECT_EQ(ends.rules(kDialler).send_window(stream), 7U);
  send(kDialler, data(100, 7));
  EXPECT_EQ(received(kAcceptor, data(107, 1)).error(), Violation::kWindowExceeded);
}

TEST_F(Client, P26_CreditNeverReachesBeyondTheLargestWindow) {
  stream = open(100);
  EXPECT_EQ(received(kDialler, Credit{kMaxWindow - 99}).error(), Violation::kCreditOverflow);
  EXPECT_EQ(received(kDialler, Credit{UINT32_MAX}).error(), Violation::kCreditOverflow);
  send(kAcceptor, Credit{kMaxWindow - 100});
  EXPECT_EQ(ends.rules(kDialler).send_window(stream), kMaxWindow);
  EXPECT_EQ(received(kDialler, Credit{1}).error(), Violation::kCreditOverflow);
}

TEST_F(Client, P28_ConsumedNeverPassesWhatWasSentAndNeverGoesBack) {
  send(kDialler, data(0, 10));
  EXPECT_EQ(received(kDialler, Consumed{11}).error(), Violation::kOffsetMismatch);
  send(kAcceptor, Consumed{4});
  EXPECT_EQ(received(kDialler, Consumed{3}).error(), Violation::kOffsetMismatch);
  send(kAcceptor, Consumed{10});
}

TEST_F(Client, TheOpenersEndClosesItsDirectionAndTheReceiversEndTheStream) {
  send(kDialler, data(0, 1));
  EXPECT_EQ(refused(kDialler, End{Outcome::kInternal, "", {}}), Violation::kWrongState);
  send(kDialler, End{});
  EXPECT_EQ(received(kAcceptor, data(1, 1)).error(), Violation::kWrongState);
  EXPECT_EQ(received(kAcceptor, End{}).error(), Violation::kWrongState);
  EXPECT_EQ(ends.rules(kDialler).send_window(stream), 0U);
  send(kAcceptor, data(0, 5));
  send(kDialler, Credit{5});
  send(kAcceptor, End{Outcome::kNotFound, "no", {}});
  EXPECT_EQ(ends.rules(kDialler).open_streams(), 0U);
  EXPECT_EQ(ends.rules(kAcceptor).open_streams(), 0U);
}

TEST_F(Client, WhatCrossedTheEndOfAStreamIsDiscarded) {
  Seeded choose(5);
  ASSERT_TRUE(ends.send(kAcceptor, Frame{stream, End{}}));
  ASSERT_TRUE(ends.send(kDialler, Frame{stream, data(0, 10)}));
  ASSERT_TRUE(ends.send(kDialler, Frame{stream, End{}}));
  ends.deliver_all();
  for (const auto type : {FrameType::kData, FrameType::kCredit, FrameType::kConsumed,
                          FrameType::kEnd, FrameType::kReset, FrameType::kRenewed,
                          FrameType::kRevoked, FrameType::kAdmitted, FrameType::kRefused}) {
    const auto judged = received(kDialler, sample_payload(type, choose));
    ASSERT_TRUE(judged) << to_string(type);
    EXPECT_EQ(*judged, Verdict::kDiscard) << to_string(type);
  }
  stream = 99;  // never opened
  EXPECT_EQ(received(kAcceptor, data(0, 1)).error(), Violation::kWrongStream);
  stream = 2;
  EXPECT_EQ(received(kAcceptor, data(0, 1)).error(), Violation::kWrongStream);
  stream = 0;
  EXPECT_EQ(received(kAcceptor, data(0, 1)).error(), Violation::kWrongStream);
}

TEST_F(Client, RenewalsAreAnsweredOnceEach) {
  EXPECT_EQ(received(kDialler, Renewed{}).error(), Violation::kWrongState);
  send(kDialler, Renew{{to_bytes("x")}});
  send(kDialler, Renew{{to_bytes("y")}});
  send(kAcceptor, Renewed{});
  send(kAcceptor, Renewed{});
  EXPECT_EQ(received(kDialler, Renewed{}).error(), Violation::kWrongState);
}

TEST_F(Client, StreamIdsAscendAndHaveTheParityOfTheirEnd) {
  const auto open = open_for(Role::kNodeApi, Role::kManager);
  const auto judge = [&](StreamId id) {
    return ConnectionRules(ends.rules(kAcceptor)).received(Frame{id, open});
  };
  EXPECT_EQ(stream, 1U);
  EXPECT_EQ(judge(1).error(), Violation::kStreamIdReused);
  EXPECT_EQ(judge(0).error(), Violation::kWrongStream);
  EXPECT_EQ(judge(4).error(), Violation::kWrongStream);
  EXPECT_TRUE(judge(5));
  EXPECT_EQ(ends.rules(kDialler).next_stream(), 3U);
  EXPECT_EQ(ends.rules(kDialler).next_stream(), 5U);
  EXPECT_EQ(ends.rules(kAcceptor).next_stream(), 2U);
}

TEST(Legality, P26_StreamsAreBoundedByTheReceiversHello) {
  TwoEnds ends(kClientLeg);
  Hello hello;
  hello.role = Role::kNodeApi;
  ends.must_send(kDialler, hello);
  hello.role = Role::kManager;
  hello.max_streams = 2;
  ends.must_send(kAcceptor, hello);
  auto& rules = ends.rules(kDialler);
  const auto open = open_for(Role::kNodeApi, Role::kManager);
  ends.must_send(kDialler, open, rules.next_stream());
  EXPECT_TRUE(rules.may_open());
  ends.must_send(kDialler, open, rules.next_stream());
  EXPECT_FALSE(rules.may_open());
  const auto id = rules.next_stream();
  EXPECT_EQ(rules.sending(Frame{id, open}), Violation::kTooManyStreams);
  EXPECT_EQ(ends.rules(kAcceptor).received(Frame{id, open}).error(), Violation::kTooManyStreams);
  ends.must_send(kAcceptor, Refused{Unavailable{}}, 1);
  ends.must_send(kDialler, open, id);
}

TEST(Legality, ARequestOfTheControlPlaneIsAnsweredOnceByItsOwnAnswer) {
  const std::pair<FrameType, FrameType> exchanges[] = {{FrameType::kInstall, FrameType::kInstalled},
                                                       {FrameType::kRetire, FrameType::kRetired},
                                                       {FrameType::kBundle, FrameType::kBundleAck},
                                                       {FrameType::kLease, FrameType::kLeaseAck}};
  Seeded choose(6);
  TwoEnds ends(kControlLeg);
  ends.shake_hands();
  auto& control = ends.rules(kDialler);
  for (const auto& [request, answer] : exchanges) {
    const auto id = control.next_stream();
    ends.must_send(kDialler, sample_payload(request, choose), id);
    for (const auto type : kAllTypes) {
      if (type == answer || type == FrameType::kReset) continue;
      EXPECT_FALSE(control.received(Frame{id, sample_payload(type, choose)})) << to_string(type);
    }
    ends.must_send(kAcceptor, sample_payload(answer, choose), id);
    EXPECT_FALSE(control.is_open(id));
    EXPECT_EQ(ends.rules(kAcceptor).sending(Frame{id, sample_payload(answer, choose)}),
              Violation::kWrongState);
  }
}

TEST(Legality, ConnectionFramesTravelOnStreamZeroAndStreamFramesDoNot) {
  TwoEnds ends(kClientLeg);
  ends.shake_hands();
  EXPECT_EQ(ends.rules(kDialler).received(Frame{1, Ping{}}).error(), Violation::kWrongStream);
  EXPECT_EQ(ends.rules(kDialler).received(Frame{1, Goaway{}}).error(), Violation::kWrongStream);
  EXPECT_EQ(ends.rules(kDialler).received(Frame{0, End{}}).error(), Violation::kWrongStream);
  EXPECT_TRUE(ends.rules(kDialler).received(Frame{0, Goaway{}}));
}

TEST(Legality, P20_EndsThatObeyTheRulesNeverFindEachOtherInViolation) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Seeded choose(seed);
    TwoEnds ends(kLegs[seed % kLegs.size()]);
    ends.shake_hands();
    for (int i = 0; i < 2000; ++i) ends.step(choose);
    ends.check_agreement(choose);
  }
}

TEST(Legality, P20_WhatAnEndMayNotSendIsNeverDeliveredByTheOther) {
  for (std::uint64_t seed = 1000; seed < 1060; ++seed) {
    Seeded choose(seed);
    TwoEnds ends(kLegs[seed % kLegs.size()]);
    if (seed % 7 != 0) ends.shake_hands();
    for (int i = 0; i < 500; ++i) {
      for (int n = 0; n < 4; ++n) ends.step(choose);
      for (int n = 0; n < 4; ++n) ends.check_agreement(choose);
    }
  }
}

}  // namespace
}  // namespace space::wire::hop
