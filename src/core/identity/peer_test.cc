#include "core/identity/peer.h"

#include <gtest/gtest.h>

#include "core/identity/sha256.h"

namespace space::identity {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

const WallTime kStart{seconds(1'800'000'000)};

CertificateFields fields() {
  CertificateFields fields;
  fields.uris = {"space://space/worker/w3"};
  fields.p256 = true;
  fields.public_key = to_bytes("a public key");
  fields.not_before = kStart;
  fields.not_after = kStart + hours(24);
  return fields;
}

PeerDemand demand(WallTime now = kStart + hours(1)) {
  return {.issuer = *Issuer::parse("space"), .now = now};
}

PeerRefusal refusal(const CertificateFields& given, const PeerDemand& wanted = demand()) {
  const auto judged = peer_identity(given, wanted);
  EXPECT_FALSE(judged) << to_string(judged->role) << " " << judged->id.text();
  return judged ? PeerRefusal{} : judged.error();
}

TEST(Peer, TR3_ACertificateNamesRoleIdAndKey) {
  const auto peer = peer_identity(fields(), demand());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->role, PeerRole::kWorker);
  EXPECT_EQ(peer->id.text(), "w3");
  EXPECT_EQ(peer->key, *HolderId::from(sha256(as_bytes("a public key"))));
  EXPECT_EQ(peer->expires_at, kStart + hours(24));
}

TEST(Peer, TR3_EveryRoleReadsBackAsItself) {
  const auto issuer = *Issuer::parse("space");
  for (const auto role : {PeerRole::kControlPlane, PeerRole::kNodeApi, PeerRole::kWorker}) {
    auto given = fields();
    given.uris = {peer_uri(issuer, role, *PeerId::parse("a-1"))};
    const auto peer = peer_identity(given, demand());
    ASSERT_TRUE(peer) << given.uris.front();
    EXPECT_EQ(peer->role, role);
    EXPECT_EQ(peer->id.text(), "a-1");
  }
}

TEST(Peer, TR3_ANameInAnyOtherFormIsRefused) {
  for (const std::string name : {"space://space/worker/",
                                 "space://space/worker",
                                 "space://space//w3",
                                 "space://space/w3",
                                 "space://space/Worker/w3",
                                 "space://space/worker/W3",
                                 "space://space/worker/w3/",
                                 "space://space/worker/w3/x",
                                 "space://space/worker/w3?x",
                                 "space://space/worker/w3#x",
                                 "space://space/worker/w%33",
                                 "SPACE://space/worker/w3",
                                 "spiffe://space/worker/w3",
                                 "space://other/worker/w3",
                                 "space://space/worker/-w3",
                                 "space://space/root/w3",
                                 "space://space@other/worker/w3",
                                 "space://space:443/worker/w3",
                                 " space://space/worker/w3",
                                 "space:///worker/w3",
                                 "w3",
                                 "",
                                 "/"}) {
    auto given = fields();
    given.uris = {name};
    EXPECT_EQ(refusal(given), PeerRefusal::kForeignName) << name;
  }
  auto nul = fields();
  nul.uris = {std::string("space://space/worker/w3\0x", 25)};
  EXPECT_EQ(refusal(nul), PeerRefusal::kForeignName);
  auto long_id = fields();
  long_id.uris = {"space://space/worker/" + std::string(41, 'a')};
  EXPECT_EQ(refusal(long_id), PeerRefusal::kForeignName);
}

TEST(Peer, TR3_OneNameAndNoneBesideIt) {
  auto none = fields();
  none.uris.clear();
  EXPECT_EQ(refusal(none), PeerRefusal::kNoName);
  auto two = fields();
  two.uris.push_back("space://space/control-plane/control-1");
  EXPECT_EQ(refusal(two), PeerRefusal::kNoName);
  auto twice = fields();
  twice.uris.push_back(twice.uris.front());
  EXPECT_EQ(refusal(twice), PeerRefusal::kNoName);
  auto host = fields();
  host.other_names = true;
  EXPECT_EQ(refusal(host), PeerRefusal::kNoName);
}

TEST(Peer, TR3_ACaOrAnotherKindOfKeyIsNobody) {
  auto ca = fields();
  ca.ca = true;
  EXPECT_EQ(refusal(ca), PeerRefusal::kMayIssue);
  auto key = fields();
  key.p256 = false;
  EXPECT_EQ(refusal(key), PeerRefusal::kWrongKey);
}

TEST(Peer, P2_ClocksMayDifferByTheToleranceAtBothEndsAndNoMore) {
  const auto tolerance = demand().tolerance;
  const auto end = fields().not_after;
  EXPECT_TRUE(peer_identity(fields(), demand(kStart - tolerance)));
  EXPECT_EQ(refusal(fields(), demand(kStart - tolerance - milliseconds(1))),
            PeerRefusal::kNotYetValid);
  EXPECT_TRUE(peer_identity(fields(), demand(end + tolerance - milliseconds(1))));
  EXPECT_EQ(refusal(fields(), demand(end + tolerance)), PeerRefusal::kExpired);
}

TEST(Peer, C020_OnlyForRenewalIsAnExpiredCertificateStillAName) {
  auto wanted = demand(kStart + hours(24 * 365));
  EXPECT_EQ(refusal(fields(), wanted), PeerRefusal::kExpired);
  wanted.must_be_current = false;
  EXPECT_TRUE(peer_identity(fields(), wanted));
  auto foreign = fields();
  foreign.uris = {"space://other/worker/w3"};
  EXPECT_EQ(refusal(foreign, wanted), PeerRefusal::kForeignName);
}

}  // namespace
}  // namespace space::identity
