#include "adapters/tls/certificate.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <fstream>

#include "adapters/crypto/system_entropy.h"
#include "adapters/tls/authority.h"
#include "adapters/tls/testing/forge.h"

namespace space::tls {
namespace {

using crypto::KeyFileError;
using identity::PeerRefusal;
using identity::PeerRole;
using std::chrono::hours;
using testing::Folder;
using testing::forge;
using testing::Forgery;
using testing::leaf_extensions;
using testing::OpenAuthority;

const WallTime kNow{std::chrono::milliseconds(1'800'000'000'500)};
const auto kWorker = *identity::PeerId::parse("w3");

EVP_PKEY* other_key(const char* type, const char* curve_or_null) {
  return curve_or_null != nullptr ? EVP_PKEY_Q_keygen(nullptr, nullptr, type, curve_or_null)
                                  : EVP_PKEY_Q_keygen(nullptr, nullptr, type, std::size_t{2048});
}

void write(const std::filesystem::path& path, EVP_PKEY* key) {
  const Owned<BIO> bio(BIO_new_file(path.c_str(), "w"));
  ASSERT_EQ(PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr),
            1);
  ::chmod(path.c_str(), 0600);
}

TEST(PrivateKey, AFileOfItsOwnerGivesTheSameKeyBack) {
  const Folder folder;
  crypto::SystemEntropy entropy;
  const auto path = (folder / "a.key").string();
  const auto key = PrivateKey::generate();
  ASSERT_TRUE(key.save(path, entropy));
  struct ::stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  const auto loaded = PrivateKey::load(path);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->holder(), key.holder());
  EXPECT_EQ(PrivateKey::generate().save(path, entropy).error().kind, KeyFileError::Kind::kExists);

  ::chmod(path.c_str(), 0640);
  EXPECT_EQ(PrivateKey::load(path).error().kind, KeyFileError::Kind::kUnsafe);
}

TEST(PrivateKey, OnlyP256IsAKey) {
  const Folder folder;
  for (const auto& [type, curve] : {std::pair<const char*, const char*>{"EC", "secp384r1"},
                                    {"EC", "secp256k1"},
                                    {"RSA", nullptr}}) {
    const Owned<EVP_PKEY> key(other_key(type, curve));
    write(folder / "other.key", key.get());
    EXPECT_EQ(PrivateKey::load((folder / "other.key").string()).error().kind,
              KeyFileError::Kind::kMalformed);
  }
  std::ofstream(folder / "other.key") << "no key";
  EXPECT_EQ(PrivateKey::load((folder / "other.key").string()).error().kind,
            KeyFileError::Kind::kMalformed);
}

TEST(Authority, IsTheSameAfterARestart) {
  const Folder folder;
  crypto::SystemEntropy entropy;
  const auto issuer = *identity::Issuer::parse("space");
  const auto first = Authority::open(folder.path(), issuer, entropy);
  ASSERT_TRUE(first) << first.error();
  const auto second = Authority::open(folder.path(), issuer, entropy);
  ASSERT_TRUE(second) << second.error();
  EXPECT_EQ(first->certificate().fingerprint(), second->certificate().fingerprint());
  EXPECT_EQ(first->certificate().issuer(), issuer);
  EXPECT_FALSE(Authority::open(folder.path(), *identity::Issuer::parse("other"), entropy));

  const Folder another;
  ASSERT_TRUE(Authority::open(another.path(), issuer, entropy));
  std::filesystem::copy_file(another / "ca.pem", folder / "ca.pem",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_FALSE(Authority::open(folder.path(), issuer, entropy)) << "a certificate of another key";
  std::filesystem::remove(folder / "ca.pem");
  EXPECT_FALSE(Authority::open(folder.path(), issuer, entropy)) << "nothing is made anew";
}

TEST(Authority, TR3_IssuesForRoleIdAndKey) {
  OpenAuthority ca;
  const auto key = PrivateKey::generate();
  const auto made =
      ca.authority.issue(key.public_key(), PeerRole::kWorker, kWorker, kNow, hours(24), ca.entropy);
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->belongs_to(key));
  const auto fields = made->fields();
  EXPECT_EQ(fields.not_before, kNow - std::chrono::milliseconds(500));
  EXPECT_EQ(fields.not_after, fields.not_before + hours(24));
  const auto peer =
      identity::peer_identity(fields, {.issuer = *identity::Issuer::parse("space"), .now = kNow});
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->role, PeerRole::kWorker);
  EXPECT_EQ(peer->id, kWorker);
  EXPECT_EQ(peer->key, key.holder());
  const auto again =
      ca.authority.issue(key.public_key(), PeerRole::kWorker, kWorker, kNow, hours(24), ca.entropy);
  EXPECT_NE(made->fingerprint(), again->fingerprint()) << "serial numbers differ";
}

TEST(Authority, IssuesForP256KeysInTheirOneForm) {
  OpenAuthority ca;
  const auto issue = [&](ByteView key) {
    return ca.authority.issue(key, PeerRole::kWorker, kWorker, kNow, hours(24), ca.entropy);
  };
  auto trailing = PrivateKey::generate().public_key();
  trailing.push_back(std::byte{0});
  EXPECT_FALSE(issue(trailing));
  EXPECT_FALSE(issue({}));
  auto off_curve = PrivateKey::generate().public_key();
  off_curve.back() ^= std::byte{1};
  EXPECT_FALSE(issue(off_curve));
  for (const auto& [type, curve] :
       {std::pair<const char*, const char*>{"EC", "secp384r1"}, {"RSA", nullptr}}) {
    const Owned<EVP_PKEY> key(other_key(type, curve));
    EXPECT_FALSE(issue(to_der<const EVP_PKEY>(key.get(), &i2d_PUBKEY)));
  }
  const Owned<EVP_PKEY> compressed(other_key("EC", "prime256v1"));
  ASSERT_EQ(EVP_PKEY_set_utf8_string_param(compressed.get(), "point-format", "compressed"), 1);
  const auto short_form = to_der<const EVP_PKEY>(compressed.get(), &i2d_PUBKEY);
  ASSERT_LT(short_form.size(), PrivateKey::generate().public_key().size());
  EXPECT_FALSE(issue(short_form)) << "one key, two hashes";
}

TEST(Request, ProvesThePossessionOfItsKey) {
  const auto key = PrivateKey::generate();
  const auto request = make_request(key);
  const auto found = key_of_request(request);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, key.public_key());
  for (std::size_t i = 0; i < request.size(); ++i) {
    auto bent = request;
    bent[i] ^= std::byte{1};
    EXPECT_FALSE(key_of_request(bent)) << "byte " << i;
  }
  auto longer = request;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(key_of_request(longer));
  EXPECT_FALSE(key_of_request({}));
}

TEST(Certificate, HasOneFormAsText) {
  OpenAuthority ca;
  const auto pem = ca.authority.certificate().pem();
  ASSERT_TRUE(Certificate::from_pem(pem));
  for (const auto& text : {pem + pem, pem + "x", "x\n" + pem, pem.substr(1), std::string()}) {
    EXPECT_FALSE(Certificate::from_pem(text));
  }
  auto der = ca.authority.certificate().der();
  ASSERT_TRUE(Certificate::from_der(der));
  der.push_back(std::byte{0});
  EXPECT_FALSE(Certificate::from_der(der));
}

TEST(Certificate, TR3_WhatTheAuthorityWouldNeverIssueIsRefused) {
  OpenAuthority ca;
  const auto key = PrivateKey::generate();
  const std::string name = "URI:space://space/worker/w3";
  auto may_sign = leaf_extensions(name);
  may_sign[0].second = "critical,CA:TRUE";
  auto twice = leaf_extensions(name);
  twice.emplace_back(NID_subject_alt_name, "URI:space://space/control-plane/control-1");
  const std::vector<std::pair<decltype(may_sign), PeerRefusal>> cases{
      {leaf_extensions(""), PeerRefusal::kNoName},
      {leaf_extensions("DNS:w3"), PeerRefusal::kNoName},
      {leaf_extensions(name + ",DNS:w3"), PeerRefusal::kNoName},
      {leaf_extensions(name + ",IP:127.0.0.1"), PeerRefusal::kNoName},
      {leaf_extensions(name + "," + name), PeerRefusal::kNoName},
      {leaf_extensions("URI:space://other/worker/w3"), PeerRefusal::kForeignName},
      {leaf_extensions("URI:https://w3"), PeerRefusal::kForeignName},
      {may_sign, PeerRefusal::kMayIssue},
      {twice, PeerRefusal::kNoName},
  };
  const identity::PeerDemand demand{.issuer = *identity::Issuer::parse("space"), .now = kNow};
  for (const auto& [extensions, refusal] : cases) {
    const Forgery wanted{extensions, kNow - hours(1), kNow + hours(1)};
    const auto made = forge(wanted, key.native(), ca.key, &ca.authority.certificate());
    const auto judged = identity::peer_identity(made.fields(), demand);
    ASSERT_FALSE(judged);
    EXPECT_EQ(judged.error(), refusal) << extensions.back().second;
  }
  const Owned<EVP_PKEY> rsa(other_key("RSA", nullptr));
  const Forgery proper{leaf_extensions(name), kNow - hours(1), kNow + hours(1)};
  EXPECT_EQ(identity::peer_identity(
                forge(proper, rsa.get(), ca.key, &ca.authority.certificate()).fields(), demand)
                .error(),
            PeerRefusal::kWrongKey);
  EXPECT_TRUE(identity::peer_identity(
      forge(proper, key.native(), ca.key, &ca.authority.certificate()).fields(), demand));
}

}  // namespace
}  // namespace space::tls
