#pragma once
#include <algorithm>
#include <array>

#include "core/identity/capability.h"
#include "core/identity/sha256.h"

// A signature scheme for tests without a crypto library: whoever knows the public key can sign.
// Signatures are exact functions of message and key, so every changed bit is noticed.
namespace space::identity::testing {

inline std::array<std::byte, kSignatureBytes> keyed_hash_sign(ByteView message,
                                                              const PublicKey& key) {
  const auto first = hmac_sha256(key.view(), message);
  const auto second = hmac_sha256(key.view(), first);
  std::array<std::byte, kSignatureBytes> signature{};
  std::ranges::copy(second, std::ranges::copy(first, signature.begin()).out);
  return signature;
}

class KeyedHashVerifier final : public SignatureVerifier {
 public:
  bool verify(ByteView message, std::span<const std::byte, kSignatureBytes> signature,
              const PublicKey& key) const override {
    ++calls;
    return equal(signature, keyed_hash_sign(message, key));
  }
  mutable int calls = 0;
};

}  // namespace space::identity::testing
