#include "core/identity/capability.h"

#include <algorithm>

#include "base/check.h"
#include "core/identity/key_bundle.h"
#include "core/identity/wall_time_codec.h"

// Layout of the claims. Integers are big-endian and unsigned; a name is a u8 length and that many
// bytes of [a-z0-9-] (1 up to its limit, no '-' at either end); a flag is 0 or 1; times are
// milliseconds since the Unix epoch, at most 253402300799999. One value has one encoding, and
// nothing may follow it.
//
//   u8    format version = 1
//   u32   key id
//   name  issuer (40)
//   u8    purpose: 1 control, 2 service-port
//   -- route identity
//   name  sandbox (32)
//   u64   generation >= 1
//   name  worker (40)
//   u8    substrate: 1 host, 2 kubernetes
//   16    activation
//   flag  pod UID present; if 1: name pod UID (40)
//   --
//   u32   attempt >= 1
//   u16   access bits, not 0: 1 files-read, 2 files-write, 4 process-read, 8 process-write, 16
//   watch,
//         32 service-port; exactly 32 for service-port, without 32 for control
//   -- only if purpose is service-port
//   u16   port >= 1
//   u8    protocol: 1 http, 2 tcp
//   --
//   16    session
//   32    holder
//   u64   issued at
//   u64   expires at = issued at + 120000
//   16    capability id
//   flag  constraint present; if 1: 32 constraint hash
//
// A sealed capability is these bytes and a 64-byte Ed25519 signature, 1024 bytes at most together.
// The signature covers the 20 bytes "SPACE capability v1" NUL and then the claims as received.

namespace space::identity {
namespace {

constexpr std::uint8_t kVersion = 1;

bool access_fits(Purpose purpose, AccessSet access) {
  if (access.bits == 0 || (access.bits & ~AccessSet::kKnown) != 0) return false;
  return purpose == Purpose::kServicePort ? access == AccessSet{}.with(Access::kServicePort)
                                          : !access.has(Access::kServicePort);
}

bool same_or_weaker(AccessSet wanted, AccessSet granted) {
  // An opening that asks for nothing is a mistake of the receiver: refused.
  return wanted.bits != 0 && (wanted.bits & ~granted.bits) == 0;
}

std::optional<DenyReason> check_time(const Claims& claims, const VerifyContext& context) {
  const auto tolerance =
      std::clamp(context.tolerance, std::chrono::milliseconds{0}, kMaxClockTolerance);
  if (context.now < claims.issued_at - tolerance) return DenyReason::kNotYetValid;
  if (context.now >= claims.expires_at + tolerance) return DenyReason::kExpired;
  return std::nullopt;
}

std::optional<DenyReason> check_demand(const Claims& claims, const Demand& demand) {
  if (claims.purpose != demand.purpose) return DenyReason::kWrongPurpose;
  if (claims.holder != demand.peer) return DenyReason::kWrongHolder;
  if (!same_or_weaker(demand.access, claims.access)) return DenyReason::kAccessNotGranted;
  if (claims.port != demand.port || claims.protocol != demand.protocol) {
    return DenyReason::kWrongPort;
  }
  if (claims.constraint && claims.constraint != demand.constraint) {
    return DenyReason::kWrongConstraint;
  }
  return std::nullopt;
}

}  // namespace

bool well_formed(const Claims& claims) {
  const bool is_port = claims.purpose == Purpose::kServicePort;
  return claims.route.generation.value >= 1 && claims.attempt.value >= 1 &&
         access_fits(claims.purpose, claims.access) && claims.port.has_value() == is_port &&
         claims.protocol.has_value() == is_port && claims.port != 0 &&
         encodable(claims.issued_at) && encodable(claims.expires_at) &&
         claims.expires_at - claims.issued_at == kCapabilityLifetime;
}

Bytes encode_claims(const Claims& claims) {
  SPACE_ASSERT(well_formed(claims));
  ByteWriter out;
  out.u8(kVersion);
  out.u32(claims.key.value);
  out.text8(claims.issuer.text());
  out.u8(static_cast<std::uint8_t>(claims.purpose));
  write_route_identity(out, claims.route);
  out.u32(claims.attempt.value);
  out.u16(claims.access.bits);
  if (claims.port && claims.protocol) {
    out.u16(*claims.port);
    out.u8(static_cast<std::uint8_t>(*claims.protocol));
  }
  out.raw(claims.session.view());
  out.raw(claims.holder.view());
  write_wall_time(out, claims.issued_at);
  write_wall_time(out, claims.expires_at);
  out.raw(claims.id.view());
  out.u8(claims.constraint ? 1 : 0);
  if (claims.constraint) out.raw(claims.constraint->view());
  return out.take();
}

std::optional<Claims> decode_claims(ByteView bytes) {
  ByteReader in(bytes);
  if (in.u8() != kVersion) return std::nullopt;
  const KeyId key{in.u32()};
  auto issuer = Issuer::parse(in.text8());
  const auto purpose_byte = in.u8();
  if (purpose_byte != static_cast<std::uint8_t>(Purpose::kControl) &&
      purpose_byte != static_cast<std::uint8_t>(Purpose::kServicePort)) {
    return std::nullopt;
  }
  const auto purpose = static_cast<Purpose>(purpose_byte);
  auto route = read_route_identity(in);
  const Attempt attempt{in.u32()};
  const AccessSet access{in.u16()};
  std::optional<std::uint16_t> port;
  std::optional<PortProtocol> protocol;
  if (purpose == Purpose::kServicePort) {
    port = in.u16();
    const auto protocol_byte = in.u8();
    if (protocol_byte != static_cast<std::uint8_t>(PortProtocol::kHttp) &&
        protocol_byte != static_cast<std::uint8_t>(PortProtocol::kTcp)) {
      return std::nullopt;
    }
    protocol = static_cast<PortProtocol>(protocol_byte);
  }
  const auto session = SessionId::from(in.raw(SessionId::kBytes));
  const auto holder = HolderId::from(in.raw(HolderId::kBytes));
  const auto issued_at = read_wall_time(in);
  const auto expires_at = read_wall_time(in);
  const auto id = CapabilityId::from(in.raw(CapabilityId::kBytes));
  const auto has_constraint = in.u8();
  std::optional<ConstraintHash> constraint;
  if (has_constraint == 1) constraint = ConstraintHash::from(in.raw(ConstraintHash::kBytes));
  if (!in.complete() || has_constraint > 1 || !issuer || !route || !session || !holder ||
      !issued_at || !expires_at || !id) {
    return std::nullopt;
  }
  Claims claims{.key = key,
                .issuer = *std::move(issuer),
                .purpose = purpose,
                .route = *std::move(route),
                .attempt = attempt,
                .access = access,
                .port = port,
                .protocol = protocol,
                .session = *session,
                .holder = *holder,
                .issued_at = *issued_at,
                .expires_at = *expires_at,
                .id = *id,
                .constraint = constraint};
  if (!well_formed(claims)) return std::nullopt;
  return claims;
}

Bytes signature_message(ByteView claim_bytes) {
  ByteWriter out;
  out.raw(as_bytes(kSignatureDomain));
  out.raw(claim_bytes);
  return out.take();
}

SealedCapability seal(ByteView claim_bytes, std::span<const std::byte, kSignatureBytes> signature) {
  ByteWriter out;
  out.raw(claim_bytes);
  out.raw(signature);
  return {out.take()};
}

std::string_view to_string(DenyReason reason) {
  switch (reason) {
    case DenyReason::kMalformed:
      return "malformed";
    case DenyReason::kUnknownKey:
      return "unknown_key";
    case DenyReason::kRetiredKey:
      return "retired_key";
    case DenyReason::kCompromisedKey:
      return "compromised_key";
    case DenyReason::kBadSignature:
      return "bad_signature";
    case DenyReason::kNotYetValid:
      return "not_yet_valid";
    case DenyReason::kExpired:
      return "expired";
    case DenyReason::kWrongPurpose:
      return "wrong_purpose";
    case DenyReason::kWrongHolder:
      return "wrong_holder";
    case DenyReason::kAccessNotGranted:
      return "access_not_granted";
    case DenyReason::kWrongPort:
      return "wrong_port";
    case DenyReason::kWrongConstraint:
      return "wrong_constraint";
    case DenyReason::kClockUnhealthy:
      return "clock_unhealthy";
    case DenyReason::kNoBundle:
      return "no_bundle";
    case DenyReason::kWrongSandbox:
      return "wrong_sandbox";
    case DenyReason::kSessionMismatch:
      return "session_mismatch";
    case DenyReason::kSessionRevoked:
      return "session_revoked";
  }
  std::unreachable();
}

std::expected<VerifiedCapability, DenyReason> verify(const SealedCapability& sealed,
                                                     const KeyRing& keys,
                                                     const SignatureVerifier& signatures,
                                                     SignatureCache* cache,
                                                     const VerifyContext& context) {
  if (!context.clock_healthy) return std::unexpected(DenyReason::kClockUnhealthy);
  if (!keys.usable(context.now)) return std::unexpected(DenyReason::kNoBundle);

  const ByteView bytes = sealed.bytes;
  if (bytes.size() <= kSignatureBytes || bytes.size() > kMaxSealedBytes) {
    return std::unexpected(DenyReason::kMalformed);
  }
  const auto claim_bytes = bytes.first(bytes.size() - kSignatureBytes);
  const Claims* const known = cache != nullptr ? cache->find(bytes) : nullptr;
  auto claims = known != nullptr ? *known : decode_claims(claim_bytes);
  if (!claims) return std::unexpected(DenyReason::kMalformed);

  const auto key = keys.find(claims->issuer, claims->key, context.now);
  if (!key) return std::unexpected(key.error());
  if (known == nullptr) {
    if (!signatures.verify(signature_message(claim_bytes), bytes.last<kSignatureBytes>(),
                           key->key)) {
      return std::unexpected(DenyReason::kBadSignature);
    }
    if (cache != nullptr) cache->insert(bytes, *claims);
  }
  if (const auto denied = check_time(*claims, context)) return std::unexpected(*denied);
  if (const auto denied = check_demand(*claims, context.demand)) return std::unexpected(*denied);
  return VerifiedCapability(*std::move(claims));
}

}  // namespace space::identity
