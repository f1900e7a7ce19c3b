#pragma once
#include <expected>
#include <filesystem>
#include <string>

#include "adapters/tls/certificate.h"
#include "base/time.h"

namespace space::tls {

// The control plane's small certificate authority. Its own certificate has no end: it is believed
// because it was handed over, not because of its dates.
class Authority {
 public:
  // ca.key and ca.pem of `folder`, made when neither is there. The error is for people.
  static std::expected<Authority, std::string> open(const std::filesystem::path& folder,
                                                    const identity::Issuer& issuer,
                                                    Entropy& entropy);
  // Without files.
  static Authority make(const identity::Issuer& issuer, Entropy& entropy);

  const Certificate& certificate() const { return own_.certificate; }
  // A certificate for `public_key` (SubjectPublicKeyInfo, DER), valid from `now`, in whole seconds.
  // nullopt when the key is not a proper one on P-256.
  std::optional<Certificate> issue(ByteView public_key, identity::PeerRole role,
                                   const identity::PeerId& id, WallTime now,
                                   std::chrono::seconds validity, Entropy& entropy) const;

 private:
  Authority(identity::Issuer issuer, Credentials own)
      : issuer_(std::move(issuer)), own_(std::move(own)) {}
  identity::Issuer issuer_;
  Credentials own_;
};

}  // namespace space::tls
