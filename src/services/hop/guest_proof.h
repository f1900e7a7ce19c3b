#pragma once
#include <string>

#include "base/secret.h"
#include "core/wire/hop.h"

// The mutual proof of the guest leg (P-23): both ends show that they hold the incarnation's secret
// and mean the same connection, execution and boot.
namespace space::hop {

// What both ends saw of one connection. `guest_nonce` is made for this connection alone, like the
// one in `challenge`, so that no proof is good twice.
struct ProofInput {
  wire::hop::Hello bridge;
  wire::hop::Hello guest;
  wire::hop::Challenge challenge;
  wire::hop::Nonce guest_nonce;
  std::string boot_id;
};

// HMAC-SHA256 under the secret, of a label of its own per direction and every field of `input`.
// Compare with identity::constant_time_equal.
wire::hop::Mac guest_proof(const GuestSecret& secret, const ProofInput& input);   // in PROOF
wire::hop::Mac bridge_proof(const GuestSecret& secret, const ProofInput& input);  // in PROOF_ACK

}  // namespace space::hop
