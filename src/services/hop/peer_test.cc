#include "services/hop/peer.h"

#include <gtest/gtest.h>

namespace space::hop {
namespace {

using identity::HolderId;
using identity::PeerId;
using identity::PeerIdentity;
using identity::PeerRole;

class Ended final : public Stream {
 public:
  explicit Ended(std::optional<PeerIdentity> identity, std::optional<std::uint32_t> uid = {})
      : identity_(std::move(identity)) {
    if (uid) peer_ = PeerCredentials{.pid = 1, .uid = *uid, .gid = 0};
  }
  Task<IoResult<std::size_t>> read_some(std::span<std::byte>) override { co_return 0U; }
  Task<IoResult<void>> write_all(ByteView) override {
    co_return io_error(std::errc::connection_reset);
  }
  void close() override {}
  std::optional<PeerCredentials> peer() const override { return peer_; }
  std::optional<PeerIdentity> identity() const override { return identity_; }

 private:
  std::optional<PeerIdentity> identity_;
  std::optional<PeerCredentials> peer_;
};

HolderId key(char fill) { return *HolderId::parse(std::string(64, fill)); }
PeerIdentity certified(PeerRole role, const char* id, HolderId of = key('a')) {
  return {role, *PeerId::parse(id), of, WallTime{}};
}
const std::map<std::uint32_t, HolderId> kByUid{{64'001, key('b')}};

TEST(Peer, TR3_ACertificateOfAnotherRoleIdOrKeyIsNotTheExpectedPeer) {
  const Ended worker(certified(PeerRole::kWorker, "w3"));
  EXPECT_TRUE(is(worker, {PeerRole::kWorker, "w3", {}, {}}));
  EXPECT_TRUE(is(worker, {PeerRole::kWorker, {}, key('a'), {}}));
  EXPECT_FALSE(is(worker, {PeerRole::kControlPlane, {}, {}, {}}));
  EXPECT_FALSE(is(worker, {PeerRole::kNodeApi, {}, {}, {}}));
  EXPECT_FALSE(is(worker, {PeerRole::kWorker, "w2", {}, {}}));
  EXPECT_FALSE(is(worker, {PeerRole::kWorker, "w3", key('c'), {}}));
}

TEST(Peer, TR3_ACertificateCountsAndNotAUidBesideIt) {
  const Ended worker(certified(PeerRole::kWorker, "w3"), 0);
  EXPECT_FALSE(is(worker, {PeerRole::kControlPlane, {}, {}, 0}));
  const Ended posing(certified(PeerRole::kWorker, "w3"), 64'001);
  EXPECT_FALSE(holder_at(posing, kByUid));
}

TEST(Peer, TR3_OnOneMachineTheUidCounts) {
  EXPECT_TRUE(is(Ended({}, 0), {PeerRole::kControlPlane, {}, {}, 0}));
  EXPECT_FALSE(is(Ended({}, 1), {PeerRole::kControlPlane, {}, {}, 0}));
  EXPECT_FALSE(is(Ended({}, {}), {PeerRole::kControlPlane, {}, {}, 0}));
}

TEST(Peer, P1_TheHolderIsTheKeyInANodeApisCertificateOrTheOneOfItsUid) {
  EXPECT_EQ(holder_at(Ended(certified(PeerRole::kNodeApi, "node-api")), kByUid), key('a'));
  EXPECT_FALSE(holder_at(Ended(certified(PeerRole::kWorker, "w3")), kByUid));
  EXPECT_FALSE(holder_at(Ended(certified(PeerRole::kControlPlane, "control-1")), kByUid));
  EXPECT_EQ(holder_at(Ended({}, 64'001), kByUid), key('b'));
  EXPECT_FALSE(holder_at(Ended({}, 0), kByUid));
  EXPECT_FALSE(holder_at(Ended({}, {}), kByUid));
}

}  // namespace
}  // namespace space::hop
