#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/identity/capability.h"
#include "core/identity/key_bundle.h"
#include "core/identity/runtime_record.h"
#include "core/identity/testing/keyed_hash_signatures.h"

// Values for tests: fixed samples and seeded random ones.
namespace space::identity::testing {

// SplitMix64; a seed fixes everything drawn.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    auto z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Of 0 .. bound - 1.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool coin() { return below(2) == 1; }
  template <class Id>
  Id id() {
    Bytes bytes;
    for (std::size_t i = 0; i < Id::kBytes; ++i) bytes.push_back(static_cast<std::byte>(next()));
    return *Id::from(bytes);
  }
  template <class Name>
  Name name() {
    constexpr std::string_view kInside = "abcdefghijklmnopqrstuvwxyz0123456789-";
    std::string text;
    for (auto left = below(Name::kMaxBytes) + 1; left > 0; --left) text += kInside[below(37)];
    if (text.front() == '-') text.front() = 'a';
    if (text.back() == '-') text.back() = 'z';
    return *Name::parse(text);
  }
  Bytes bytes(std::size_t size) {
    Bytes out;
    while (out.size() < size) out.push_back(static_cast<std::byte>(next()));
    return out;
  }

 private:
  std::uint64_t state_;
};

template <class Id>
Id filled(std::uint8_t value) {
  return *Id::from(Bytes(Id::kBytes, std::byte{value}));
}

constexpr WallTime at_ms(std::int64_t value) { return WallTime{std::chrono::milliseconds{value}}; }
inline constexpr WallTime kIssuedAt = at_ms(1'800'000'000'000);

inline RouteIdentity sample_route() {
  return {.sandbox = *SandboxId::parse("sbxaaaaaaaaaaaaaaaaa"),
          .generation = {7},
          .worker = *WorkerId::parse("worker-a"),
          .substrate = Substrate::kKubernetes,
          .activation = filled<ActivationId>(0xa1),
          .pod_uid = PodUid::parse("11111111-2222-3333-4444-555555555555")};
}

inline Claims sample_claims() {
  return {.key = {1},
          .issuer = *Issuer::parse("control"),
          .purpose = Purpose::kControl,
          .route = sample_route(),
          .attempt = {1},
          .access = AccessSet{}.with(Access::kFilesRead).with(Access::kProcessWrite),
          .port = {},
          .protocol = {},
          .session = filled<SessionId>(0x51),
          .holder = filled<HolderId>(0x41),
          .issued_at = kIssuedAt,
          .expires_at = kIssuedAt + kCapabilityLifetime,
          .id = filled<CapabilityId>(0x1d),
          .constraint = {}};
}

inline Claims sample_port_claims() {
  auto claims = sample_claims();
  claims.purpose = Purpose::kServicePort;
  claims.access = AccessSet{}.with(Access::kServicePort);
  claims.port = 8080;
  claims.protocol = PortProtocol::kHttp;
  return claims;
}

inline KeyBundle sample_bundle() {
  return {.version = {3},
          .issuer = *Issuer::parse("control"),
          .valid_until = kIssuedAt + kBundleValidity,
          .keys = {{.id = {1},
                    .state = KeyState::kActive,
                    .key = filled<PublicKey>(0xe1),
                    .retired_until = {}}}};
}

inline RuntimeRecord sample_record() {
  return {.route = sample_route(),
          .attempt = {1},
          .owner = *OwnerId::parse("replica-1"),
          .operation = filled<OperationId>(0x09),
          .guest_process = ProcessIdentity{.pid = 4242,
                                           .start_time_ticks = 777,
                                           .pidfs_inode = 99,
                                           .exe_device = 5,
                                           .exe_inode = 6},
          .transport = TransportIdentity{.socket_path = "/run/space/v.sock",
                                         .path_device = 1,
                                         .path_inode = 2,
                                         .listener_inode = 3,
                                         .listener_cookie = 4,
                                         .cid = 5},
          .first_public_pid = kPublicPidBlock,
          .runtime_handle = "crun:sbx"};
}

// The demand that the claims were minted for.
inline Demand demand_of(const Claims& claims) {
  return {.purpose = claims.purpose,
          .peer = claims.holder,
          .access = claims.access,
          .port = claims.port,
          .protocol = claims.protocol,
          .constraint = claims.constraint};
}

// Sealed by the keyed hash of testing/keyed_hash_signatures.h.
inline SealedCapability hash_seal(const Claims& claims, const PublicKey& key) {
  const auto bytes = encode_claims(claims);
  return seal(bytes, keyed_hash_sign(signature_message(bytes), key));
}

inline RouteIdentity random_route(SplitMix& random) {
  RouteIdentity route{.sandbox = random.name<SandboxId>(),
                      .generation = {random.next() | 1},
                      .worker = random.name<WorkerId>(),
                      .substrate = random.coin() ? Substrate::kHost : Substrate::kKubernetes,
                      .activation = random.id<ActivationId>(),
                      .pod_uid = {}};
  if (random.coin()) route.pod_uid = random.name<PodUid>();
  return route;
}

inline Claims random_claims(SplitMix& random) {
  const auto issued_at = at_ms(static_cast<std::int64_t>(random.below(250'000'000'000'000)));
  Claims claims{.key = {static_cast<std::uint32_t>(random.next())},
                .issuer = random.name<Issuer>(),
                .purpose = Purpose::kControl,
                .route = random_route(random),
                .attempt = {static_cast<std::uint32_t>(random.next()) | 1},
                .access = {static_cast<std::uint16_t>(1 + random.below(31))},
                .port = {},
                .protocol = {},
                .session = random.id<SessionId>(),
                .holder = random.id<HolderId>(),
                .issued_at = issued_at,
                .expires_at = issued_at + kCapabilityLifetime,
                .id = random.id<CapabilityId>(),
                .constraint = {}};
  if (random.coin()) {
    claims.purpose = Purpose::kServicePort;
    claims.access = AccessSet{}.with(Access::kServicePort);
    claims.port = static_cast<std::uint16_t>(1 + random.below(65'535));
    claims.protocol = random.coin() ? PortProtocol::kHttp : PortProtocol::kTcp;
  }
  if (random.coin()) claims.constraint = random.id<ConstraintHash>();
  return claims;
}

inline RuntimeRecord random_record(SplitMix& random) {
  auto record = sample_record();
  record.route = random_route(random);
  record.attempt = {static_cast<std::uint32_t>(random.next()) | 1};
  record.owner = random.name<OwnerId>();
  record.operation = random.id<OperationId>();
  if (random.coin()) {
    record.guest_process = {};
  } else {
    record.guest_process->pid = static_cast<std::int32_t>(1 + random.below(0x7fff'ffff));
    record.guest_process->start_time_ticks = random.next();
  }
  if (random.coin()) {
    record.transport = {};
  } else {
    record.transport->socket_path = to_text(random.bytes(random.below(1025)));
    record.transport->listener_cookie = random.next();
  }
  record.first_public_pid = static_cast<std::uint32_t>(random.next());
  record.runtime_handle = to_text(random.bytes(random.below(4097)));
  return record;
}

inline KeyBundle random_bundle(SplitMix& random) {
  KeyBundle bundle{
      .version = {random.next()},
      .issuer = random.name<Issuer>(),
      .valid_until = at_ms(static_cast<std::int64_t>(random.below(250'000'000'000'000))),
      .keys = {}};
  std::uint32_t id = 0;
  for (auto left = random.below(kMaxBundleKeys + 1); left > 0; --left) {
    id += 1 + static_cast<std::uint32_t>(random.below(1000));
    BundleKey key{.id = {id},
                  .state = static_cast<KeyState>(1 + random.below(4)),
                  .key = random.id<PublicKey>(),
                  .retired_until = {}};
    if (key.state == KeyState::kRetired) {
      key.retired_until = at_ms(static_cast<std::int64_t>(random.below(250'000'000'000'000)));
    }
    bundle.keys.push_back(key);
  }
  return bundle;
}

}  // namespace space::identity::testing
