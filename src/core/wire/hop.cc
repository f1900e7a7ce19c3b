#include "core/wire/hop.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <utility>

#include "base/check.h"

namespace space::wire::hop {
namespace {

constexpr std::size_t kMaxIdBytes = 64;
constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kOffsetBytes = 8;
static_assert(kOffsetBytes + kMaxDataBytes <= kMaxPayloadBytes);

// In the order of Payload's alternatives.
constexpr std::array kTypes{
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
static_assert(kTypes.size() == std::variant_size_v<Payload>);
constexpr auto kIsKnown = [] {
  std::array<bool, UINT8_MAX + 1> known{};
  for (const auto type : kTypes) known[std::to_underlying(type)] = true;
  return known;
}();

// Bounds that the record codec does not know.
bool in_bounds(const auto&) { return true; }
bool in_bounds(const Hello& hello) { return hello.peer_id.size() <= kMaxIdBytes; }
bool in_bounds(const Proof& proof) { return proof.boot_id.size() <= kMaxIdBytes; }
bool in_bounds(const Rekey& rekey) { return rekey.secret.size() == kSecretBytes; }
bool in_bounds(const Capability& capability) {
  return capability.sealed.size() <= identity::kMaxSealedBytes;
}
bool in_bounds(const Open& open) {
  const auto* capability = std::get_if<Capability>(&open.authority);
  return open.attempt <= 1 && open.metadata.size() <= kMaxMetadataBytes &&
         (capability == nullptr || in_bounds(*capability));
}
bool in_bounds(const Admitted& admitted) { return admitted.window <= kMaxWindow; }
bool in_bounds(const Data& data) {
  return !data.bytes.empty() && data.bytes.size() <= kMaxDataBytes;
}
bool in_bounds(const Credit& credit) { return credit.bytes >= 1; }
bool in_bounds(const End& end) {
  return end.message.size() <= kMaxMessageBytes && end.result.size() <= kMaxMetadataBytes;
}
bool in_bounds(const Renew& renew) { return in_bounds(renew.capability); }
bool in_bounds(const Install& install) { return install.secret.size() == kSecretBytes; }
bool in_bounds(const Activate& activate) {
  return activate.secret.size() == kSecretBytes && (!activate.rekey || in_bounds(*activate.rekey));
}
bool in_bounds(const ActivateAck& ack) { return ack.boot_id.size() <= kMaxIdBytes; }

template <class T>
std::optional<Payload> decode_as(ByteView bytes) {
  auto record = wire::decode<T>(bytes);
  if (!record || !in_bounds(*record)) return std::nullopt;
  return *std::move(record);
}

std::optional<DataView> view_of_data(ByteView bytes) {
  ByteReader in(bytes);
  const auto offset = in.u64();
  if (in.failed() || in.rest().empty() || in.rest().size() > kMaxDataBytes) return std::nullopt;
  return DataView{offset, in.rest()};
}

std::optional<Payload> copy_of_data(ByteView bytes) {
  const auto data = view_of_data(bytes);
  if (!data) return std::nullopt;
  return Data{data->offset, {data->bytes.begin(), data->bytes.end()}};
}

std::optional<Payload> decode_payload(FrameType type, ByteView bytes) {
  switch (type) {
    case FrameType::kHello:
      return decode_as<Hello>(bytes);
    case FrameType::kChallenge:
      return decode_as<Challenge>(bytes);
    case FrameType::kProof:
      return decode_as<Proof>(bytes);
    case FrameType::kProofAck:
      return decode_as<ProofAck>(bytes);
    case FrameType::kRekey:
      return decode_as<Rekey>(bytes);
    case FrameType::kRekeyed:
      return decode_as<Rekeyed>(bytes);
    case FrameType::kOpen:
      return decode_as<Open>(bytes);
    case FrameType::kOpened:
      return decode_as<Opened>(bytes);
    case FrameType::kAdmitted:
      return decode_as<Admitted>(bytes);
    case FrameType::kRefused:
      return decode_as<Refused>(bytes);
    case FrameType::kData:
      return copy_of_data(bytes);
    case FrameType::kCredit:
      return decode_as<Credit>(bytes);
    case FrameType::kConsumed:
      return decode_as<Consumed>(bytes);
    case FrameType::kEnd:
      return decode_as<End>(bytes);
    case FrameType::kReset:
      return decode_as<Reset>(bytes);
    case FrameType::kRenew:
      return decode_as<Renew>(bytes);
    case FrameType::kRenewed:
      return decode_as<Renewed>(bytes);
    case FrameType::kRevoked:
      return decode_as<Revoked>(bytes);
    case FrameType::kPing:
      return decode_as<Ping>(bytes);
    case FrameType::kPong:
      return decode_as<Pong>(bytes);
    case FrameType::kGoaway:
      return decode_as<Goaway>(bytes);
    case FrameType::kInstall:
      return decode_as<Install>(bytes);
    case FrameType::kInstalled:
      return decode_as<Installed>(bytes);
    case FrameType::kRetire:
      return decode_as<Retire>(bytes);
    case FrameType::kRetired:
      return decode_as<Retired>(bytes);
    case FrameType::kBundle:
      return decode_as<Bundle>(bytes);
    case FrameType::kBundleAck:
      return decode_as<BundleAck>(bytes);
    case FrameType::kLease:
      return decode_as<Lease>(bytes);
    case FrameType::kLeaseAck:
      return decode_as<LeaseAck>(bytes);
    case FrameType::kSessionEnded:
      return decode_as<SessionEnded>(bytes);
    case FrameType::kActivate:
      return decode_as<Activate>(bytes);
    case FrameType::kActivateAck:
      return decode_as<ActivateAck>(bytes);
    case FrameType::kFence:
      return decode_as<Fence>(bytes);
    case FrameType::kFenced:
      return decode_as<Fenced>(bytes);
  }
  std::unreachable();
}

using Header = std::array<std::byte, kHeaderBytes>;
std::byte byte_of(std::uint64_t value, unsigned shift) {
  return static_cast<std::byte>((value >> shift) & 0xff);
}
Header header(std::size_t payload_bytes, FrameType type, StreamId stream) {
  return {byte_of(payload_bytes, 24),
          byte_of(payload_bytes, 16),
          byte_of(payload_bytes, 8),
          byte_of(payload_bytes, 0),
          std::byte{std::to_underlying(type)},
          std::byte{0},
          std::byte{0},
          std::byte{0},
          byte_of(stream, 24),
          byte_of(stream, 16),
          byte_of(stream, 8),
          byte_of(stream, 0)};
}

void append(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

}  // namespace

bool is_known(FrameType type) { return kIsKnown[std::to_underlying(type)]; }

FrameType type_of(const Payload& payload) { return kTypes[payload.index()]; }

void encode(const Frame& frame, Bytes& out) {
  const auto type = type_of(frame.payload);
  std::visit(
      [&]<class T>(const T& payload) {
        SPACE_ASSERT(in_bounds(payload));
        if constexpr (std::same_as<T, Data>) {
          encode_data(frame.stream, payload.offset, payload.bytes, out);
        } else {
          const auto begin = out.size();
          append(out, Header{});
          RecordWriter writer(std::move(out));
          T::fields(payload, writer);
          out = writer.take();
          const auto bytes = out.size() - begin - kHeaderBytes;
          SPACE_ASSERT(bytes <= kMaxPayloadBytes);
          std::ranges::copy(header(bytes, type, frame.stream),
                            out.begin() + static_cast<std::ptrdiff_t>(begin));
        }
      },
      frame.payload);
}

void encode_data(StreamId stream, std::uint64_t offset, ByteView bytes, Bytes& out) {
  SPACE_ASSERT(!bytes.empty() && bytes.size() <= kMaxDataBytes);
  append(out, header(kOffsetBytes + bytes.size(), FrameType::kData, stream));
  std::array<std::byte, kOffsetBytes> prefix;
  for (unsigned i = 0; i < kOffsetBytes; ++i) prefix[i] = byte_of(offset, 56 - 8 * i);
  append(out, prefix);
  append(out, bytes);
}

std::optional<Payload> decode_payload(const Decoder::Raw& raw) {
  return decode_payload(raw.type, raw.payload);
}

std::optional<DataView> decode_data(const Decoder::Raw& raw) { return view_of_data(raw.payload); }

// Makes at least `bytes` of room behind end_.
void Decoder::make_room(std::size_t bytes) {
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (buffer_.size() - end_ < bytes) {
    std::copy(at(begin_), at(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < bytes) {
    buffer_.resize(std::max({end_ + bytes, 2 * buffer_.size(), kFirstBytes}));
  }
}

std::span<std::byte> Decoder::prepare() {
  // A buffer that one read filled may be too small.
  if (filled_ && buffer_.size() < kMostBytes) buffer_.resize(2 * buffer_.size());
  make_room(kMinRoom);
  return std::span(buffer_).subspan(end_);
}

void Decoder::commit(std::size_t bytes) {
  SPACE_ASSERT(bytes <= buffer_.size() - end_);
  end_ += bytes;
  filled_ = end_ == buffer_.size();
}

void Decoder::feed(ByteView bytes) {
  if (failed_) return;
  make_room(bytes.size());
  std::ranges::copy(bytes, at(end_));
  end_ += bytes.size();
}

std::unexpected<FrameError> Decoder::fail(FrameError error) {
  failed_ = error;
  buffer_ = {};
  begin_ = end_ = 0;
  return std::unexpected(error);
}

std::expected<std::optional<Decoder::Raw>, FrameError> Decoder::next_raw() {
  if (failed_) return std::unexpected(*failed_);
  if (buffered() < kHeaderBytes) return std::nullopt;
  ByteReader in(ByteView(buffer_).subspan(begin_, buffered()));
  const std::size_t payload_bytes = in.u32();
  const auto type = static_cast<FrameType>(in.u8());
  const auto flags = in.u8();
  const auto reserved = in.u16();
  const StreamId stream = in.u32();
  if (payload_bytes > kMaxPayloadBytes) return fail(FrameError::kTooLarge);
  if (!is_known(type)) return fail(FrameError::kUnknownType);
  if (flags != 0 || reserved != 0) return fail(FrameError::kBadFlags);
  if (in.rest().size() < payload_bytes) return std::nullopt;
  begin_ += kHeaderBytes + payload_bytes;
  return Raw{type, stream, in.raw(payload_bytes)};
}

std::expected<std::optional<Frame>, FrameError> Decoder::next() {
  const auto raw = next_raw();
  if (!raw) return std::unexpected(raw.error());
  if (!*raw) return std::nullopt;
  auto payload = decode_payload(**raw);
  if (!payload) return fail(FrameError::kMalformed);
  return Frame{(*raw)->stream, *std::move(payload)};
}

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kNodeApi:
      return "node-api";
    case Role::kManager:
      return "sbx-manager";
    case Role::kBridge:
      return "spaced-host";
    case Role::kGuest:
      return "spaced-guest";
    case Role::kControlPlane:
      return "control-plane";
    case Role::kGateway:
      return "netgtw";
  }
  std::unreachable();
}

std::string_view to_string(UnavailableReason reason) {
  switch (reason) {
    case UnavailableReason::kInstalling:
      return "installing";
    case UnavailableReason::kDraining:
      return "draining";
    case UnavailableReason::kOverloaded:
      return "overloaded";
    case UnavailableReason::kNoBridge:
      return "no_bridge";
    case UnavailableReason::kFenced:
      return "fenced";
    case UnavailableReason::kNoSuchOperation:
      return "no_such_operation";
    case UnavailableReason::kInternal:
      return "internal";
  }
  std::unreachable();
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return "ok";
    case Outcome::kNotFound:
      return "not_found";
    case Outcome::kAlreadyExists:
      return "already_exists";
    case Outcome::kPermissionDenied:
      return "permission_denied";
    case Outcome::kInvalidArgument:
      return "invalid_argument";
    case Outcome::kNoSpace:
      return "no_space";
    case Outcome::kIsDirectory:
      return "is_directory";
    case Outcome::kNotDirectory:
      return "not_directory";
    case Outcome::kConflict:
      return "conflict";
    case Outcome::kUnauthenticated:
      return "unauthenticated";
    case Outcome::kUnavailable:
      return "unavailable";
    case Outcome::kUnsupported:
      return "unsupported";
    case Outcome::kDeadlineExceeded:
      return "deadline_exceeded";
    case Outcome::kTooLarge:
      return "too_large";
    case Outcome::kInternal:
      return "internal";
    case Outcome::kLimitReached:
      return "limit_reached";
    case Outcome::kInterrupted:
      return "interrupted";
  }
  std::unreachable();
}

std::string_view to_string(ResetCode code) {
  switch (code) {
    case ResetCode::kCancelled:
      return "cancelled";
    case ResetCode::kConnectionLost:
      return "connection_lost";
    case ResetCode::kSlowReader:
      return "slow_reader";
    case ResetCode::kProtocol:
      return "protocol";
    case ResetCode::kLimit:
      return "limit";
    case ResetCode::kDeadline:
      return "deadline";
    case ResetCode::kInternal:
      return "internal";
  }
  std::unreachable();
}

std::string_view to_string(InstallOutcome outcome) {
  switch (outcome) {
    case InstallOutcome::kInstalled:
      return "installed";
    case InstallOutcome::kBehindFloor:
      return "behind_floor";
    case InstallOutcome::kConflicting:
      return "conflicting";
    case InstallOutcome::kAttemptBackwards:
      return "attempt_backwards";
    case InstallOutcome::kMalformed:
      return "malformed";
    case InstallOutcome::kWrongWorker:
      return "wrong_worker";
    case InstallOutcome::kNoRuntime:
      return "no_runtime";
    case InstallOutcome::kBridgeFailed:
      return "bridge_failed";
    case InstallOutcome::kTooOld:
      return "too_old";
    case InstallOutcome::kStoreFailed:
      return "store_failed";
    case InstallOutcome::kFenced:
      return "fenced";
  }
  std::unreachable();
}

std::string_view to_string(ActivateOutcome outcome) {
  switch (outcome) {
    case ActivateOutcome::kReady:
      return "ready";
    case ActivateOutcome::kConnectRefused:
      return "connect_refused";
    case ActivateOutcome::kConnectTimedOut:
      return "connect_timed_out";
    case ActivateOutcome::kProofFailed:
      return "proof_failed";
    case ActivateOutcome::kProtocol:
      return "protocol";
    case ActivateOutcome::kRekeyFailed:
      return "rekey_failed";
  }
  std::unreachable();
}

std::string_view to_string(FrameType type) {
  switch (type) {
    case FrameType::kHello:
      return "HELLO";
    case FrameType::kChallenge:
      return "CHALLENGE";
    case FrameType::kProof:
      return "PROOF";
    case FrameType::kProofAck:
      return "PROOF_ACK";
    case FrameType::kRekey:
      return "REKEY";
    case FrameType::kRekeyed:
      return "REKEYED";
    case FrameType::kOpen:
      return "OPEN";
    case FrameType::kOpened:
      return "OPENED";
    case FrameType::kAdmitted:
      return "ADMITTED";
    case FrameType::kRefused:
      return "REFUSED";
    case FrameType::kData:
      return "DATA";
    case FrameType::kCredit:
      return "CREDIT";
    case FrameType::kConsumed:
      return "CONSUMED";
    case FrameType::kEnd:
      return "END";
    case FrameType::kReset:
      return "RESET";
    case FrameType::kRenew:
      return "RENEW";
    case FrameType::kRenewed:
      return "RENEWED";
    case FrameType::kRevoked:
      return "REVOKED";
    case FrameType::kPing:
      return "PING";
    case FrameType::kPong:
      return "PONG";
    case FrameType::kGoaway:
      return "GOAWAY";
    case FrameType::kInstall:
      return "INSTALL";
    case FrameType::kInstalled:
      return "INSTALLED";
    case FrameType::kRetire:
      return "RETIRE";
    case FrameType::kRetired:
      return "RETIRED";
    case FrameType::kBundle:
      return "BUNDLE";
    case FrameType::kBundleAck:
      return "BUNDLE_ACK";
    case FrameType::kLease:
      return "LEASE";
    case FrameType::kLeaseAck:
      return "LEASE_ACK";
    case FrameType::kSessionEnded:
      return "SESSION_ENDED";
    case FrameType::kActivate:
      return "ACTIVATE";
    case FrameType::kActivateAck:
      return "ACTIVATE_ACK";
    case FrameType::kFence:
      return "FENCE";
    case FrameType::kFenced:
      return "FENCED";
  }
  std::unreachable();
}

std::string_view to_string(FrameError error) {
  switch (error) {
    case FrameError::kTooLarge:
      return "too_large";
    case FrameError::kUnknownType:
      return "unknown_type";
    case FrameError::kBadFlags:
      return "bad_flags";
    case FrameError::kMalformed:
      return "malformed";
  }
  std::unreachable();
}

}  // namespace space::wire::hop
