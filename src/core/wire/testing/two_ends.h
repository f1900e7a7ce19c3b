#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/wire/legality.h"

// Both ends of one hop connection, with the frames on the way between them, driven by a chooser: a
// seeded generator in tests, the fuzzer's bytes in fuzz targets. `choose(n)` yields a number below
// n.
namespace space::wire::hop::testing {

inline constexpr std::array kAllTypes{
    FrameType::kHello,    FrameType::kChallenge,    FrameType::kProof,     FrameType::kProofAck,
    FrameType::kRekey,    FrameType::kRekeyed,      FrameType::kOpen,      FrameType::kOpened,
    FrameType::kAdmitted, FrameType::kRefused,      FrameType::kData,      FrameType::kCredit,
    FrameType::kConsumed, FrameType::kEnd,          FrameType::kReset,     FrameType::kRenew,
    FrameType::kRenewed,  FrameType::kRevoked,      FrameType::kPing,      FrameType::kPong,
    FrameType::kGoaway,   FrameType::kInstall,      FrameType::kInstalled, FrameType::kRetire,
    FrameType::kRetired,  FrameType::kBundle,       FrameType::kBundleAck, FrameType::kLease,
    FrameType::kLeaseAck, FrameType::kSessionEnded, FrameType::kActivate,  FrameType::kActivateAck,
    FrameType::kFence,    FrameType::kFenced,
};

struct Leg {
  Role dialler;
  Role acceptor;
  Role opener;  // the one of the two that opens streams
};
inline constexpr std::array kLegs{
    Leg{Role::kNodeApi, Role::kManager, Role::kNodeApi},
    Leg{Role::kNodeApi, Role::kControlPlane, Role::kNodeApi},
    Leg{Role::kControlPlane, Role::kManager, Role::kControlPlane},
    Leg{Role::kBridge, Role::kManager, Role::kManager},
    Leg{Role::kBridge, Role::kGuest, Role::kBridge},
    Leg{Role::kGateway, Role::kManager, Role::kManager},
};
inline constexpr Leg kGuestLeg = kLegs[4];

inline identity::RouteIdentity sample_route() {
  identity::RouteIdentity route;
  route.sandbox = *identity::SandboxId::parse("abcdefghij0123456789");
  route.generation = {7};
  route.worker = *identity::WorkerId::parse("w1");
  return route;
}

// The OPEN that belongs on a leg.
inline Open open_for(Role sender, Role receiver) {
  const auto route = sample_route();
  Open open;
  if (receiver == Role::kControlPlane) {
    open.operation = policy::Operation::kSandboxGet;
  } else if (sender == Role::kControlPlane) {
    open.operation = policy::Operation::kNodeStart;
  } else {
    open.sandbox = route.sandbox;
    if (receiver == Role::kBridge || receiver == Role::kGuest) {
      open.authority = AdmittedOp{route, 3, {9}};
    } else {
      open.authority = Capability{to_bytes("sealed")};
    }
  }
  return open;
}

// A payload of the type whose contents `choose` varies; for OPEN one of any leg.
Payload sample_payload(FrameType type, auto& choose) {
  const Bytes secret(32, std::byte{7});
  switch (type) {
    case FrameType::kHello: {
      Hello hello;
      hello.role = static_cast<Role>(1 + choose(6));
      hello.peer_id = "w1";
      hello.max_streams = choose(2) == 0 ? kMaxStreams : choose(8);
      return hello;
    }
    case FrameType::kChallenge:
      return Challenge{{}, sample_route()};
    case FrameType::kProof:
      return Proof{{}, "boot", {}};
    case FrameType::kProofAck:
      return ProofAck{};
    case FrameType::kRekey:
      return Rekey{sample_route(), secret, 16384, {}};
    case FrameType::kRekeyed:
      return Rekeyed{};
    case FrameType::kOpen: {
      const auto& leg = kLegs[choose(kLegs.size())];
      auto open = open_for(leg.opener, leg.opener == leg.dialler ? leg.acceptor : leg.dialler);
      const auto table = policy::operations();
      if (choose(4) == 0) {
        open.operation = table[choose(static_cast<std::uint32_t>(table.size()))].operation;
      }
      if (choose(8) == 0) open.sandbox = identity::SandboxId::parse("other");
      return open;
    }
    case FrameType::kOpened:
      return Opened{};
    case FrameType::kAdmitted: {
      Admitted admitted{sample_route(), 3, {9}, {}, kInitialWindow};
      if (choose(2) == 0) admitted.window = choose(kMaxWindow + 1);
      return admitted;
    }
    case FrameType::kRefused:
      switch (choose(3)) {
        case 0:
          return Refused{Refresh{identity::RefreshReason::kStale}};
        case 1:
          return Refused{Denied{identity::DenyReason::kExpired}};
      }
      return Refused{Unavailable{UnavailableReason::kDraining, 10}};
    case FrameType::kData:
      return Data{choose(4), Bytes(1 + choose(kMaxDataBytes), std::byte{1})};
    case FrameType::kCredit:
      return Credit{1 + choose(choose(4) == 0 ? 2 * kMaxWindow : kInitialWindow)};
    case FrameType::kConsumed:
      return Consumed{choose(4) == 0 ? choose(kMaxWindow) : choose(4)};
    case FrameType::kEnd: {
      End end;
      if (choose(2) == 0) end.outcome = static_cast<Outcome>(choose(17));
      if (choose(4) == 0) end.result = to_bytes("result");
      return end;
    }
    case FrameType::kReset:
      return Reset{ResetCode::kCancelled, Forwarded::kSome};
    case FrameType::kRenew:
      return Renew{{to_bytes("sealed")}};
    case FrameType::kRenewed:
      return Renewed{std::nullopt, WallTime{}};
    case FrameType::kRevoked:
      return Revoked{{9}, identity::LeaseEnd::kReplaced};
    case FrameType::kPing:
      return Ping{5};
    case FrameType::kPong:
      return Pong{5};
    case FrameType::kGoaway:
      return Goaway{3, 1000};
    case FrameType::kInstall:
      return Install{to_bytes("record"), secret, 1000};
    case FrameType::kInstalled:
      return Installed{InstallOutcome::kInstalled, 1, 7, "detail"};
    case FrameType::kRetire:
      return Retire{sample_route(), {}};
    case FrameType::kRetired:
      return Retired{true, 7};
    case FrameType::kBundle:
      return Bundle{to_bytes("bundle")};
    case FrameType::kBundleAck:
      return BundleAck{identity::BundleRefusal::kExpired, {4}};
    case FrameType::kLease:
      return Lease{5000, {}};
    case FrameType::kLeaseAck:
      return LeaseAck{-12, true};
    case FrameType::kSessionEnded:
      return SessionEnded{};
    case FrameType::kActivate:
      return Activate{sample_route(), 3, secret, Rekey{sample_route(), secret, 16384, {}}};
    case FrameType::kActivateAck:
      return ActivateAck{ActivateOutcome::kReady, "boot"};
    case FrameType::kFence:
      return Fence{};
    case FrameType::kFenced:
      return Fenced{};
  }
  std::unreachable();
}

class TwoEnds {
 public:
  explicit TwoEnds(const Leg& leg)
      : ends_{Side{leg.dialler, ConnectionRules(leg.dialler, leg.acceptor, true), {}},
              Side{leg.acceptor, ConnectionRules(leg.acceptor, leg.dialler, false), {}}},
        opener_(leg.opener == leg.dialler ? 0 : 1) {}

  std::size_t opener() const { return opener_; }
  Role role(std::size_t end) const { return ends_[end].role; }
  ConnectionRules& rules(std::size_t end) { return ends_[end].rules; }
  bool in_flight() const { return !ends_[0].outgoing.empty() || !ends_[1].outgoing.empty(); }

  // Puts a frame on the way when the sender's own rules allow it.
  bool send(std::size_t end, Frame frame) {
    if (ends_[end].rules.sending(frame)) return false;
    ends_[end].outgoing.push_back(std::move(frame));
    return true;
  }
  // What is legal to send is legal to receive, whatever crossed it on the way.
  void deliver(std::size_t from) {
    auto& sender = ends_[from];
    if (sender.outgoing.empty()) return;
    auto& receiver = ends_[1 - from];
    const auto verdict = receiver.rules.received(sender.outgoing.front());
    SPACE_ASSERT(verdict.has_value());
    if (*verdict == ConnectionRules::Verdict::kDiscard) {
      SPACE_ASSERT(!receiver.rules.is_open(sender.outgoing.front().stream));
    }
    sender.outgoing.pop_front();
  }
  void deliver_all() {
    while (in_flight()) {
      deliver(0);
      deliver(1);
    }
  }
  void must_send(std::size_t end, Payload payload, StreamId stream = 0) {
    const bool sent = send(end, Frame{stream, std::move(payload)});
    SPACE_ASSERT(sent);
    deliver_all();
  }
  // HELLO both ways, and the proof on the guest leg.
  void shake_hands() {
    for (const std::size_t end : {0U, 1U}) {
      Hello hello;
      hello.role = role(end);
      must_send(end, hello);
    }
    if (role(1) != Role::kGuest) return;
    must_send(0, Challenge{{}, sample_route()});
    must_send(1, Proof{{}, "boot", {}});
    must_send(0, ProofAck{});
  }

  // A frame one end might send now: mostly sensible, sometimes not legal.
  Frame candidate(std::size_t end, auto& choose) {
    auto type = kAllTypes[choose(kAllTypes.size())];
    if (choose(8) != 0) {
      while (!may_send(role(end), role(1 - end), type)) type = following(type);
    }
    // After a REKEY nothing is opened: rare, for the traffic to go on.
    if (type == FrameType::kRekey && choose(32) != 0) type = FrameType::kOpen;
    auto& rules = ends_[end].rules;
    Frame frame;
    if (choose(4) != 0 && !streams_.empty()) {
      const auto newest = static_cast<std::uint32_t>(streams_.size());
      frame.stream = streams_[newest - 1 - choose(std::min(newest, 8U))];
    }
    frame.payload = sample_payload(type, choose);
    if (type == FrameType::kOpen || type == FrameType::kInstall || type == FrameType::kRetire ||
        type == FrameType::kBundle || type == FrameType::kLease) {
      if (choose(8) != 0) frame.stream = rules.next_stream();
      if (type == FrameType::kOpen && choose(4) != 0) {
        frame.payload = open_for(role(end), role(1 - end));
      }
    }
    if (auto* data = std::get_if<Data>(&frame.payload); data != nullptr && choose(16) != 0) {
      data->offset = rules.sent_offset(frame.stream);
      const auto window = rules.send_window(frame.stream);
      if (window > 0 && choose(16) != 0 && data->bytes.size() > window) data->bytes.resize(window);
    }
    return frame;
  }

  // One step of traffic: a delivery or an attempt to send.
  void step(auto& choose) {
    const std::size_t end = choose(2);
    if (choose(3) == 0) {
      deliver(end);
      return;
    }
    auto frame = candidate(end, choose);
    const auto stream = frame.stream;
    const auto type = type_of(frame.payload);
    if (send(end, std::move(frame)) &&
        (type == FrameType::kOpen || type == FrameType::kInstall || type == FrameType::kRetire ||
         type == FrameType::kBundle || type == FrameType::kLease)) {
      streams_.push_back(stream);
    }
  }

  // With nothing on the way the ends agree: which streams there are, and for every frame whether it
  // may be sent.
  void check_agreement(auto& choose) {
    deliver_all();
    SPACE_ASSERT(ends_[0].rules.open_streams() == ends_[1].rules.open_streams());
    for (const auto stream : streams_) {
      SPACE_ASSERT(ends_[0].rules.is_open(stream) == ends_[1].rules.is_open(stream));
    }
    const std::size_t end = choose(2);
    const auto frame = candidate(end, choose);
    auto sender = ends_[end].rules;
    auto receiver = ends_[1 - end].rules;
    const bool refused = sender.sending(frame).has_value();
    const auto judged = receiver.received(frame);
    const bool delivered = judged && *judged == ConnectionRules::Verdict::kDeliver;
    SPACE_ASSERT(refused == !delivered);
  }

 private:
  static FrameType following(FrameType type) {
    const auto at = std::ranges::find(kAllTypes, type) + 1;
    return at == kAllTypes.end() ? kAllTypes.front() : *at;
  }
  struct Side {
    Role role;
    ConnectionRules rules;
    std::deque<Frame> outgoing;
  };
  std::array<Side, 2> ends_;
  std::size_t opener_;
  std::vector<StreamId> streams_;
};

}  // namespace space::wire::hop::testing
