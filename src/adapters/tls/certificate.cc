#include "adapters/tls/certificate.h"

#include <openssl/core_names.h>
#include <openssl/pem.h>

#include <array>
#include <cstring>
#include <ctime>

#include "adapters/tls/openssl.h"
#include "core/identity/sha256.h"

namespace space::tls {
namespace {

constexpr std::size_t kMaxKeyFile = 4096;
constexpr std::size_t kMaxCertificate = 16U << 10;

std::optional<WallTime> wall_time(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return std::nullopt;
  return WallTime{std::chrono::seconds(::timegm(&parts))};
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

// The key after a PEM or DER reader returned it; only P-256 passes.
std::shared_ptr<EVP_PKEY> checked(Owned<EVP_PKEY> key) {
  if (!key || !is_p256(key.get())) return nullptr;
  return {key.release(), Free{}};
}

}  // namespace

bool is_p256(EVP_PKEY* key) {
  std::array<char, 64> name{};
  std::size_t size = 0;
  int explicit_parameters = 0;
  return key != nullptr && EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, name.data(), name.size(), &size) == 1 &&
         std::string_view(name.data(), size) == SN_X9_62_prime256v1 &&
         EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS,
                                &explicit_parameters) == 1 &&
         explicit_parameters == 0;
}

PrivateKey PrivateKey::generate() {
  Owned<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", SN_X9_62_prime256v1));
  SPACE_ASSERT(key);
  return PrivateKey({key.release(), Free{}});
}

std::expected<PrivateKey, crypto::KeyFileError> PrivateKey::load(const std::string& path) {
  std::array<std::byte, kMaxKeyFile> content{};
  const auto size = crypto::read_key_file(path, content);
  if (!size) return std::unexpected(size.error());
  const Owned<BIO> bio(BIO_new_mem_buf(content.data(), static_cast<int>(*size)));
  SPACE_ASSERT(bio);
  // No callback, no passphrase: an encrypted key is refused instead of asking a terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  auto key =
      checked(Owned<EVP_PKEY>(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr)));
  OPENSSL_cleanse(content.data(), content.size());
  ERR_clear_error();
  if (!key) {
    return std::unexpected(crypto::KeyFileError{crypto::KeyFileError::Kind::kMalformed, {}});
  }
  return PrivateKey(std::move(key));
}

std::expected<void, crypto::KeyFileError> PrivateKey::save(const std::string& path,
                                                           Entropy& entropy) const {
  const Owned<BIO> bio(BIO_new(BIO_s_secmem()));  // wiped when freed
  SPACE_ASSERT(bio && PEM_write_bio_PKCS8PrivateKey(bio.get(), key_.get(), nullptr, nullptr, 0,
                                                    nullptr, nullptr) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return crypto::create_key_file(
      path, as_bytes(std::string_view(data, static_cast<std::size_t>(size))), entropy);
}

Bytes PrivateKey::public_key() const { return to_der<const EVP_PKEY>(key_.get(), &i2d_PUBKEY); }

std::optional<Certificate> Certificate::from_der(ByteView der) {
  if (der.empty() || der.size() > kMaxCertificate) return std::nullopt;
  const auto* at = raw(der);
  Owned<X509> parsed(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  ERR_clear_error();
  if (!parsed || at != raw(der) + der.size()) return std::nullopt;
  return Certificate({parsed.release(), Free{}});
}

std::optional<Certificate> Certificate::from_pem(std::string_view pem) {
  if (pem.empty() || pem.size() > 2 * kMaxCertificate) return std::nullopt;
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  SPACE_ASSERT(bio);
  const Owned<X509> parsed(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (!parsed) return std::nullopt;
  auto certificate = share(parsed.get());
  // In its one form: nothing before, between or after.
  if (certificate.pem() != pem) return std::nullopt;
  return certificate;
}

Certificate Certificate::share(x509_st* native) {
  X509_up_ref(native);
  return Certificate({native, Free{}});
}

Bytes Certificate::der() const { return to_der<const X509>(certificate_.get(), &i2d_X509); }

std::string Certificate::pem() const {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  SPACE_ASSERT(bio && PEM_write_bio_X509(bio.get(), certificate_.get()) == 1);
  return text_of(bio.get());
}

Fingerprint Certificate::fingerprint() const { return *Fingerprint::from(identity::sha256(der())); }

identity::CertificateFields Certificate::fields() const {
  identity::CertificateFields fields;
  auto* certificate = certificate_.get();
  fields.ca =
      X509_check_ca(certificate) != 0 || (X509_get_extension_flags(certificate) & EXFLAG_CA) != 0;
  fields.p256 = is_p256(X509_get0_pubkey(certificate));
  fields.public_key =
      to_der<const X509_PUBKEY>(X509_get_X509_PUBKEY(certificate), &i2d_X509_PUBKEY);
  const auto begin = wall_time(X509_get0_notBefore(certificate));
  const auto end = wall_time(X509_get0_notAfter(certificate));
  // A time that cannot be read is one at which the certificate is not valid.
  fields.not_before = begin.value_or(WallTime::max());
  fields.not_after = end.value_or(WallTime{});

  int found = 0;
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, &found, nullptr)));
  ERR_clear_error();
  if (!names) {
    fields.other_names = found != -1;  // absent is -1; broken or there twice is not
    return fields;
  }
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const auto* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) {
      fields.other_names = true;
      continue;
    }
    const auto* uri = name->d.uniformResourceIdentifier;
    fields.uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                             static_cast<std::size_t>(ASN1_STRING_length(uri)));
  }
  return fields;
}

std::optional<identity::Issuer> Certificate::issuer() const {
  const auto* subject = X509_get_subject_name(certificate_.get());
  if (X509_NAME_entry_count(subject) != 1) return std::nullopt;
  const auto* entry = X509_NAME_get_entry(subject, 0);
  if (OBJ_obj2nid(X509_NAME_ENTRY_get_object(entry)) != NID_commonName) return std::nullopt;
  const auto* value = X509_NAME_ENTRY_get_data(entry);
  return identity::Issuer::parse({reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                                  static_cast<std::size_t>(ASN1_STRING_length(value))});
}

bool Certificate::belongs_to(const PrivateKey& key) const {
  const bool belongs = X509_check_private_key(certificate_.get(), key.native()) == 1;
  ERR_clear_error();
  return belongs;
}

Bytes make_request(const PrivateKey& key) {
  const Owned<X509_REQ> request(X509_REQ_new());
  SPACE_ASSERT(request && X509_REQ_set_pubkey(request.get(), key.native()) == 1 &&
               X509_REQ_sign(request.get(), key.native(), EVP_sha256()) > 0);
  return to_der<const X509_REQ>(request.get(), &i2d_X509_REQ);
}

std::optional<Bytes> key_of_request(ByteView request) {
  if (request.empty() || request.size() > kMaxCertificate) return std::nullopt;
  const auto* at = raw(request);
  const Owned<X509_REQ> parsed(d2i_X509_REQ(nullptr, &at, static_cast<long>(request.size())));
  EVP_PKEY* key = parsed ? X509_REQ_get0_pubkey(parsed.get()) : nullptr;
  const bool good = key != nullptr && at == raw(request) + request.size() && is_p256(key) &&
                    X509_REQ_verify(parsed.get(), key) == 1 &&
                    X509_NAME_entry_count(X509_REQ_get_subject_name(parsed.get())) == 0 &&
                    X509_REQ_get_attr_count(parsed.get()) == 0;
  ERR_clear_error();
  if (!good) return std::nullopt;
  return to_der<const EVP_PKEY>(key, &i2d_PUBKEY);
}

}  // namespace space::tls
