#pragma once
#include <expected>
#include <string>

#include "adapters/crypto/key_file.h"
#include "base/secret.h"
#include "ports/entropy.h"
#include "ports/signer.h"

namespace space::crypto {

using SigningSeed = Secret<32>;

// An Ed25519 signing key in memory, wiped at the end. Immutable; any thread.
//
// Key file: "SPACEKEY", u8 1, u32 key id (big-endian), 32 bytes seed; nothing else; mode 0600.
class Ed25519Signer final : public Signer {
 public:
  Ed25519Signer(identity::KeyId id, const SigningSeed& seed);

  // Makes a new key and its file, which is on disk, with its folder entry, when this returns. The
  // file appears whole or not at all. The folder must exist.
  static std::expected<Ed25519Signer, KeyFileError> create(const std::string& path,
                                                           identity::KeyId id, Entropy& entropy);
  // Follows no symbolic link at the end of `path`.
  static std::expected<Ed25519Signer, KeyFileError> load(const std::string& path);

  identity::KeyId key_id() const override { return id_; }
  identity::PublicKey public_key() const override { return public_; }
  std::array<std::byte, 64> sign(ByteView message) const override;

 private:
  identity::KeyId id_;
  identity::PublicKey public_;
  Secret<64> secret_;
};

}  // namespace space::crypto
