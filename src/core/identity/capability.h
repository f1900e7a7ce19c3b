#pragma once
#include <chrono>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "core/identity/route_identity.h"

namespace space::identity {

// The permitted access of a capability (CAP-1), a bit set.
enum class Access : std::uint16_t {
  kFilesRead = 1 << 0,
  kFilesWrite = 1 << 1,
  kProcessRead = 1 << 2,   // list, subscribe
  kProcessWrite = 1 << 3,  // start, input, signal
  kWatch = 1 << 4,
  kServicePort = 1 << 5,
};
struct AccessSet {
  std::uint16_t bits = 0;
  static constexpr std::uint16_t kKnown = 0x3f;
  constexpr bool has(Access access) const {
    return (bits & static_cast<std::uint16_t>(access)) != 0;
  }
  constexpr AccessSet with(Access access) const {
    return {static_cast<std::uint16_t>(bits | static_cast<std::uint16_t>(access))};
  }
  friend constexpr bool operator==(AccessSet, AccessSet) = default;
};

inline constexpr std::chrono::milliseconds kCapabilityLifetime{120'000};  // CAP-3, exactly (P-2)
inline constexpr std::chrono::milliseconds kMaxClockTolerance{15'000};    // CAP-3
inline constexpr std::size_t kSignatureBytes = 64;
inline constexpr std::size_t kMaxSealedBytes = 1024;

// The claims of P-1. Port and protocol are present exactly when the purpose is service-port.
struct Claims {
  KeyId key;
  Issuer issuer;
  Purpose purpose = Purpose::kControl;
  RouteIdentity route;
  Attempt attempt{1};
  AccessSet access;
  std::optional<std::uint16_t> port;
  std::optional<PortProtocol> protocol;
  SessionId session;
  HolderId holder;
  WallTime issued_at;
  WallTime expires_at;
  CapabilityId id;
  std::optional<ConstraintHash> constraint;
  friend bool operator==(const Claims&, const Claims&) = default;
};

// What the claims must be for them to have an encoding: generation, attempt and port not 0, a
// lifetime of exactly kCapabilityLifetime within the years 1970-9999, port and protocol exactly for
// service-port, and the access bits of that purpose, at least one.
bool well_formed(const Claims& claims);

// The first bytes of every signed message, NUL included; no other signature of ours begins so.
inline constexpr std::string_view kSignatureDomain{"SPACE capability v1\0", 20};

// Canonical bytes of the claims: what is signed is kSignatureDomain + these bytes. Claims that are
// not well-formed abort: nobody may sign them.
Bytes encode_claims(const Claims& claims);
// The exact inverse; nullopt for every byte string `encode_claims` would not have written.
std::optional<Claims> decode_claims(ByteView bytes);
// The message the signature covers: domain-separated (P-1).
Bytes signature_message(ByteView claim_bytes);

// Claims bytes followed by a 64-byte Ed25519 signature, as it travels (P-5). Not a proof of
// anything.
struct SealedCapability {
  Bytes bytes;
  friend bool operator==(const SealedCapability&, const SealedCapability&) = default;
};
SealedCapability seal(ByteView claim_bytes, std::span<const std::byte, kSignatureBytes> signature);

// The signature primitive, injected so that core links no crypto library. Thread-compatible.
class SignatureVerifier {
 public:
  virtual ~SignatureVerifier() = default;
  // True exactly when `signature` is a strict Ed25519 signature (RFC 8032; S < L, no small-order
  // key; C013, C014) of `message` by `key`.
  virtual bool verify(ByteView message, std::span<const std::byte, kSignatureBytes> signature,
                      const PublicKey& key) const = 0;
};

// Why a capability is denied before the comparison (P-7). Never leads to a refresh (RC-6).
enum class DenyReason : std::uint8_t {
  kMalformed = 1,
  kUnknownKey,
  kRetiredKey,
  kCompromisedKey,
  kBadSignature,
  kNotYetValid,
  kExpired,
  kWrongPurpose,
  kWrongHolder,
  kAccessNotGranted,
  kWrongPort,
  kWrongConstraint,
  kClockUnhealthy,   // this receiver's clock (P-2)
  kNoBundle,         // this receiver has no valid key bundle (TR-2)
  kWrongSandbox,     // the comparator's Deny (RCV-5)
  kSessionMismatch,  // RENEW of another session, identity or access (P-11)
  kSessionRevoked,
};
std::string_view to_string(DenyReason reason);

// What the opening asks for; checked on every opening, cached signature or not (P-4).
struct Demand {
  Purpose purpose = Purpose::kControl;
  HolderId peer;     // the authenticated hop peer
  AccessSet access;  // every bit needed by the operation
  std::optional<std::uint16_t> port;
  std::optional<PortProtocol> protocol;
  std::optional<ConstraintHash>
      constraint;  // of the addressed operation, when the capability has one
};

class KeyRing;
class SignatureCache;

struct VerifyContext {
  WallTime now;  // read once per opening
  std::chrono::milliseconds tolerance = kMaxClockTolerance;
  bool clock_healthy = true;
  Demand demand;
};

// Proof that `verify` succeeded; only `verify` makes one. Says nothing about the execution: only
// the comparator does (CAP-5).
class VerifiedCapability {
 public:
  const Claims& claims() const { return claims_; }

 private:
  friend std::expected<VerifiedCapability, DenyReason> verify(const SealedCapability&,
                                                              const KeyRing&,
                                                              const SignatureVerifier&,
                                                              SignatureCache*,
                                                              const VerifyContext&);
  explicit VerifiedCapability(Claims claims) : claims_(std::move(claims)) {}
  Claims claims_;
};

// Everything of P-7 before the comparison, in its order: signature, time, purpose, holder,
// access/port/protocol/constraint. `cache` (may be null) remembers only "these exact bytes carry a
// valid signature by key K"; every other check runs each time (P-4).
std::expected<VerifiedCapability, DenyReason> verify(const SealedCapability& sealed,
                                                     const KeyRing& keys,
                                                     const SignatureVerifier& signatures,
                                                     SignatureCache* cache,
                                                     const VerifyContext& context);

}  // namespace space::identity
