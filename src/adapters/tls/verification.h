#pragma once
#include <optional>
#include <string_view>

#include "adapters/tls/error.h"
#include "adapters/tls/party.h"
#include "core/identity/peer.h"

struct ssl_st;

namespace space::tls {

// How one connection judges its peer, and what came of it.
struct Verification {
  const Party& party;
  std::string_view alpn;        // the one protocol, as ALPN carries it
  bool must_be_current = true;  // see identity::PeerDemand
  std::optional<identity::PeerIdentity> peer;
  std::optional<Error> error;

  // OpenSSL calls back with this object. It outlives the connection.
  void attach(ssl_st* ssl);
  // Makes connections of this context judge by their Verification.
  static void install(ssl_ctx_st* context);
};

}  // namespace space::tls
