#include "core/wire/legality.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "base/result.h"

namespace space::wire::hop {
namespace {

using enum FrameType;

constexpr std::size_t kRoles = std::to_underlying(Role::kGateway) + 1;
constexpr std::size_t kTypes = std::to_underlying(kFenced) + 1;
using Types = std::array<bool, kTypes>;
using Table = std::array<std::array<Types, kRoles>, kRoles>;  // [sender][receiver][type]

consteval Table make_table() {
  Table table{};
  const auto allow = [&table](Role sender, Role receiver, std::initializer_list<FrameType> types) {
    for (const auto type : types) {
      table[std::to_underlying(sender)][std::to_underlying(receiver)][std::to_underlying(type)] =
          true;
    }
  };
  allow(Role::kNodeApi, Role::kManager,
        {kHello, kOpen, kData, kCredit, kConsumed, kEnd, kReset, kRenew, kPing, kPong, kGoaway});
  allow(Role::kManager, Role::kNodeApi,
        {kHello, kAdmitted, kRefused, kData, kCredit, kConsumed, kEnd, kReset, kRenewed, kRevoked,
         kPing, kPong, kGoaway});

  allow(Role::kNodeApi, Role::kControlPlane,
        {kHello, kOpen, kData, kCredit, kEnd, kReset, kPing, kPong});
  allow(Role::kControlPlane, Role::kNodeApi,
        {kHello, kOpened, kRefused, kData, kCredit, kEnd, kReset, kPing, kPong, kGoaway,
         kSessionEnded});

  allow(Role::kControlPlane, Role::kManager,
        {kHello, kOpen, kData, kCredit, kEnd, kReset, kPing, kPong, kInstall, kRetire, kBundle,
         kLease, kSessionEnded});
  allow(Role::kManager, Role::kControlPlane,
        {kHello, kOpened, kRefused, kData, kCredit, kEnd, kReset, kPing, kPong, kInstalled,
         kRetired, kBundleAck, kLeaseAck});

  for (const auto part : {Role::kBridge, Role::kGateway}) {
    allow(
        Role::kManager, part,
        {kHello, kActivate, kFence, kOpen, kData, kCredit, kConsumed, kEnd, kReset, kPing, kPong});
    allow(part, Role::kManager,
          {kHello, kActivateAck, kFenced, kOpened, kRefused, kData, kCredit, kConsumed, kEnd,
           kReset, kPing, kPong});
  }

  allow(Role::kBridge, Role::kGuest,
        {kHello, kChallenge, kProofAck, kRekey, kOpen, kData, kCredit, kConsumed, kEnd, kReset,
         kPing});
  allow(Role::kGuest, Role::kBridge,
        {kHello, kProof, kOpened, kData, kCredit, kConsumed, kEnd, kReset, kRekeyed, kPong});
  return table;
}
constexpr Table kTable = make_table();

enum class Class : std::uint8_t { kConnection, kRequest, kStream };

Class class_of(FrameType type) {
  switch (type) {
    case kHello:
    case kChallenge:
    case kProof:
    case kProofAck:
    case kRekey:
    case kRekeyed:
    case kPing:
    case kPong:
    case kGoaway:
    case kSessionEnded:
    case kActivate:
    case kActivateAck:
    case kFence:
    case kFenced:
      return Class::kConnection;
    case kOpen:
    case kInstall:
    case kRetire:
    case kBundle:
    case kLease:
      return Class::kRequest;
    case kOpened:
    case kAdmitted:
    case kRefused:
    case kData:
    case kCredit:
    case kConsumed:
    case kEnd:
    case kReset:
    case kRenew:
    case kRenewed:
    case kRevoked:
    case kInstalled:
    case kRetired:
    case kBundleAck:
    case kLeaseAck:
      return Class::kStream;
  }
  std::unreachable();
}

bool answers(FrameType request, FrameType answer) {
  return (request == kInstall && answer == kInstalled) ||
         (request == kRetire && answer == kRetired) ||
         (request == kBundle && answer == kBundleAck) || (request == kLease && answer == kLeaseAck);
}

// Whether the operation, its address and its authority belong on the leg (P-5, P-22). What the
// manager admitted is about the addressed sandbox.
bool fits_leg(const Open& open, Role sender, Role receiver) {
  const auto scope = policy::info(open.operation).scope;
  if (receiver == Role::kControlPlane || sender == Role::kControlPlane) {
    const auto expected =
        receiver == Role::kControlPlane ? policy::Scope::kPlatform : policy::Scope::kNode;
    return scope == expected && !open.sandbox &&
           std::holds_alternative<std::monostate>(open.authority);
  }
  if (scope != policy::Scope::kSandbox || !open.sandbox) return false;
  if (receiver == Role::kBridge || receiver == Role::kGuest) {
    const auto* admitted = std::get_if<AdmittedOp>(&open.authority);
    return admitted != nullptr && admitted->route.sandbox == *open.sandbox;
  }
  return std::holds_alternative<Capability>(open.authority);
}

// Only the manager's comparator refuses a route, and only the manager and the control plane deny.
bool fits_leg(const Refused& refused, Role sender, Role receiver) {
  if (std::holds_alternative<Unavailable>(refused.verdict)) return true;
  if (sender == Role::kManager && receiver == Role::kNodeApi) return true;
  return std::holds_alternative<Denied>(refused.verdict) &&
         (sender == Role::kManager || sender == Role::kControlPlane);
}

}  // namespace

bool may_send(Role sender, Role receiver, FrameType type) {
  return kTable[std::to_underlying(sender)][std::to_underlying(receiver)][std::to_underlying(type)];
}

std::string_view to_string(Violation violation) {
  switch (violation) {
    case Violation::kNotAllowedForRole:
      return "not_allowed_for_role";
    case Violation::kWrongStream:
      return "wrong_stream";
    case Violation::kWrongState:
      return "wrong_state";
    case Violation::kOffsetMismatch:
      return "offset_mismatch";
    case Violation::kWindowExceeded:
      return "window_exceeded";
    case Violation::kTooManyStreams:
      return "too_many_streams";
    case Violation::kStreamIdReused:
      return "stream_id_reused";
    case Violation::kCreditOverflow:
      return "credit_overflow";
  }
  std::unreachable();
}

ConnectionRules::ConnectionRules(Role self, Role peer, bool dialled)
    : self_{self}, peer_{peer}, dialled_(dialled) {}

std::expected<ConnectionRules::Verdict, Violation> ConnectionRules::received(const Frame& frame) {
  return judge(frame, Sender::kPeer);
}

std::expected<ConnectionRules::Verdict, Violation> ConnectionRules::received_data(
    StreamId stream, std::uint64_t offset, std::size_t bytes) {
  return judge_data(stream, offset, bytes, Sender::kPeer);
}

std::optional<Violation> ConnectionRules::sending(const Frame& frame) {
  const auto judged = judge(frame, Sender::kSelf);
  if (!judged) return judged.error();
  return std::nullopt;
}

std::optional<Violation> ConnectionRules::sending_data(StreamId stream, std::uint64_t offset,
                                                       std::size_t bytes) {
  const auto judged = judge_data(stream, offset, bytes, Sender::kSelf);
  if (!judged) return judged.error();
  return std::nullopt;
}

StreamId ConnectionRules::next_stream() {
  if (last_given_ > UINT32_MAX - 2) return 0;
  last_given_ = last_given_ == 0 ? (dialled_ ? 1 : 2) : last_given_ + 2;
  return last_given_;
}

bool ConnectionRules::has_room(const Side& receiver) const {
  return streams_.size() < std::min(kMaxStreams, receiver.max_streams);
}

bool ConnectionRules::may_open() const { return has_room(peer_); }

std::uint32_t ConnectionRules::send_window(StreamId stream) const {
  const auto at = streams_.find(stream);
  if (at == streams_.end() || at->second.phase != Phase::kOpen) return 0;
  const auto& direction = at->second.by_self;
  return direction.ended ? 0 : static_cast<std::uint32_t>(direction.limit - direction.sent);
}

std::uint64_t ConnectionRules::sent_offset(StreamId stream) const {
  const auto at = streams_.find(stream);
  return at == streams_.end() ? 0 : at->second.by_self.sent;
}

bool ConnectionRules::is_open(StreamId stream) const { return streams_.contains(stream); }

ConnectionRules::Judgement ConnectionRules::judge(const Frame& frame, Sender sender) {
  if (const auto* data = std::get_if<Data>(&frame.payload)) {
    return judge_data(frame.stream, data->offset, data->bytes.size(), sender);
  }
  const auto type = type_of(frame.payload);
  const auto receiver = sender == Sender::kSelf ? Sender::kPeer : Sender::kSelf;
  if (!may_send(side(sender).role, side(receiver).role, type)) {
    return std::unexpected(Violation::kNotAllowedForRole);
  }
  if (side(sender).said_hello == (type == kHello)) return std::unexpected(Violation::kWrongState);
  const auto kind = class_of(type);
  if ((frame.stream == 0) != (kind == Class::kConnection)) {
    return std::unexpected(Violation::kWrongStream);
  }
  switch (kind) {
    case Class::kConnection:
      return judge_connection(frame.payload, type, sender);
    case Class::kRequest:
      return judge_request(frame, type, sender);
    case Class::kStream:
      return judge_stream(frame, type, sender);
  }
  std::unreachable();
}

bool ConnectionRules::proof_step(Handshake from, Handshake to) {
  if (handshake_ != from) return false;
  handshake_ = to;
  return true;
}

ConnectionRules::Judgement ConnectionRules::judge_connection(const Payload& payload, FrameType type,
                                                             Sender sender) {
  bool legal = true;
  if (const auto* hello = std::get_if<Hello>(&payload)) {
    if (hello->role != side(sender).role) return std::unexpected(Violation::kNotAllowedForRole);
    side(sender).said_hello = true;
    side(sender).max_streams = hello->max_streams;
  } else if (type == kChallenge) {
    legal = self_.said_hello && peer_.said_hello &&
            proof_step(Handshake::kFresh, Handshake::kChallenged);
  } else if (type == kProof) {
    legal = proof_step(Handshake::kChallenged, Handshake::kAnswered);
  } else if (type == kProofAck) {
    legal = proof_step(Handshake::kAnswered, Handshake::kProved);
  } else if (type == kRekey) {
    legal = self_.last_opened == 0 && peer_.last_opened == 0 &&
            proof_step(Handshake::kProved, Handshake::kRekeying);
  } else if (type == kRekeyed) {
    legal = proof_step(Handshake::kRekeying, Handshake::kRekeyed);
  }
  if (!legal) return std::unexpected(Violation::kWrongState);
  return Verdict::kDeliver;
}

ConnectionRules::Judgement ConnectionRules::judge_request(const Frame& frame, FrameType type,
                                                          Sender sender) {
  auto& opener = side(sender);
  const auto& receiver = side(sender == Sender::kSelf ? Sender::kPeer : Sender::kSelf);
  if (!receiver.said_hello) return std::unexpected(Violation::kWrongState);
  const bool guest_leg = receiver.role == Role::kGuest;
  if (guest_leg && handshake_ != Handshake::kProved) return std::unexpected(Violation::kWrongState);
  const bool odd = dialled_ == (sender == Sender::kSelf);
  if ((frame.stream % 2 == 1) != odd) return std::unexpected(Violation::kWrongStream);
  if (frame.stream <= opener.last_opened) return std::unexpected(Violation::kStreamIdReused);
  if (!has_room(receiver)) return std::unexpected(Violation::kTooManyStreams);
  const auto* open = std::get_if<Open>(&frame.payload);
  if (open != nullptr && !fits_leg(*open, opener.role, receiver.role)) {
    return std::unexpected(Violation::kNotAllowedForRole);
  }
  opener.last_opened = frame.stream;
  State state;
  state.phase = open != nullptr ? Phase::kOpening : Phase::kUnaryWaiting;
  state.request = type;
  state.opener = sender;
  streams_.emplace(frame.stream, state);
  return Verdict::kDeliver;
}

ConnectionRules::Judgement ConnectionRules::judge_absent(StreamId stream, Sender sender) const {
  const bool ours = (stream % 2 == 1) == dialled_;
  const auto last = ours ? self_.last_opened : peer_.last_opened;
  if (stream == 0 || stream > last) return std::unexpected(Violation::kWrongStream);
  if (sender == Sender::kSelf) return std::unexpected(Violation::kWrongState);
  return Verdict::kDiscard;
}

ConnectionRules::Judgement ConnectionRules::judge_data(StreamId stream, std::uint64_t offset,
                                                       std::size_t bytes, Sender sender) {
  const bool from_self = sender == Sender::kSelf;
  if (!may_send(from_self ? self_.role : peer_.role, from_self ? peer_.role : self_.role, kData)) {
    return std::unexpected(Violation::kNotAllowedForRole);
  }
  const auto at = streams_.find(stream);
  if (at == streams_.end()) return judge_absent(stream, sender);
  auto& direction = at->second.by(sender);
  if (at->second.phase != Phase::kOpen || direction.ended) {
    return std::unexpected(Violation::kWrongState);
  }
  if (offset != direction.sent) return std::unexpected(Violation::kOffsetMismatch);
  if (bytes > direction.limit - direction.sent) return std::unexpected(Violation::kWindowExceeded);
  direction.sent += bytes;
  return Verdict::kDeliver;
}

ConnectionRules::Judgement ConnectionRules::judge_stream(const Frame& frame, FrameType type,
                                                         Sender sender) {
  const auto at = streams_.find(frame.stream);
  if (at == streams_.end()) return judge_absent(frame.stream, sender);
  auto& state = at->second;
  const bool by_opener = state.opener == sender;
  auto& own = state.by(sender);
  auto& other = state.by(sender == Sender::kSelf ? Sender::kPeer : Sender::kSelf);
  const auto violation = [](Violation v) -> Judgement { return std::unexpected(v); };
  const auto close = [&]() -> Judgement {
    streams_.erase(at);
    return Verdict::kDeliver;
  };

  if (type == kReset) return close();
  switch (state.phase) {
    case Phase::kUnaryWaiting:
      return !by_opener && answers(state.request, type) ? close()
                                                        : violation(Violation::kWrongState);
    case Phase::kOpening:
      if (by_opener) return violation(Violation::kWrongState);
      if (const auto* refused = std::get_if<Refused>(&frame.payload)) {
        return fits_leg(*refused, side(sender).role, side(state.opener).role)
                   ? close()
                   : violation(Violation::kNotAllowedForRole);
      }
      if (type == kRevoked) return close();
      if (const auto* admitted = std::get_if<Admitted>(&frame.payload)) {
        other.limit = admitted->window;
      } else if (type != kOpened) {
        return violation(Violation::kWrongState);
      }
      state.phase = Phase::kOpen;
      return Verdict::kDeliver;
    case Phase::kOpen:
      break;
  }

  const Overload judge_open{
      [&](const Credit& credit) -> Judgement {
        if (credit.bytes > kMaxWindow - (other.limit - other.sent)) {
          return violation(Violation::kCreditOverflow);
        }
        other.limit += credit.bytes;
        return Verdict::kDeliver;
      },
      [&](const Consumed& consumed) -> Judgement {
        if (consumed.offset < other.consumed || consumed.offset > other.sent) {
          return violation(Violation::kOffsetMismatch);
        }
        other.consumed = consumed.offset;
        return Verdict::kDeliver;
      },
      [&](const End& end) -> Judgement {
        if (!by_opener) return close();
        if (own.ended || end.outcome != Outcome::kOk || !end.result.empty()) {
          return violation(Violation::kWrongState);
        }
        own.ended = true;
        return Verdict::kDeliver;
      },
      [&](const Renew&) -> Judgement {
        if (!by_opener) return violation(Violation::kWrongState);
        ++state.renewals;
        return Verdict::kDeliver;
      },
      [&](const Renewed&) -> Judgement {
        if (by_opener || state.renewals == 0) return violation(Violation::kWrongState);
        --state.renewals;
        return Verdict::kDeliver;
      },
      [&](const Revoked&) -> Judgement {
        return by_opener ? violation(Violation::kWrongState) : close();
      },
      [&](const auto&) -> Judgement { return violation(Violation::kWrongState); },
  };
  return std::visit(judge_open, frame.payload);
}

}  // namespace space::wire::hop
