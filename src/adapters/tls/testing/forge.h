#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "adapters/crypto/system_entropy.h"
#include "adapters/tls/authority.h"
#include "adapters/tls/openssl.h"

// Certificates that the authority would never issue, for tests.
namespace space::tls::testing {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/space-tls-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// An authority whose key the test has.
struct OpenAuthority {
  explicit OpenAuthority(const char* issuer = "space")
      : authority(*Authority::open(folder.path(), *identity::Issuer::parse(issuer), entropy)),
        key(*PrivateKey::load((folder / "ca.key").string())) {}
  crypto::SystemEntropy entropy;
  Folder folder;
  Authority authority;
  PrivateKey key;
};

struct Forgery {
  std::vector<std::pair<int, std::string>> extensions;  // NID and value, as openssl.cnf has them
  WallTime not_before;
  WallTime not_after;
};

// The extensions of a proper leaf with these alternative names.
inline std::vector<std::pair<int, std::string>> leaf_extensions(const std::string& names) {
  std::vector<std::pair<int, std::string>> list{{NID_basic_constraints, "critical,CA:FALSE"},
                                                {NID_key_usage, "critical,digitalSignature"},
                                                {NID_ext_key_usage, "serverAuth,clientAuth"},
                                                {NID_subject_key_identifier, "hash"},
                                                {NID_authority_key_identifier, "keyid:always"}};
  if (!names.empty()) list.emplace_back(NID_subject_alt_name, names);
  return list;
}

// A certificate for `subject`, signed by `signer` in the name of `issuer`; without issuer
// self-signed.
inline Certificate forge(const Forgery& wanted, EVP_PKEY* subject, const PrivateKey& signer,
                         const Certificate* issuer) {
  const Owned<X509> made(X509_new());
  X509* leaf = made.get();
  X509* ca = issuer != nullptr ? issuer->native() : leaf;
  const auto seconds = [](WallTime time) {
    return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  };
  X509_set_version(leaf, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(leaf), 7);
  const auto name = as_bytes("forged");
  X509_NAME_add_entry_by_NID(X509_get_subject_name(leaf), NID_commonName, MBSTRING_ASC, raw(name),
                             static_cast<int>(name.size()), -1, 0);
  X509_set_issuer_name(leaf, X509_get_subject_name(ca));
  ASN1_TIME_set(X509_getm_notBefore(leaf), seconds(wanted.not_before));
  ASN1_TIME_set(X509_getm_notAfter(leaf), seconds(wanted.not_after));
  X509_set_pubkey(leaf, subject);
  for (const auto& [nid, value] : wanted.extensions) {
    X509V3_CTX context{};
    X509V3_set_ctx(&context, ca, leaf, nullptr, nullptr, 0);
    const Owned<X509_EXTENSION> extension(
        X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
    SPACE_ASSERT(extension && X509_add_ext(leaf, extension.get(), -1) == 1);
  }
  SPACE_ASSERT(X509_sign(leaf, signer.native(), EVP_sha256()) > 0);
  return Certificate::share(leaf);
}

}  // namespace space::tls::testing
