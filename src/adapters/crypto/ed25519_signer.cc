#include "adapters/crypto/ed25519_signer.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "base/check.h"

namespace space::crypto {
namespace {

constexpr std::string_view kMagic = "SPACEKEY";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kSeedBytes = 32;
constexpr std::size_t kHeaderBytes = 8 + 1 + 4;
constexpr std::size_t kFileBytes = kHeaderBytes + kSeedBytes;
// The content of a key file; wiped wherever it was held.
using KeyFile = Secret<kFileBytes>;

unsigned char* raw_out(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* raw(ByteView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Ed25519Signer::Ed25519Signer(identity::KeyId id, const SigningSeed& seed) : id_(id) {
  SPACE_ASSERT(sodium_init() >= 0);
  std::array<std::byte, crypto_sign_PUBLICKEYBYTES> public_key{};
  std::array<std::byte, crypto_sign_SECRETKEYBYTES> secret_key{};
  SPACE_ASSERT(
      crypto_sign_seed_keypair(raw_out(public_key), raw_out(secret_key), raw(seed.reveal())) == 0);
  public_ = *identity::PublicKey::from(public_key);
  secret_ = Secret<64>(secret_key);
  sodium_memzero(secret_key.data(), secret_key.size());
}

std::array<std::byte, 64> Ed25519Signer::sign(ByteView message) const {
  std::array<std::byte, 64> signature{};
  SPACE_ASSERT(crypto_sign_detached(raw_out(signature), nullptr, raw(message), message.size(),
                                    raw(secret_.reveal())) == 0);
  return signature;
}

std::expected<Ed25519Signer, KeyFileError> Ed25519Signer::create(const std::string& path,
                                                                 identity::KeyId id,
                                                                 Entropy& entropy) {
  ByteWriter header;
  header.raw(as_bytes(kMagic));
  header.u8(kVersion);
  header.u32(id.value);
  std::array<std::byte, kFileBytes> bytes{};
  std::ranges::copy(header.view(), bytes.begin());
  const auto seed_bytes = std::span(bytes).last<kSeedBytes>();
  entropy.fill(seed_bytes);
  const KeyFile content{bytes};
  const SigningSeed seed{seed_bytes};
  sodium_memzero(bytes.data(), bytes.size());

  if (auto written = create_key_file(path, content.reveal(), entropy); !written) {
    return std::unexpected(written.error());
  }
  return Ed25519Signer(id, seed);
}

std::expected<Ed25519Signer, KeyFileError> Ed25519Signer::load(const std::string& path) {
  std::array<std::byte, kFileBytes> bytes{};
  const auto size = read_key_file(path, bytes);
  const KeyFile content{bytes};
  sodium_memzero(bytes.data(), bytes.size());
  if (!size) return std::unexpected(size.error());

  ByteReader in(content.reveal());
  const auto magic = as_text(in.raw(kMagic.size()));
  const auto version = in.u8();
  const identity::KeyId id{in.u32()};
  if (*size != kFileBytes || magic != kMagic || version != kVersion) {
    return std::unexpected(KeyFileError{KeyFileError::Kind::kMalformed, {}});
  }
  return Ed25519Signer(id, SigningSeed{content.reveal().last<kSeedBytes>()});
}

}  // namespace space::crypto
