#include "adapters/crypto/sodium_verifier.h"

#include <sodium.h>

#include "base/check.h"

namespace space::crypto {
namespace {
const unsigned char* raw(ByteView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
}  // namespace

SodiumVerifier::SodiumVerifier() { SPACE_ASSERT(sodium_init() >= 0); }

bool SodiumVerifier::verify(ByteView message,
                            std::span<const std::byte, identity::kSignatureBytes> signature,
                            const identity::PublicKey& key) const {
  return crypto_sign_verify_detached(raw(signature), raw(message), message.size(),
                                     raw(key.view())) == 0;
}

bool acceptable_public_key(const identity::PublicKey& key) {
  return crypto_core_ed25519_is_valid_point(raw(key.view())) == 1;
}

}  // namespace space::crypto
