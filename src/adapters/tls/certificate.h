#pragma once
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/crypto/key_file.h"
#include "core/identity/peer.h"

struct evp_pkey_st;  // OpenSSL's; its headers stay in our .cc files
struct x509_st;

namespace space::tls {

using Fingerprint = StrongBytes<struct FingerprintTag, 32>;  // SHA-256 of a certificate in DER

// A private key on P-256, wiped at the end. Immutable; copies share it.
class PrivateKey {
 public:
  static PrivateKey generate();
  // File: PKCS #8 in PEM, mode 0600.
  static std::expected<PrivateKey, crypto::KeyFileError> load(const std::string& path);
  // Never replaces a file.
  std::expected<void, crypto::KeyFileError> save(const std::string& path, Entropy& entropy) const;
  // SubjectPublicKeyInfo, DER; what certificates of this key carry and `holder` hashes (P-1).
  Bytes public_key() const;
  identity::HolderId holder() const { return identity::holder_of(public_key()); }
  evp_pkey_st* native() const { return key_.get(); }

 private:
  explicit PrivateKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}
  std::shared_ptr<evp_pkey_st> key_;
};

// A parsed X.509 certificate; nothing about it is verified. Immutable; copies share it.
class Certificate {
 public:
  // Exactly one certificate and nothing else.
  static std::optional<Certificate> from_der(ByteView der);
  static std::optional<Certificate> from_pem(std::string_view pem);
  // Takes a reference of its own.
  static Certificate share(x509_st* native);

  Bytes der() const;
  std::string pem() const;
  Fingerprint fingerprint() const;
  identity::CertificateFields fields() const;
  // Of a CA's certificate: the issuer it stands for, its subject's only part, a common name.
  std::optional<identity::Issuer> issuer() const;
  bool belongs_to(const PrivateKey& key) const;
  x509_st* native() const { return certificate_.get(); }

 private:
  explicit Certificate(std::shared_ptr<x509_st> certificate)
      : certificate_(std::move(certificate)) {}
  std::shared_ptr<x509_st> certificate_;
};

// What a part proves its identity with.
struct Credentials {
  PrivateKey key;
  Certificate certificate;
};

// A signing request (PKCS #10, DER): the public key, signed with its private key, and nothing else.
Bytes make_request(const PrivateKey& key);
// The public key of a request whose signature is right; nullopt for any other content, another kind
// of key, or trailing bytes.
std::optional<Bytes> key_of_request(ByteView request);

}  // namespace space::tls
