#include "adapters/crypto/ed25519_signer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "adapters/crypto/sodium_verifier.h"
#include "adapters/crypto/system_entropy.h"

namespace space::crypto {
namespace {

using Kind = KeyFileError::Kind;

class KeyFileTest : public ::testing::Test {
 protected:
  KeyFileTest() {
    std::string pattern = ::testing::TempDir() + "space-key-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~KeyFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "signing.key").string(); }
  std::string read() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(std::string_view content) const {
    std::filesystem::remove(path());
    std::ofstream(path(), std::ios::binary) << content;
    ::chmod(path().c_str(), 0600);
  }
  std::optional<Kind> load_error() const {
    const auto loaded = Ed25519Signer::load(path());
    return loaded ? std::nullopt : std::optional(loaded.error().kind);
  }
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  std::filesystem::path folder_;
  SystemEntropy entropy_;
};

TEST_F(KeyFileTest, CAP2_AKeyCreatedIsTheKeyLoaded) {
  const auto created = Ed25519Signer::create(path(), {7}, entropy_);
  ASSERT_TRUE(created);
  const auto loaded = Ed25519Signer::load(path());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->key_id(), identity::KeyId{7});
  EXPECT_EQ(loaded->public_key(), created->public_key());
  const auto message = to_bytes("message");
  EXPECT_TRUE(SodiumVerifier().verify(message, loaded->sign(message), created->public_key()));
  EXPECT_EQ(files(), 1) << "no temporary file stays";
}

TEST_F(KeyFileTest, IsReadableByItsOwnerOnlyWhateverTheUmask) {
  const auto old = ::umask(0);
  ASSERT_TRUE(Ed25519Signer::create(path(), {7}, entropy_));
  ::umask(old);
  struct ::stat status{};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST_F(KeyFileTest, CreateNeverReplacesAKey) {
  const auto first = Ed25519Signer::create(path(), {7}, entropy_);
  ASSERT_TRUE(first);
  const auto second = Ed25519Signer::create(path(), {8}, entropy_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, Kind::kExists);
  EXPECT_EQ(Ed25519Signer::load(path())->public_key(), first->public_key());
  EXPECT_EQ(files(), 1);
}

TEST_F(KeyFileTest, CreateInAMissingFolderFails) {
  EXPECT_EQ(Ed25519Signer::create((folder_ / "no" / "key").string(), {7}, entropy_).error().kind,
            Kind::kIo);
}

TEST_F(KeyFileTest, AMissingFileIsNotFound) { EXPECT_EQ(load_error(), Kind::kNotFound); }

TEST_F(KeyFileTest, AnyGroupOrOtherPermissionBitIsRefused) {
  ASSERT_TRUE(Ed25519Signer::create(path(), {7}, entropy_));
  for (const ::mode_t bit : {040U, 020U, 010U, 04U, 02U, 01U}) {
    ASSERT_EQ(::chmod(path().c_str(), 0600 | bit), 0);
    EXPECT_EQ(load_error(), Kind::kUnsafe) << bit;
  }
  ASSERT_EQ(::chmod(path().c_str(), 0400), 0);
  EXPECT_EQ(load_error(), std::nullopt);
}

TEST_F(KeyFileTest, LinksFifosAndFoldersAreRefused) {
  std::filesystem::create_symlink("elsewhere", path());
  EXPECT_EQ(load_error(), Kind::kUnsafe);
  std::filesystem::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(load_error(), Kind::kUnsafe);
  std::filesystem::remove(path());
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  EXPECT_EQ(load_error(), Kind::kUnsafe);
}

TEST_F(KeyFileTest, AnythingButOneWholeKeyIsMalformed) {
  ASSERT_TRUE(Ed25519Signer::create(path(), {7}, entropy_));
  const auto good = read();
  ASSERT_EQ(good.size(), 45U);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write(good.substr(0, size));
    EXPECT_EQ(load_error(), Kind::kMalformed) << size;
  }
  write(good + "x");
  EXPECT_EQ(load_error(), Kind::kMalformed);
  for (std::size_t at = 0; at < 9; ++at) {
    auto other = good;
    other[at] = '?';
    write(other);
    EXPECT_EQ(load_error(), Kind::kMalformed) << at;
  }
  write(good);
  EXPECT_EQ(load_error(), std::nullopt);
}

}  // namespace
}  // namespace space::crypto
