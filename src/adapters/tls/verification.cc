#include "adapters/tls/verification.h"

#include <algorithm>
#include <utility>

#include "adapters/tls/openssl.h"

namespace space::tls {
namespace {

int index_of_verification() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

Verification& verification_of(const SSL* ssl) {
  return *static_cast<Verification*>(SSL_get_ex_data(ssl, index_of_verification()));
}

// Of the certificates the peer sent, the one with this fingerprint; null for none.
X509* find(X509_STORE_CTX* store, const Fingerprint& wanted) {
  const auto* sent = X509_STORE_CTX_get0_untrusted(store);
  for (int i = 0; i < sk_X509_num(sent); ++i) {
    X509* candidate = sk_X509_value(sent, i);
    if (Certificate::share(candidate).fingerprint() == wanted) return candidate;
  }
  return nullptr;
}

// Whether the certificates lead to the CA that `trust` names, directly.
bool chain_is_ours(X509_STORE_CTX* store, const Trust& trust) {
  const auto* pinned = std::get_if<Fingerprint>(&trust);
  X509* ca = pinned != nullptr ? find(store, *pinned) : std::get<Certificate>(trust).native();
  if (ca == nullptr) return false;
  STACK_OF(X509)* anchors = sk_X509_new_null();
  SPACE_ASSERT(anchors != nullptr && sk_X509_push(anchors, ca) > 0);
  X509_STORE_CTX_set0_trusted_stack(store, anchors);
  const bool good = X509_verify_cert(store) == 1 &&
                    sk_X509_num(X509_STORE_CTX_get0_chain(store)) == 2;  // leaf and CA
  X509_STORE_CTX_set0_trusted_stack(store, nullptr);
  sk_X509_free(anchors);
  return good;
}

struct Refusal {
  Error error;
  int openssl;  // from which the alert for the peer is made
};

Refusal to_refusal(identity::PeerRefusal refusal) {
  switch (refusal) {
    case identity::PeerRefusal::kNotYetValid:
      return {Error::kNotYetValid, X509_V_ERR_CERT_NOT_YET_VALID};
    case identity::PeerRefusal::kExpired:
      return {Error::kExpired, X509_V_ERR_CERT_HAS_EXPIRED};
    case identity::PeerRefusal::kWrongKey:
    case identity::PeerRefusal::kMayIssue:
    case identity::PeerRefusal::kNoName:
    case identity::PeerRefusal::kForeignName:
      return {Error::kWrongIdentity, X509_V_ERR_APPLICATION_VERIFICATION};
  }
  std::unreachable();
}

std::expected<identity::PeerIdentity, Refusal> judge(X509_STORE_CTX* store,
                                                     const Verification& verification) {
  constexpr Refusal kUntrusted{Error::kUntrusted, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY};
  if (!chain_is_ours(store, verification.party.trust())) return std::unexpected(kUntrusted);
  const auto* chain = X509_STORE_CTX_get0_chain(store);
  auto issuer = Certificate::share(sk_X509_value(chain, 1)).issuer();
  if (!issuer) return std::unexpected(kUntrusted);
  identity::PeerDemand demand;
  demand.issuer = *std::move(issuer);
  demand.now = verification.party.clock().now();
  demand.tolerance = verification.party.tolerance();
  demand.must_be_current = verification.must_be_current;
  auto peer = identity::peer_identity(Certificate::share(sk_X509_value(chain, 0)).fields(), demand);
  if (!peer) return std::unexpected(to_refusal(peer.error()));
  return *std::move(peer);
}

int verify(X509_STORE_CTX* store, void*) {
  const auto* ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto& verification = verification_of(ssl);
  auto judged = judge(store, verification);
  if (!judged) {
    verification.error = judged.error().error;
    X509_STORE_CTX_set_error(store, judged.error().openssl);
    return 0;
  }
  verification.peer = *std::move(judged);
  X509_STORE_CTX_set_error(store, X509_V_OK);
  return 1;
}

// Takes the one protocol of this connection, whatever else is offered.
int select_protocol(SSL* ssl, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned offered_size, void*) {
  const std::string_view offer(reinterpret_cast<const char*>(offered), offered_size);
  const auto wanted = verification_of(ssl).alpn;
  for (std::size_t at = 0; at < offer.size(); at += 1U + offered[at]) {
    if (offer.substr(at, 1U + offered[at]) != wanted) continue;
    *out = offered + at + 1;
    *out_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

void Verification::attach(ssl_st* ssl) {
  SPACE_ASSERT(SSL_set_ex_data(ssl, index_of_verification(), this) == 1);
}

void Verification::install(ssl_ctx_st* context) {
  SSL_CTX_set_cert_verify_callback(context, &verify, nullptr);
  SSL_CTX_set_alpn_select_cb(context, &select_protocol, nullptr);
}

}  // namespace space::tls
