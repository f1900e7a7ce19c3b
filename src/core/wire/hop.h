#pragma once
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/identity/comparator.h"
#include "core/identity/key_bundle.h"
#include "core/identity/lease.h"
#include "core/policy/operations.h"
#include "core/wire/record.h"

// The hop protocol (DESIGN 4, PROTOCOL "Frames"): one codec on every private hop. No socket inside.
//
// A frame on the wire: length u32 (of the payload), type u8, flags u8 (0), reserved u16 (0), stream
// u32, payload. Stream 0 is the connection itself. The side that dialled opens odd streams, ids
// ascending.
namespace space::wire::hop {

inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 12;
inline constexpr std::size_t kMaxDataBytes = 64 * 1024;      // bytes of one DATA
inline constexpr std::size_t kMaxMetadataBytes = 16 * 1024;  // typed metadata of an OPEN
inline constexpr std::size_t kMaxRecordBytes = 1 << 20;      // larger records travel as DATA
inline constexpr std::size_t kMaxPayloadBytes = 80 * 1024;   // of any frame
inline constexpr std::uint32_t kInitialWindow = 1 << 20;     // bytes per stream and direction
inline constexpr std::uint32_t kMaxWindow = 16 << 20;        // credit never reaches further ahead
inline constexpr std::uint32_t kMaxStreams = 4096;           // open at a time per connection

enum class Role : std::uint8_t {
  kNodeApi = 1,
  kManager = 2,
  kBridge = 3,
  kGuest = 4,
  kControlPlane = 5,
  kGateway = 6,
};
constexpr bool is_known(Role role) { return role >= Role::kNodeApi && role <= Role::kGateway; }
std::string_view to_string(Role role);

using StreamId = std::uint32_t;
using RequestId = StrongBytes<struct RequestIdTag, 16>;
using Nonce = StrongBytes<struct NonceTag, 32>;
using Mac = StrongBytes<struct MacTag, 32>;

// ---- connection ----
struct Hello {
  std::uint16_t version = kVersion;
  Role role = Role::kNodeApi;
  std::string peer_id;  // at most 64 bytes; a worker's id, a part's name
  identity::BootNonce boot;
  std::uint16_t operation_table = policy::kOperationTableVersion;
  std::uint32_t max_streams = kMaxStreams;
  static void fields(auto& r, auto& f) {
    f(r.version, r.role, r.peer_id, r.boot, r.operation_table, r.max_streams);
  }
};
// Guest leg only (P-23). The bridge sends CHALLENGE, the guest answers PROOF, the bridge PROOF_ACK.
struct Challenge {
  Nonce nonce;
  identity::RouteIdentity route;
  static void fields(auto& r, auto& f) { f(r.nonce, r.route); }
};
struct Proof {
  Nonce nonce;          // the guest's own
  std::string boot_id;  // at most 64 bytes
  Mac mac;              // label "space guest proof"
  static void fields(auto& r, auto& f) { f(r.nonce, r.boot_id, r.mac); }
};
struct ProofAck {
  Mac mac;  // label "space bridge proof"
  static void fields(auto& r, auto& f) { f(r.mac); }
};
// On a connection proven under the old secret; nothing else is admitted on it (P-23, P-24).
struct Rekey {
  identity::RouteIdentity route;  // the new identity
  Bytes secret;                   // 32 bytes
  std::uint32_t first_public_pid = 0;
  WallTime now;  // the guest's clock is set from it
  static void fields(auto& r, auto& f) { f(r.route, r.secret, r.first_public_pid, r.now); }
};
struct Rekeyed {
  static void fields(auto&, auto&) {}
};

// ---- operations ----
// What the manager admitted; made by its admission alone (P-5, P-22).
struct AdmittedOp {
  identity::RouteIdentity route;
  std::uint64_t epoch = 0;
  identity::LeaseId lease;
  static void fields(auto& r, auto& f) { f(r.route, r.epoch, r.lease); }
};
struct Capability {
  Bytes sealed;
  static void fields(auto& r, auto& f) { f(r.sealed); }
};
struct Open {
  RequestId request;
  std::uint8_t attempt = 0;  // 0, or 1 for the rebuilt attempt (P-16)
  policy::Operation operation = policy::Operation::kFileRead;
  std::optional<identity::SandboxId> sandbox;  // addressed; absent for platform and node operations
  std::variant<std::monostate, Capability, AdmittedOp> authority;
  std::uint32_t deadline_ms = 0;  // from now; 0 = none
  Bytes metadata;                 // the operation's typed record
  static void fields(auto& r, auto& f) {
    f(r.request, r.attempt, r.operation, r.sandbox, r.authority, r.deadline_ms, r.metadata);
  }
};
// The receiver has accepted the operation and begun. Every leg but node-api <-> manager, where
// ADMITTED says so.
struct Opened {
  static void fields(auto&, auto&) {}
};
struct Admitted {
  identity::RouteIdentity route;
  std::uint64_t epoch = 0;
  identity::LeaseId lease;
  WallTime lease_deadline;
  std::uint32_t window = kInitialWindow;  // what the opener may send before CREDIT; <= kMaxWindow
  static void fields(auto& r, auto& f) { f(r.route, r.epoch, r.lease, r.lease_deadline, r.window); }
};

enum class UnavailableReason : std::uint8_t {
  kInstalling = 1,
  kDraining,
  kOverloaded,
  kNoBridge,
  kFenced,
  kNoSuchOperation,
  kInternal,
};
constexpr bool is_known(UnavailableReason r) {
  return r >= UnavailableReason::kInstalling && r <= UnavailableReason::kInternal;
}
std::string_view to_string(UnavailableReason reason);
struct Unavailable {
  UnavailableReason reason = UnavailableReason::kInternal;
  std::uint32_t retry_after_ms = 0;
  static void fields(auto& r, auto& f) { f(r.reason, r.retry_after_ms); }
};
struct Denied {
  identity::DenyReason reason = identity::DenyReason::kMalformed;
  static void fields(auto& r, auto& f) { f(r.reason); }
};
struct Refresh {
  identity::RefreshReason reason = identity::RefreshReason::kNotHere;
  static void fields(auto& r, auto& f) { f(r.reason); }
};
// Carries a closed reason only, never the installed identity (P-9).
struct Refused {
  std::variant<Refresh, Denied, Unavailable> verdict;
  static void fields(auto& r, auto& f) { f(r.verdict); }
};
// Not a record: the fast path. Payload: offset u64, then the bytes (1..kMaxDataBytes).
struct Data {
  std::uint64_t offset = 0;
  Bytes bytes;
};
struct Credit {
  std::uint32_t bytes = 0;  // >= 1
  static void fields(auto& r, auto& f) { f(r.bytes); }
};
struct Consumed {
  std::uint64_t offset = 0;
  static void fields(auto& r, auto& f) { f(r.offset); }
};

// How an operation ended. One vocabulary for files, processes, platform and node operations.
enum class Outcome : std::uint8_t {
  kOk = 0,
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kInvalidArgument,
  kNoSpace,
  kIsDirectory,
  kNotDirectory,
  kConflict,
  kUnauthenticated,
  kUnavailable,
  kUnsupported,
  kDeadlineExceeded,
  kTooLarge,
  kInternal,
  kLimitReached,
  kInterrupted,
};
constexpr bool is_known(Outcome o) { return o <= Outcome::kInterrupted; }
std::string_view to_string(Outcome outcome);  // "ok", "not_found", ...

// Ends one direction. The receiver of the operation sends it last, with the outcome; the opener
// sends it with kOk to say "no more bytes".
struct End {
  Outcome outcome = Outcome::kOk;
  std::string message;  // for people; at most 1024 bytes
  Bytes result;         // the operation's result record, at most kMaxMetadataBytes
  static void fields(auto& r, auto& f) { f(r.outcome, r.message, r.result); }
};

enum class Forwarded : std::uint8_t { kNone = 0, kSome = 1, kUnknown = 2 };
constexpr bool is_known(Forwarded f) { return f <= Forwarded::kUnknown; }
enum class ResetCode : std::uint8_t {
  kCancelled = 1,
  kConnectionLost,
  kSlowReader,
  kProtocol,
  kLimit,
  kDeadline,
  kInternal,
};
constexpr bool is_known(ResetCode c) {
  return c >= ResetCode::kCancelled && c <= ResetCode::kInternal;
}
std::string_view to_string(ResetCode code);
struct Reset {
  ResetCode code = ResetCode::kCancelled;
  Forwarded forwarded = Forwarded::kUnknown;  // set by trusted hops only (P-19)
  static void fields(auto& r, auto& f) { f(r.code, r.forwarded); }
};
struct Renew {
  Capability capability;
  static void fields(auto& r, auto& f) { f(r.capability); }
};
struct Renewed {
  std::optional<identity::DenyReason> refused;  // absent: renewed
  WallTime lease_deadline;
  static void fields(auto& r, auto& f) { f(r.refused, r.lease_deadline); }
};
struct Revoked {
  identity::LeaseId lease;
  identity::LeaseEnd reason = identity::LeaseEnd::kReplaced;
  static void fields(auto& r, auto& f) { f(r.lease, r.reason); }
};
struct Ping {
  std::uint64_t token = 0;
  static void fields(auto& r, auto& f) { f(r.token); }
};
struct Pong {
  std::uint64_t token = 0;
  static void fields(auto& r, auto& f) { f(r.token); }
};
struct Goaway {
  StreamId last_admitted = 0;
  std::uint32_t grace_ms = 0;
  static void fields(auto& r, auto& f) { f(r.last_admitted, r.grace_ms); }
};

// ---- control plane -> manager, each on a stream of its own, answered on it and then closed ----
struct Install {
  Bytes record;                  // identity::encode_record
  Bytes secret;                  // 32 bytes; of this incarnation's guest
  std::uint32_t max_age_ms = 0;  // refused when it was on the way longer than this (P-13)
  static void fields(auto& r, auto& f) { f(r.record, r.secret, r.max_age_ms); }
};
enum class InstallOutcome : std::uint8_t {
  kInstalled = 0,
  kBehindFloor,
  kConflicting,
  kAttemptBackwards,
  kMalformed,
  kWrongWorker,
  kNoRuntime,
  kBridgeFailed,
  kTooOld,
  kStoreFailed,
  kFenced,
};
constexpr bool is_known(InstallOutcome o) { return o <= InstallOutcome::kFenced; }
std::string_view to_string(InstallOutcome outcome);
struct Installed {
  InstallOutcome outcome = InstallOutcome::kInstalled;
  std::uint64_t epoch = 0;
  std::uint64_t floor = 0;  // generation floor at this receiver
  std::string detail;
  static void fields(auto& r, auto& f) { f(r.outcome, r.epoch, r.floor, r.detail); }
};
struct Retire {
  identity::RouteIdentity route;  // names the full identity, else it does nothing (P-13)
  identity::OperationId operation;
  static void fields(auto& r, auto& f) { f(r.route, r.operation); }
};
struct Retired {
  bool was_installed = false;  // false: this exact identity was not installed; nothing changed
  std::uint64_t floor = 0;
  static void fields(auto& r, auto& f) { f(r.was_installed, r.floor); }
};
struct Bundle {
  Bytes bundle;  // identity::encode_bundle
  static void fields(auto& r, auto& f) { f(r.bundle); }
};
struct BundleAck {
  std::optional<identity::BundleRefusal> refused;
  identity::BundleVersion version;  // in force afterwards
  static void fields(auto& r, auto& f) { f(r.refused, r.version); }
};
// Worker lease and clock (P-15, P-2): asked by the control plane, answered by the manager.
struct Lease {
  std::uint32_t duration_ms = 0;
  WallTime now;  // the control plane's clock
  static void fields(auto& r, auto& f) { f(r.duration_ms, r.now); }
};
struct LeaseAck {
  std::int64_t clock_offset_ms =
      0;  // receiver's clock minus the control plane's, as the receiver sees it
  bool clock_healthy = true;
  static void fields(auto& r, auto& f) { f(r.clock_offset_ms, r.clock_healthy); }
};
struct SessionEnded {
  identity::SessionId session;
  static void fields(auto& r, auto& f) { f(r.session); }
};
// ---- manager -> spaced-host, netgtw; on stream 0 ----
struct Activate {
  identity::RouteIdentity route;
  std::uint64_t epoch = 0;
  Bytes secret;                // 32 bytes
  std::optional<Rekey> rekey;  // after the proof: rekey the guest and do nothing else
  static void fields(auto& r, auto& f) { f(r.route, r.epoch, r.secret, r.rekey); }
};
enum class ActivateOutcome : std::uint8_t {
  kReady = 0,
  kConnectRefused,
  kConnectTimedOut,
  kProofFailed,
  kProtocol,
  kRekeyFailed,
};
constexpr bool is_known(ActivateOutcome o) { return o <= ActivateOutcome::kRekeyFailed; }
std::string_view to_string(ActivateOutcome outcome);
struct ActivateAck {
  ActivateOutcome outcome = ActivateOutcome::kReady;
  std::string boot_id;
  static void fields(auto& r, auto& f) { f(r.outcome, r.boot_id); }
};
struct Fence {
  static void fields(auto&, auto&) {}
};
struct Fenced {
  static void fields(auto&, auto&) {}
};

enum class FrameType : std::uint8_t {
  kHello = 1,
  kChallenge = 2,
  kProof = 3,
  kProofAck = 4,
  kRekey = 5,
  kRekeyed = 6,
  kOpen = 16,
  kOpened = 17,
  kAdmitted = 18,
  kRefused = 19,
  kData = 20,
  kCredit = 21,
  kConsumed = 22,
  kEnd = 23,
  kReset = 24,
  kRenew = 25,
  kRenewed = 26,
  kRevoked = 27,
  kPing = 28,
  kPong = 29,
  kGoaway = 30,
  kInstall = 48,
  kInstalled = 49,
  kRetire = 50,
  kRetired = 51,
  kBundle = 52,
  kBundleAck = 53,
  kLease = 54,
  kLeaseAck = 55,
  kSessionEnded = 56,
  kActivate = 64,
  kActivateAck = 65,
  kFence = 66,
  kFenced = 67,
};
bool is_known(FrameType type);
std::string_view to_string(FrameType type);

using Payload =
    std::variant<Hello, Challenge, Proof, ProofAck, Rekey, Rekeyed, Open, Opened, Admitted, Refused,
                 Data, Credit, Consumed, End, Reset, Renew, Renewed, Revoked, Ping, Pong, Goaway,
                 Install, Installed, Retire, Retired, Bundle, BundleAck, Lease, LeaseAck,
                 SessionEnded, Activate, ActivateAck, Fence, Fenced>;
FrameType type_of(const Payload& payload);

struct Frame {
  StreamId stream = 0;
  Payload payload;
};

enum class FrameError : std::uint8_t { kTooLarge, kUnknownType, kBadFlags, kMalformed };
std::string_view to_string(FrameError error);

// Appends the frame's bytes to `out`. Sizes beyond the bounds above abort: callers check first.
void encode(const Frame& frame, Bytes& out);
// The fast path for DATA without building a Frame.
void encode_data(StreamId stream, std::uint64_t offset, ByteView bytes, Bytes& out);

// Decodes frames from bytes that come in any split. Stays failed after an error. After `next` or
// `next_raw` has yielded nothing, less than one frame (kHeaderBytes + kMaxPayloadBytes) is
// buffered: bring in more bytes, then call again until nothing is yielded.
class Decoder {
 public:
  // Room for the next bytes, at least kMinRoom; `commit` says how many came. Valid until then.
  std::span<std::byte> prepare();
  void commit(std::size_t bytes);
  // The same with bytes that lie elsewhere, any number of them.
  void feed(ByteView bytes);

  // A whole frame with its payload not yet decoded: a view that the next `prepare` or `feed` ends.
  struct Raw {
    FrameType type = FrameType::kHello;
    StreamId stream = 0;
    ByteView payload;
  };
  // The next whole frame; nullopt when more bytes are needed.
  std::expected<std::optional<Raw>, FrameError> next_raw();
  std::expected<std::optional<Frame>, FrameError> next();
  std::size_t buffered() const { return end_ - begin_; }

 private:
  static constexpr std::size_t kMinRoom = 4096;
  static constexpr std::size_t kFirstBytes = 16 * 1024;
  static constexpr std::size_t kMostBytes = 128 * 1024;  // more than a frame and kMinRoom

  Bytes::iterator at(std::size_t index) {
    return buffer_.begin() + static_cast<std::ptrdiff_t>(index);
  }
  void make_room(std::size_t bytes);
  std::unexpected<FrameError> fail(FrameError error);

  Bytes buffer_;  // what was not yielded yet: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool filled_ = false;  // by the newest commit
  std::optional<FrameError> failed_;
};

// The payload of a raw frame; nullopt when it is malformed.
std::optional<Payload> decode_payload(const Decoder::Raw& raw);
// The fast path for DATA: a view of its bytes, valid as long as the raw frame.
struct DataView {
  std::uint64_t offset = 0;
  ByteView bytes;
};
std::optional<DataView> decode_data(const Decoder::Raw& raw);

}  // namespace space::wire::hop

// Enums of other headers that travel in records.
namespace space::identity {
constexpr bool is_known(DenyReason r) {
  return r >= DenyReason::kMalformed && r <= DenyReason::kSessionRevoked;
}
constexpr bool is_known(RefreshReason r) {
  return r >= RefreshReason::kNotHere && r <= RefreshReason::kConflict;
}
constexpr bool is_known(LeaseEnd e) { return e >= LeaseEnd::kReplaced && e <= LeaseEnd::kReleased; }
constexpr bool is_known(BundleRefusal r) {
  return r >= BundleRefusal::kOlderThanFloor && r <= BundleRefusal::kNoActiveKey;
}
constexpr bool is_known(Substrate s) {
  return s == Substrate::kHost || s == Substrate::kKubernetes;
}
constexpr bool is_known(Purpose p) { return p == Purpose::kControl || p == Purpose::kServicePort; }
constexpr bool is_known(PortProtocol p) {
  return p == PortProtocol::kHttp || p == PortProtocol::kTcp;
}
}  // namespace space::identity
namespace space::policy {
inline bool is_known(Operation op) {
  return find_operation(static_cast<std::uint16_t>(op)) != nullptr;
}
}  // namespace space::policy
