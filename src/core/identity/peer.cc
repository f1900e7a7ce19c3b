#include "core/identity/peer.h"

#include <array>
#include <optional>
#include <utility>

#include "core/identity/sha256.h"

namespace space::identity {
namespace {

constexpr std::string_view kScheme = "space://";
constexpr std::array kRoles{PeerRole::kControlPlane, PeerRole::kNodeApi, PeerRole::kWorker};

struct Name {
  PeerRole role;
  PeerId id;
};

// Rebuilds the name it found and compares, so that one name has one form.
std::optional<Name> parse_name(std::string_view uri, const Issuer& issuer) {
  const auto last = uri.rfind('/');
  if (last == std::string_view::npos) return std::nullopt;
  const auto id = PeerId::parse(uri.substr(last + 1));
  if (!id) return std::nullopt;
  for (const auto role : kRoles) {
    if (uri == peer_uri(issuer, role, *id)) return Name{role, *id};
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(PeerRole role) {
  switch (role) {
    case PeerRole::kControlPlane:
      return "control-plane";
    case PeerRole::kNodeApi:
      return "node-api";
    case PeerRole::kWorker:
      return "worker";
  }
  std::unreachable();
}

std::string_view to_string(PeerRefusal refusal) {
  switch (refusal) {
    case PeerRefusal::kWrongKey:
      return "wrong_key";
    case PeerRefusal::kMayIssue:
      return "may_issue";
    case PeerRefusal::kNoName:
      return "no_name";
    case PeerRefusal::kForeignName:
      return "foreign_name";
    case PeerRefusal::kNotYetValid:
      return "not_yet_valid";
    case PeerRefusal::kExpired:
      return "expired";
  }
  std::unreachable();
}

std::string peer_uri(const Issuer& issuer, PeerRole role, const PeerId& id) {
  return std::string(kScheme) + issuer.text() + "/" + std::string(to_string(role)) + "/" +
         id.text();
}

HolderId holder_of(ByteView public_key) { return *HolderId::from(sha256(public_key)); }

std::expected<PeerIdentity, PeerRefusal> peer_identity(const CertificateFields& fields,
                                                       const PeerDemand& demand) {
  if (!fields.p256) return std::unexpected(PeerRefusal::kWrongKey);
  if (fields.ca) return std::unexpected(PeerRefusal::kMayIssue);
  if (fields.uris.size() != 1 || fields.other_names) return std::unexpected(PeerRefusal::kNoName);
  auto name = parse_name(fields.uris.front(), demand.issuer);
  if (!name) return std::unexpected(PeerRefusal::kForeignName);
  if (demand.must_be_current) {
    if (demand.now < fields.not_before - demand.tolerance) {
      return std::unexpected(PeerRefusal::kNotYetValid);
    }
    if (demand.now >= fields.not_after + demand.tolerance) {
      return std::unexpected(PeerRefusal::kExpired);
    }
  }
  return PeerIdentity{name->role, std::move(name->id), holder_of(fields.public_key),
                      fields.not_after};
}

}  // namespace space::identity
