#include "services/hop/guest_proof.h"

#include "core/identity/sha256.h"

namespace space::hop {
namespace {

wire::hop::Mac proof(const GuestSecret& secret, std::string_view label, const ProofInput& input) {
  ByteWriter message;
  message.text8(label);
  message.bytes32(wire::encode(input.bridge));
  message.bytes32(wire::encode(input.guest));
  message.bytes32(wire::encode(input.challenge));  // the bridge's nonce and the route identity
  message.raw(input.guest_nonce.view());
  message.bytes32(as_bytes(input.boot_id));
  return *wire::hop::Mac::from(identity::hmac_sha256(secret.reveal(), message.view()));
}

}  // namespace

wire::hop::Mac guest_proof(const GuestSecret& secret, const ProofInput& input) {
  return proof(secret, "space guest proof v1", input);
}

wire::hop::Mac bridge_proof(const GuestSecret& secret, const ProofInput& input) {
  return proof(secret, "space bridge proof v1", input);
}

}  // namespace space::hop
