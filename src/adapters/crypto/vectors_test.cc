// tests/vectors/capability.json was written by another implementation of the format; here ours must
// agree with it in every byte and every verdict.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "adapters/crypto/ed25519_signer.h"
#include "adapters/crypto/sodium_verifier.h"
#include "base/text.h"
#include "core/identity/key_bundle.h"

namespace space::crypto {
namespace {

namespace json = boost::json;
using namespace identity;

std::string text(const json::value& value) { return std::string(value.as_string()); }
Bytes hex(const json::value& value) { return *from_hex(text(value)); }
std::uint64_t number(const json::value& value) { return value.to_number<std::uint64_t>(); }
WallTime time(const json::value& value) {
  return WallTime{std::chrono::milliseconds{value.to_number<std::int64_t>()}};
}

AccessSet access(const json::value& names) {
  constexpr std::array<std::pair<std::string_view, Access>, 6> kNames = {
      {{"files-read", Access::kFilesRead},
       {"files-write", Access::kFilesWrite},
       {"process-read", Access::kProcessRead},
       {"process-write", Access::kProcessWrite},
       {"watch", Access::kWatch},
       {"service-port", Access::kServicePort}}};
  AccessSet set;
  for (const auto& name : names.as_array()) {
    const auto* const found =
        std::ranges::find(kNames, text(name), &std::pair<std::string_view, Access>::first);
    EXPECT_NE(found, kNames.end()) << name;
    if (found != kNames.end()) set = set.with(found->second);
  }
  return set;
}

Purpose purpose(const json::value& value) {
  return text(value) == "control" ? Purpose::kControl : Purpose::kServicePort;
}
std::optional<std::uint16_t> port(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  return value.to_number<std::uint16_t>();
}
std::optional<PortProtocol> protocol(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  return text(value) == "http" ? PortProtocol::kHttp : PortProtocol::kTcp;
}
std::optional<ConstraintHash> constraint(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  return ConstraintHash::parse(text(value));
}

Claims claims_of(const json::value& f) {
  RouteIdentity route{
      .sandbox = *SandboxId::parse(text(f.at("sandbox"))),
      .generation = {number(f.at("generation"))},
      .worker = *WorkerId::parse(text(f.at("worker"))),
      .substrate = text(f.at("substrate")) == "host" ? Substrate::kHost : Substrate::kKubernetes,
      .activation = *ActivationId::parse(text(f.at("activation"))),
      .pod_uid = {}};
  if (!f.at("pod_uid").is_null()) route.pod_uid = PodUid::parse(text(f.at("pod_uid")));
  return {.key = {f.at("key_id").to_number<std::uint32_t>()},
          .issuer = *Issuer::parse(text(f.at("issuer"))),
          .purpose = purpose(f.at("purpose")),
          .route = route,
          .attempt = {f.at("attempt").to_number<std::uint32_t>()},
          .access = access(f.at("access")),
          .port = port(f.at("port")),
          .protocol = protocol(f.at("protocol")),
          .session = *SessionId::parse(text(f.at("session"))),
          .holder = *HolderId::parse(text(f.at("holder"))),
          .issued_at = time(f.at("issued_at_ms")),
          .expires_at = time(f.at("expires_at_ms")),
          .id = *CapabilityId::parse(text(f.at("capability_id"))),
          .constraint = constraint(f.at("constraint"))};
}

Demand demand_of(const json::value& d) {
  return {.purpose = purpose(d.at("purpose")),
          .peer = *HolderId::parse(text(d.at("peer"))),
          .access = access(d.at("access")),
          .port = port(d.at("port")),
          .protocol = protocol(d.at("protocol")),
          .constraint = constraint(d.at("constraint"))};
}

KeyState state(const json::value& value) {
  if (text(value) == "next") return KeyState::kNext;
  if (text(value) == "active") return KeyState::kActive;
  return text(value) == "retired" ? KeyState::kRetired : KeyState::kCompromised;
}

KeyBundle bundle_of(const json::value& b) {
  KeyBundle bundle{.version = {number(b.at("version"))},
                   .issuer = *Issuer::parse(text(b.at("issuer"))),
                   .valid_until = time(b.at("valid_until_ms")),
                   .keys = {}};
  for (const auto& key : b.at("keys").as_array()) {
    BundleKey entry{.id = {key.at("id").to_number<std::uint32_t>()},
                    .state = state(key.at("state")),
                    .key = *PublicKey::parse(text(key.at("public_key"))),
                    .retired_until = {}};
    if (!key.at("retired_until_ms").is_null())
      entry.retired_until = time(key.at("retired_until_ms"));
    bundle.keys.push_back(entry);
  }
  return bundle;
}

class GoldenVectors : public ::testing::Test {
 protected:
  GoldenVectors() {
    std::ifstream in(SPACE_SOURCE_DIR "/tests/vectors/capability.json");
    const std::string content{std::istreambuf_iterator<char>(in), {}};
    boost::system::error_code error;
    document_ = json::parse(content, error);
    EXPECT_FALSE(error) << error.message();
  }
  const json::array& vectors() const { return document_.at("vectors").as_array(); }

  json::value document_;
};

TEST_F(GoldenVectors, P1_TheDomainAndTheBundleHaveTheirBytes) {
  EXPECT_EQ(text(document_.at("domain")), to_hex(as_bytes(kSignatureDomain)));
  const auto& bundle = document_.at("bundle");
  EXPECT_EQ(to_hex(encode_bundle(bundle_of(bundle))), text(bundle.at("encoded")));
  EXPECT_EQ(decode_bundle(hex(bundle.at("encoded"))), bundle_of(bundle));
  for (const auto& key : bundle.at("keys").as_array()) {
    const Ed25519Signer signer(
        {1}, SigningSeed(std::span<const std::byte, 32>(hex(key.at("seed")).data(), 32)));
    EXPECT_EQ(signer.public_key().text(), text(key.at("public_key")));
  }
}

TEST_F(GoldenVectors, P1_FieldsAndBytesAreTheSameThing) {
  int with_fields = 0;
  for (const auto& vector : vectors()) {
    const auto bytes = hex(vector.at("claims"));
    const auto decoded = decode_claims(bytes);
    if (vector.at("fields").is_null()) {
      EXPECT_EQ(decoded, std::nullopt) << vector.at("name");
      continue;
    }
    ++with_fields;
    const auto claims = claims_of(vector.at("fields"));
    EXPECT_EQ(to_hex(encode_claims(claims)), to_hex(bytes)) << vector.at("name");
    EXPECT_EQ(decoded, claims) << vector.at("name");
  }
  EXPECT_GT(with_fields, 30);
}

TEST_F(GoldenVectors, P7_EveryVectorHasItsVerdict) {
  KeyRing keys;
  const auto bundle = bundle_of(document_.at("bundle"));
  ASSERT_EQ(keys.install(bundle, time(vectors().at(0).at("now_ms"))), std::nullopt);
  const SodiumVerifier signatures;
  SignatureCache cache(9);
  int accepted = 0;
  for (const auto& vector : vectors()) {
    const VerifyContext context{
        .now = time(vector.at("now_ms")),
        .tolerance = std::chrono::milliseconds{vector.at("tolerance_ms").to_number<std::int64_t>()},
        .clock_healthy = vector.at("clock_healthy").as_bool(),
        .demand = demand_of(vector.at("demand"))};
    const SealedCapability sealed{hex(vector.at("sealed"))};
    // The second and third time the signature comes from the cache.
    for (SignatureCache* const used : {static_cast<SignatureCache*>(nullptr), &cache, &cache}) {
      const auto verdict = verify(sealed, keys, signatures, used, context);
      EXPECT_EQ(verdict ? "accepted" : to_string(verdict.error()), text(vector.at("verdict")))
          << vector.at("name");
      if (verdict) ++accepted;
    }
  }
  EXPECT_GT(accepted, 30);
}

TEST_F(GoldenVectors, CAP2_OurSignerMakesTheSameSignatures) {
  const auto& keys = document_.at("bundle").at("keys").as_array();
  int compared = 0;
  for (const auto& vector : vectors()) {
    if (text(vector.at("verdict")) != "accepted") continue;
    const auto& key = keys.at(number(vector.at("signed_by")) - 1);
    const Ed25519Signer signer(
        {key.at("id").to_number<std::uint32_t>()},
        SigningSeed(std::span<const std::byte, 32>(hex(key.at("seed")).data(), 32)));
    const auto claims = hex(vector.at("claims"));
    const auto signature = signer.sign(signature_message(claims));
    EXPECT_EQ(to_hex(signature), text(vector.at("signature"))) << vector.at("name");
    EXPECT_EQ(to_hex(seal(claims, signature).bytes), text(vector.at("sealed")));
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace space::crypto
