#pragma once
#include <array>
#include <cstddef>

#include "core/identity/ids.h"

namespace space {
// An Ed25519 signing key (CAP-2). Lives in the control plane only.
class Signer {
 public:
  virtual ~Signer() = default;
  virtual identity::KeyId key_id() const = 0;
  virtual identity::PublicKey public_key() const = 0;
  virtual std::array<std::byte, 64> sign(ByteView message) const = 0;
};
}  // namespace space
