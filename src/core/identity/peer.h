#pragma once
#include <chrono>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/identity/ids.h"

// Who is at the other end of a mutually authenticated connection (TR-3): what a certificate of our
// CA says, judged without any TLS library.
namespace space::identity {

enum class PeerRole : std::uint8_t { kControlPlane = 1, kNodeApi = 2, kWorker = 3 };
std::string_view to_string(PeerRole role);  // "control-plane", "node-api", "worker"

// Names a part among those of its role: for a worker its WorkerId.
using PeerId = StrongName<struct PeerIdTag, 40>;

struct PeerIdentity {
  PeerRole role = PeerRole::kControlPlane;
  PeerId id;
  HolderId key;         // SHA-256 of its public key (SubjectPublicKeyInfo, DER)
  WallTime expires_at;  // of the certificate
  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

// The one name in a certificate: "space://ISSUER/ROLE/ID".
std::string peer_uri(const Issuer& issuer, PeerRole role, const PeerId& id);
HolderId holder_of(ByteView public_key);

// What a leaf certificate says, once the TLS library has verified its signature up to our CA.
struct CertificateFields {
  std::vector<std::string> uris;  // of its subject alternative names
  bool other_names = false;       // it has alternative names of another kind
  bool ca = false;                // it may sign certificates
  bool p256 = false;              // its key is on NIST P-256
  Bytes public_key;               // SubjectPublicKeyInfo, DER
  WallTime not_before;
  WallTime not_after;
};

enum class PeerRefusal : std::uint8_t {
  kWrongKey,     // not a P-256 key
  kMayIssue,     // a CA certificate is nobody's identity
  kNoName,       // not exactly one URI, or names of another kind beside it
  kForeignName,  // not a name of this issuer in its one form
  kNotYetValid,
  kExpired,
};
std::string_view to_string(PeerRefusal refusal);

// What is demanded of a peer's certificate.
struct PeerDemand {
  Issuer issuer;
  WallTime now;
  std::chrono::milliseconds tolerance{15'000};  // of clocks, both ends, as for capabilities (P-2)
  // False for renewal alone: whether the holder of an expired certificate may get a new one is
  // decided by its enrolled key (C020).
  bool must_be_current = true;
};

// Judges in the order of PeerRefusal. Valid while not_before - tolerance <= now < not_after +
// tolerance.
std::expected<PeerIdentity, PeerRefusal> peer_identity(const CertificateFields& fields,
                                                       const PeerDemand& demand);

}  // namespace space::identity
