#include <gtest/gtest.h>

#include "services/node_api/capability_cache.h"
#include "services/node_api/route_cache.h"
#include "services/node_api/session_cache.h"

namespace space::node_api {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <class Id>
Id id_of(std::uint8_t fill) {
  const Bytes bytes(Id::kBytes, std::byte{fill});
  return *Id::from(bytes);
}

Route route(std::uint64_t generation, std::string_view worker = "w1",
            std::string_view sandbox = "abc") {
  Route route;
  route.identity.sandbox = *identity::SandboxId::parse(sandbox);
  route.identity.generation = {generation};
  route.identity.worker = *identity::WorkerId::parse(worker);
  route.identity.activation = id_of<identity::ActivationId>(static_cast<std::uint8_t>(generation));
  route.endpoint = "unix:" + std::string(worker);
  return route;
}

TEST(RouteCache, RC3_ALateRefusalDoesNotEvictANewerEntry) {
  RouteCache cache;
  const auto old = route(7);
  const auto fresh = route(8, "w2");
  cache.insert(old);
  cache.insert(fresh);
  EXPECT_FALSE(cache.evict(old.identity, old.attempt));
  ASSERT_NE(cache.find(old.identity.sandbox), nullptr);
  EXPECT_EQ(*cache.find(old.identity.sandbox), fresh);
  EXPECT_TRUE(cache.evict(fresh.identity, fresh.attempt));
  EXPECT_EQ(cache.find(old.identity.sandbox), nullptr);
  EXPECT_FALSE(cache.evict(fresh.identity, fresh.attempt));
}

TEST(RouteCache, RC3_EvictionComparesTheWholeRefusedRoute) {
  const auto cached = route(7);
  auto others = std::vector<Route>(5, cached);
  others[0].identity.generation = {6};
  others[1].identity.worker = *identity::WorkerId::parse("w2");
  others[2].identity.activation = id_of<identity::ActivationId>(99);
  others[3].identity.pod_uid = identity::PodUid::parse("p");
  others[4].attempt = {2};
  for (const auto& other : others) {
    RouteCache cache;
    cache.insert(cached);
    EXPECT_FALSE(cache.evict(other.identity, other.attempt));
    EXPECT_NE(cache.find(cached.identity.sandbox), nullptr);
  }
}

TEST(RouteCache, P17_InsertionNeverLowersTheGenerationNotEvenAfterAnEviction) {
  RouteCache cache;
  cache.insert(route(8));
  EXPECT_FALSE(cache.insert(route(7)));
  EXPECT_EQ(cache.find(route(8).identity.sandbox)->identity.generation.value, 8U);
  cache.evict(route(8).identity, route(8).attempt);
  EXPECT_FALSE(cache.insert(route(7)));
  EXPECT_EQ(cache.find(route(8).identity.sandbox), nullptr);
  EXPECT_TRUE(cache.insert(route(9)));
}

TEST(RouteCache, P17_AnOlderAttemptOfTheSameRouteIsNotKept) {
  RouteCache cache;
  auto newer = route(7);
  newer.attempt = {2};
  cache.insert(newer);
  EXPECT_FALSE(cache.insert(route(7)));
  EXPECT_EQ(cache.find(newer.identity.sandbox)->attempt.value, 2U);
}

TEST(RouteCache, ABootNonceIsLearntForTheVeryRouteOnly) {
  RouteCache cache;
  cache.insert(route(7));
  cache.learn_boot(route(8).identity, id_of<identity::BootNonce>(1));
  EXPECT_EQ(cache.find(route(7).identity.sandbox)->worker_boot, identity::BootNonce{});
  cache.learn_boot(route(7).identity, id_of<identity::BootNonce>(1));
  EXPECT_EQ(cache.find(route(7).identity.sandbox)->worker_boot, id_of<identity::BootNonce>(1));
}

TEST(RouteCache, HoldsAtMostItsCapacityAndKeepsTheRecentlyUsed) {
  RouteCache cache(2);
  cache.insert(route(1, "w1", "aaa"));
  cache.insert(route(1, "w1", "bbb"));
  ASSERT_NE(cache.find(*identity::SandboxId::parse("aaa")), nullptr);
  cache.insert(route(1, "w1", "ccc"));
  EXPECT_EQ(cache.size(), 2U);
  EXPECT_NE(cache.find(*identity::SandboxId::parse("aaa")), nullptr);
  EXPECT_EQ(cache.find(*identity::SandboxId::parse("bbb")), nullptr);
}

constexpr WallTime kNow{seconds(1'000'000)};

CapabilityKey key() {
  CapabilityKey key;
  key.session = id_of<identity::SessionId>(1);
  key.route = route(7).identity;
  key.access = identity::AccessSet{}.with(identity::Access::kFilesRead);
  return key;
}

TEST(CapabilityCache, P17_EveryPartOfTheKeyKeepsCapabilitiesApart) {
  CapabilityCache cache;
  cache.insert(key(), {to_bytes("a"), kNow + seconds(120)});
  ASSERT_NE(cache.find(key(), kNow), nullptr);
  auto others = std::vector<CapabilityKey>(7, key());
  others[0].session = id_of<identity::SessionId>(2);
  others[1].route.generation = {8};
  others[2].attempt = {2};
  others[3].access = others[3].access.with(identity::Access::kFilesWrite);
  others[4].purpose = identity::Purpose::kServicePort;
  others[5].port = 80;
  others[6].protocol = identity::PortProtocol::kTcp;
  for (const auto& other : others) EXPECT_EQ(cache.find(other, kNow), nullptr);
}

TEST(CapabilityCache, ACapabilityWithLessThan30SecondsLeftIsNotUsed) {
  CapabilityCache cache;
  cache.insert(key(), {to_bytes("a"), kNow + seconds(120)});
  EXPECT_NE(cache.find(key(), kNow + seconds(90)), nullptr);
  EXPECT_EQ(cache.find(key(), kNow + seconds(90) + milliseconds(1)), nullptr);
}

TEST(CapabilityCache, IsBoundedAndForgetsASession) {
  CapabilityCache cache(2);
  for (std::uint64_t generation = 1; generation <= 3; ++generation) {
    auto one = key();
    one.route.generation = {generation};
    cache.insert(one, {to_bytes("a"), kNow + seconds(120)});
  }
  EXPECT_EQ(cache.size(), 2U);
  auto other = key();
  other.session = id_of<identity::SessionId>(2);
  cache.insert(other, {to_bytes("b"), kNow + seconds(120)});
  cache.erase_session(key().session);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_NE(cache.find(other, kNow), nullptr);
}

TEST(SessionCache, RC4_AnEntryEndsAtTheExpiryItCameWithHoweverOftenItIsUsed) {
  SessionCache cache;
  const Session session{id_of<identity::SessionId>(1), *identity::TeamId::parse("t"),
                        kNow + seconds(600)};
  cache.insert("e2b_1", session);
  for (int used = 0; used < 10; ++used) {
    ASSERT_NE(cache.find("e2b_1", kNow + seconds(500)), nullptr);
    EXPECT_EQ(cache.find("e2b_1", kNow)->expires_at, session.expires_at);
  }
  EXPECT_EQ(cache.find("e2b_1", kNow + seconds(541)), nullptr);
  EXPECT_EQ(cache.find("e2b_2", kNow), nullptr);
  cache.erase_session(session.id);
  EXPECT_EQ(cache.find("e2b_1", kNow), nullptr);
}

}  // namespace
}  // namespace space::node_api
