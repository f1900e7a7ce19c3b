#pragma once
#include "core/identity/capability.h"

namespace space::crypto {

// Ed25519 by libsodium: refuses S >= L, non-canonical and small-order keys and small-order R (C013,
// C014). Stateless; any thread.
class SodiumVerifier final : public identity::SignatureVerifier {
 public:
  SodiumVerifier();
  bool verify(ByteView message, std::span<const std::byte, identity::kSignatureBytes> signature,
              const identity::PublicKey& key) const override;
};

// Whether `key` may be registered at all: the canonical encoding of a point of the main subgroup
// (C014).
bool acceptable_public_key(const identity::PublicKey& key);

}  // namespace space::crypto
