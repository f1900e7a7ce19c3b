#pragma once
#include <cstdint>
#include <expected>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "core/identity/capability.h"

namespace space::identity {

enum class KeyState : std::uint8_t { kNext = 1, kActive = 2, kRetired = 3, kCompromised = 4 };

struct BundleKey {
  KeyId id;
  KeyState state = KeyState::kNext;
  PublicKey key;
  // For kRetired: capabilities signed by it verify until then (overlap; CAP-6). Otherwise zero.
  WallTime retired_until;
  friend bool operator==(const BundleKey&, const BundleKey&) = default;
};

inline constexpr std::chrono::milliseconds kBundleValidity{600'000};        // P-6
inline constexpr std::chrono::milliseconds kBundleRefreshCoolDown{10'000};  // CAP-6
inline constexpr std::size_t kMaxBundleKeys = 8;

// A versioned set of verification keys (CAP-6, P-6). Holds no private key.
struct KeyBundle {
  BundleVersion version;
  Issuer issuer;
  WallTime valid_until;
  std::vector<BundleKey> keys;  // ids strictly ascending
  friend bool operator==(const KeyBundle&, const KeyBundle&) = default;
};
Bytes encode_bundle(const KeyBundle& bundle);
std::optional<KeyBundle> decode_bundle(ByteView bytes);

enum class BundleRefusal : std::uint8_t {
  kOlderThanFloor = 1,  // version below the durable floor, or equal with other content
  kKeyChanged,          // same id, other key material (C012)
  kKeyRevived,          // compromised or retired back to active
  kOtherIssuer,
  kExpired,
  kNoActiveKey,
};
std::string_view to_string(BundleRefusal refusal);

// The verification keys a receiver holds. A value owned by one loop.
class KeyRing {
 public:
  // `floor`: the highest version this receiver ever installed, read from its durable store.
  explicit KeyRing(BundleVersion floor = {}) : floor_(floor) {}
  // Installs a bundle, or says why not and changes nothing. Installing the identical bundle again
  // is fine; one with the same version and keys but a later valid_until extends it.
  std::optional<BundleRefusal> install(const KeyBundle& bundle, WallTime now);

  struct Found {
    PublicKey key;
    KeyState state;
  };
  // The key to verify with, or why none: kNoBundle, kUnknownKey, kRetiredKey, kCompromisedKey.
  // kNext and kActive verify; kRetired until its `retired_until`.
  std::expected<Found, DenyReason> find(const Issuer& issuer, KeyId id, WallTime now) const;

  // Whether an unexpired bundle is installed; without one nothing verifies (TR-2).
  bool usable(WallTime now) const;

  const std::optional<KeyBundle>& bundle() const { return bundle_; }
  BundleVersion floor() const { return floor_; }

 private:
  BundleVersion floor_;
  std::optional<KeyBundle> bundle_;
};

// At most one refresh per cool-down, however many unknown key ids arrive (CAP-6, C012).
class RefreshLimiter {
 public:
  // True when a refresh may start now; then the cool-down begins.
  bool try_start(MonoTime now);

 private:
  std::optional<MonoTime> last_;
};

// Remembers sealed capabilities whose signature was found valid. Bounded: at the limit the older
// half goes. Emptied when a bundle is installed (P-4). Keyed by the whole bytes; the hash is keyed
// with `seed` so that a client cannot choose collisions.
class SignatureCache {
 public:
  explicit SignatureCache(std::uint64_t seed, std::size_t max_entries = 8192);
  // The parsed claims of exactly these bytes, or null. Valid until the next call of a non-const
  // method.
  const Claims* find(ByteView sealed) const;
  void insert(ByteView sealed, const Claims& claims);
  void clear();
  std::size_t size() const;

 private:
  struct Hash {
    std::uint64_t seed;
    using is_transparent = void;
    std::size_t operator()(ByteView bytes) const;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(ByteView a, ByteView b) const { return equal(a, b); }
  };
  // Entries go into `newer_`; when it holds half the limit it becomes `older_` and the former
  // `older_` goes.
  using Half = std::unordered_map<Bytes, Claims, Hash, Equal>;

  std::size_t half_;
  Half newer_;
  Half older_;
};

// SipHash-2-4 of `bytes`.
std::uint64_t sip_hash(std::uint64_t key0, std::uint64_t key1, ByteView bytes);

}  // namespace space::identity
