#include "adapters/tls/party.h"

#include <array>
#include <utility>

#include "adapters/tls/engine.h"
#include "adapters/tls/openssl.h"
#include "adapters/tls/verification.h"

namespace space::tls {

Party::Party(const WallClock& clock, Trust trust, std::chrono::milliseconds tolerance)
    : clock_(clock),
      trust_(std::move(trust)),
      tolerance_(tolerance),
      context_(make_context(nullptr)) {}

Party::~Party() = default;

bool Party::use(const Credentials& credentials) {
  if (!credentials.certificate.belongs_to(credentials.key)) return false;
  context_ = make_context(&credentials);
  credentials_ = credentials;
  return true;
}

std::shared_ptr<ssl_ctx_st> Party::make_context(const Credentials* credentials) const {
  const std::shared_ptr<SSL_CTX> shared(SSL_CTX_new(TLS_method()), Free{});
  SSL_CTX* context = shared.get();
  SPACE_ASSERT(context != nullptr);
  SPACE_ASSERT(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1);
  SPACE_ASSERT(SSL_CTX_set_ciphersuites(context,
                                        "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:"
                                        "TLS_AES_256_GCM_SHA384") == 1);
  // Not const: the macros of OpenSSL cast it away.
  auto groups = std::to_array("X25519:P-256");
  auto signatures = std::to_array("ECDSA+SHA256");
  SPACE_ASSERT(SSL_CTX_set1_groups_list(context, groups.data()) == 1 &&
               SSL_CTX_set1_sigalgs_list(context, signatures.data()) == 1 &&
               SSL_CTX_set1_client_sigalgs_list(context, signatures.data()) == 1);
  // Every connection proves both keys anew: no tickets, no resumption, no early data.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SPACE_ASSERT(SSL_CTX_set_num_tickets(context, 0) == 1);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kMaxChunk);

  // The only anchor is our CA, handed over with each verification. Dates are judged with our
  // tolerance, by peer_identity.
  X509_VERIFY_PARAM* demand = SSL_CTX_get0_param(context);
  X509_VERIFY_PARAM_set_flags(demand, X509_V_FLAG_X509_STRICT | X509_V_FLAG_NO_CHECK_TIME);
  X509_VERIFY_PARAM_set_depth(demand, 0);  // certificates between the leaf and the CA
  Verification::install(context);

  if (credentials != nullptr) {
    SPACE_ASSERT(SSL_CTX_use_certificate(context, credentials->certificate.native()) == 1 &&
                 SSL_CTX_use_PrivateKey(context, credentials->key.native()) == 1);
    // Shown to those who know its fingerprint alone.
    if (const auto* ca = std::get_if<Certificate>(&trust_)) {
      SPACE_ASSERT(SSL_CTX_add1_chain_cert(context, ca->native()) == 1);
    }
  }
  return shared;
}

}  // namespace space::tls
