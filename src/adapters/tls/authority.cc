#include "adapters/tls/authority.h"

#include <openssl/core_names.h>

#include <array>

#include "adapters/crypto/key_file.h"
#include "adapters/files/small_file.h"
#include "adapters/tls/openssl.h"

namespace space::tls {
namespace {

constexpr const char* kBegin = "700101000000Z";
constexpr const char* kNoEnd = "99991231235959Z";  // RFC 5280, 4.1.2.5

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  SPACE_ASSERT(extension && X509_add_ext(certificate, extension.get(), -1) == 1);
}

void set_serial(X509* certificate, Entropy& entropy) {
  std::array<std::byte, 16> bytes{};
  entropy.fill(bytes);
  bytes[0] = (bytes[0] & std::byte{0x7F}) | std::byte{0x40};  // positive, of fixed length
  BIGNUM* number = BN_bin2bn(raw(bytes), static_cast<int>(bytes.size()), nullptr);
  SPACE_ASSERT(number != nullptr &&
               BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr);
  BN_free(number);
}

void set_common_name(X509_NAME* name, const std::string& text) {
  SPACE_ASSERT(X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_ASC, raw(as_bytes(text)),
                                          static_cast<int>(text.size()), -1, 0) == 1);
}

Certificate self_signed(const PrivateKey& key, const identity::Issuer& issuer, Entropy& entropy) {
  const Owned<X509> made(X509_new());
  auto* ca = made.get();
  SPACE_ASSERT(ca != nullptr && X509_set_version(ca, X509_VERSION_3) == 1);
  set_serial(ca, entropy);
  set_common_name(X509_get_subject_name(ca), issuer.text());
  SPACE_ASSERT(X509_set_issuer_name(ca, X509_get_subject_name(ca)) == 1 &&
               ASN1_TIME_set_string_X509(X509_getm_notBefore(ca), kBegin) == 1 &&
               ASN1_TIME_set_string_X509(X509_getm_notAfter(ca), kNoEnd) == 1 &&
               X509_set_pubkey(ca, key.native()) == 1);
  add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(ca, ca, NID_key_usage, "critical,keyCertSign");
  add_extension(ca, ca, NID_subject_key_identifier, "hash");
  SPACE_ASSERT(X509_sign(ca, key.native(), EVP_sha256()) > 0);
  return Certificate::share(ca);
}

}  // namespace

Authority Authority::make(const identity::Issuer& issuer, Entropy& entropy) {
  auto key = PrivateKey::generate();
  auto certificate = self_signed(key, issuer, entropy);
  return {issuer, {std::move(key), std::move(certificate)}};
}

std::expected<Authority, std::string> Authority::open(const std::filesystem::path& folder,
                                                      const identity::Issuer& issuer,
                                                      Entropy& entropy) {
  const auto key_path = (folder / "ca.key").string();
  const auto certificate_path = folder / "ca.pem";
  auto key = PrivateKey::load(key_path);
  if (!key && key.error().kind == crypto::KeyFileError::Kind::kNotFound) {
    // The certificate comes first: without its key it is nothing yet, and a crash in between leaves
    // what the next start replaces.
    auto made = make(issuer, entropy);
    if (auto error = files::write_atomically(certificate_path, made.certificate().pem(), 0644)) {
      return std::unexpected(certificate_path.string() + ": " + error.message());
    }
    if (auto saved = made.own_.key.save(key_path, entropy); !saved) {
      return std::unexpected(crypto::describe(key_path, saved.error()));
    }
    return made;
  }
  if (!key) return std::unexpected(crypto::describe(key_path, key.error()));
  const auto text = files::read_small_file(certificate_path);
  const auto certificate = text ? Certificate::from_pem(*text) : std::nullopt;
  if (!certificate || !certificate->belongs_to(*key) || certificate->issuer() != issuer) {
    return std::unexpected(certificate_path.string() + ": is not the certificate of " + key_path +
                           " for issuer '" + issuer.text() + "'");
  }
  return Authority(issuer, {*std::move(key), *certificate});
}

std::optional<Certificate> Authority::issue(ByteView public_key, identity::PeerRole role,
                                            const identity::PeerId& id, WallTime now,
                                            std::chrono::seconds validity, Entropy& entropy) const {
  const auto* at = raw(public_key);
  const Owned<EVP_PKEY> key(d2i_PUBKEY(nullptr, &at, static_cast<long>(public_key.size())));
  // In its one form: whole and uncompressed. A key with two forms would have two hashes.
  const bool good =
      key && at == raw(public_key) + public_key.size() && is_p256(key.get()) &&
      EVP_PKEY_set_utf8_string_param(key.get(), OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT,
                                     OSSL_PKEY_EC_POINT_CONVERSION_FORMAT_UNCOMPRESSED) == 1 &&
      equal(to_der<const EVP_PKEY>(key.get(), &i2d_PUBKEY), public_key);
  ERR_clear_error();
  if (!good) return std::nullopt;

  const auto begin = std::chrono::floor<std::chrono::seconds>(now);
  const auto end = begin + validity;
  const Owned<X509> made(X509_new());
  auto* leaf = made.get();
  auto* ca = own_.certificate.native();
  SPACE_ASSERT(leaf != nullptr && X509_set_version(leaf, X509_VERSION_3) == 1);
  set_serial(leaf, entropy);
  set_common_name(X509_get_subject_name(leaf), id.text());
  SPACE_ASSERT(X509_set_issuer_name(leaf, X509_get_subject_name(ca)) == 1 &&
               ASN1_TIME_set(X509_getm_notBefore(leaf), begin.time_since_epoch().count()) !=
                   nullptr &&
               ASN1_TIME_set(X509_getm_notAfter(leaf), end.time_since_epoch().count()) != nullptr &&
               X509_set_pubkey(leaf, key.get()) == 1);
  add_extension(leaf, ca, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(leaf, ca, NID_key_usage, "critical,digitalSignature");
  add_extension(leaf, ca, NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(leaf, ca, NID_subject_key_identifier, "hash");
  add_extension(leaf, ca, NID_authority_key_identifier, "keyid:always");
  add_extension(leaf, ca, NID_subject_alt_name, "URI:" + identity::peer_uri(issuer_, role, id));
  SPACE_ASSERT(X509_sign(leaf, own_.key.native(), EVP_sha256()) > 0);
  return Certificate::share(leaf);
}

}  // namespace space::tls
