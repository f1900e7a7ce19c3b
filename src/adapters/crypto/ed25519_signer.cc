#include "adapters/crypto/ed25519_signer.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "base/result.h"
#include "base/text.h"

namespace space::crypto {
namespace {

using Kind = KeyFileError::Kind;

constexpr std::string_view kMagic = "SPACEKEY";
constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kSeedBytes = 32;
constexpr std::size_t kHeaderBytes = 8 + 1 + 4;
constexpr std::size_t kFileBytes = kHeaderBytes + kSeedBytes;
// The content of a key file; wiped wherever it was held.
using KeyFile = Secret<kFileBytes>;
// One byte more, so that a longer file shows.
using ReadBuffer = std::array<std::byte, kFileBytes + 1>;

unsigned char* raw_out(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* raw(ByteView bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::unexpected<KeyFileError> failed(Kind kind, int error = 0) {
  return std::unexpected(KeyFileError{kind, std::error_code(error, std::generic_category())});
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

bool write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

// Reads until `out` is full or the file ends.
std::optional<std::size_t> read_up_to(int fd, std::span<std::byte> out) {
  std::size_t size = 0;
  while (size < out.size()) {
    const auto got = ::read(fd, out.data() + size, out.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return size;
}

bool sync_folder_of(const std::string& path) {
  auto folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && ::fsync(fd.get()) == 0;
}

std::expected<void, KeyFileError> write_new_file(const std::string& path,
                                                 const std::string& temporary,
                                                 const KeyFile& content) {
  const Descriptor fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed(Kind::kIo, errno);
  int error = 0;
  // fchmod, since the umask may have taken the owner's own bits.
  if (::fchmod(fd.get(), 0600) != 0 || !write_all(fd.get(), content.reveal()) ||
      ::fsync(fd.get()) != 0 ||
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    error = errno;
    ::unlink(temporary.c_str());
    return failed(error == EEXIST ? Kind::kExists : Kind::kIo, error);
  }
  if (!sync_folder_of(path)) return failed(Kind::kIo, errno);
  return {};
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

  std::array<std::byte, 8> suffix{};
  entropy.fill(suffix);
  const auto temporary = path + ".new-" + to_hex(suffix);
  if (auto written = write_new_file(path, temporary, content); !written) {
    return std::unexpected(written.error());
  }
  return Ed25519Signer(id, seed);
}

std::expected<Ed25519Signer, KeyFileError> Ed25519Signer::load(const std::string& path) {
  // O_NONBLOCK: opening a FIFO in the file's place must not wait for a writer.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    switch (errno) {
      case ENOENT:
        return failed(Kind::kNotFound, errno);
      case ELOOP:
        return failed(Kind::kUnsafe, errno);
      default:
        return failed(Kind::kIo, errno);
    }
  }
  struct ::stat status{};
  if (::fstat(fd.get(), &status) != 0) return failed(Kind::kIo, errno);
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    return failed(Kind::kUnsafe);
  }
  ReadBuffer bytes{};
  const auto size = read_up_to(fd.get(), bytes);
  const int error = errno;
  const KeyFile content{std::span(bytes).first<kFileBytes>()};
  sodium_memzero(bytes.data(), bytes.size());
  if (!size) return failed(Kind::kIo, error);

  ByteReader in(content.reveal());
  const auto magic = as_text(in.raw(kMagic.size()));
  const auto version = in.u8();
  const identity::KeyId id{in.u32()};
  if (*size != kFileBytes || magic != kMagic || version != kVersion) {
    return failed(Kind::kMalformed);
  }
  return Ed25519Signer(id, SigningSeed{content.reveal().last<kSeedBytes>()});
}

}  // namespace space::crypto
