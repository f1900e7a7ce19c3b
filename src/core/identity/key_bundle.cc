#include "core/identity/key_bundle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "core/identity/wall_time_codec.h"

// Layout, integers big-endian:
//
//   u8    format version = 1
//   u64   bundle version
//   name  issuer: u8 length, then the text
//   u64   valid until, milliseconds since the Unix epoch
//   u8    number of keys, at most 8
//   each: u32 key id, strictly ascending
//         u8 state: 1 next, 2 active, 3 retired, 4 compromised
//         32 Ed25519 public key
//         only if retired: u64 retired until

namespace space::identity {
namespace {

constexpr std::uint8_t kVersion = 1;

bool well_formed(const KeyBundle& bundle) {
  const auto& keys = bundle.keys;
  return encodable(bundle.valid_until) && keys.size() <= kMaxBundleKeys &&
         std::ranges::adjacent_find(keys, std::greater_equal{}, &BundleKey::id) == keys.end() &&
         std::ranges::all_of(keys, [](const BundleKey& key) {
           return encodable(key.retired_until) &&
                  (key.state == KeyState::kRetired || key.retired_until == WallTime{});
         });
}

// Whether `next` gives back to `held`'s key a right it had lost: states only go on from retired to
// compromised, and the end of a retirement never moves later.
bool revives(const BundleKey& held, const BundleKey& next) {
  if (held.id != next.id && held.key != next.key) return false;
  if (held.state != KeyState::kRetired && held.state != KeyState::kCompromised) return false;
  return next.state < held.state ||
         (next.state == held.state && next.retired_until > held.retired_until);
}

std::optional<BundleRefusal> refuse_change(const KeyBundle& held, const KeyBundle& next) {
  for (const auto& old_key : held.keys) {
    for (const auto& new_key : next.keys) {
      if (old_key.id == new_key.id && old_key.key != new_key.key) {
        return BundleRefusal::kKeyChanged;
      }
      if (revives(old_key, new_key)) return BundleRefusal::kKeyRevived;
    }
  }
  return std::nullopt;
}

std::uint64_t load_little_endian(ByteView bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = (value << 8) | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

void sip_round(std::array<std::uint64_t, 4>& v) {
  v[0] += v[1];
  v[1] = std::rotl(v[1], 13) ^ v[0];
  v[0] = std::rotl(v[0], 32);
  v[2] += v[3];
  v[3] = std::rotl(v[3], 16) ^ v[2];
  v[0] += v[3];
  v[3] = std::rotl(v[3], 21) ^ v[0];
  v[2] += v[1];
  v[1] = std::rotl(v[1], 17) ^ v[2];
  v[2] = std::rotl(v[2], 32);
}

}  // namespace

std::uint64_t sip_hash(std::uint64_t key0, std::uint64_t key1, ByteView bytes) {
  std::array<std::uint64_t, 4> v = {key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d,
                                    key0 ^ 0x6c7967656e657261, key1 ^ 0x7465646279746573};
  const auto absorb = [&v](std::uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
  };
  const auto length = static_cast<std::uint64_t>(bytes.size());
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) absorb(load_little_endian(bytes.first(8)));
  absorb((length << 56) | load_little_endian(bytes));
  v[2] ^= 0xff;
  for (int round = 0; round < 4; ++round) sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

Bytes encode_bundle(const KeyBundle& bundle) {
  SPACE_ASSERT(well_formed(bundle));
  ByteWriter out;
  out.u8(kVersion);
  out.u64(bundle.version.value);
  out.text8(bundle.issuer.text());
  write_wall_time(out, bundle.valid_until);
  out.u8(static_cast<std::uint8_t>(bundle.keys.size()));
  for (const auto& key : bundle.keys) {
    out.u32(key.id.value);
    out.u8(static_cast<std::uint8_t>(key.state));
    out.raw(key.key.view());
    if (key.state == KeyState::kRetired) write_wall_time(out, key.retired_until);
  }
  return out.take();
}

std::optional<KeyBundle> decode_bundle(ByteView bytes) {
  ByteReader in(bytes);
  if (in.u8() != kVersion) return std::nullopt;
  const BundleVersion version{in.u64()};
  auto issuer = Issuer::parse(in.text8());
  const auto valid_until = read_wall_time(in);
  const auto count = in.u8();
  if (!issuer || !valid_until || count > kMaxBundleKeys) return std::nullopt;
  KeyBundle bundle{
      .version = version, .issuer = *std::move(issuer), .valid_until = *valid_until, .keys = {}};
  for (std::size_t i = 0; i < count; ++i) {
    const KeyId id{in.u32()};
    const auto state = in.u8();
    const auto key = PublicKey::from(in.raw(PublicKey::kBytes));
    if (!key || state < static_cast<std::uint8_t>(KeyState::kNext) ||
        state > static_cast<std::uint8_t>(KeyState::kCompromised)) {
      return std::nullopt;
    }
    BundleKey entry{
        .id = id, .state = static_cast<KeyState>(state), .key = *key, .retired_until = {}};
    if (entry.state == KeyState::kRetired) {
      const auto until = read_wall_time(in);
      if (!until) return std::nullopt;
      entry.retired_until = *until;
    }
    bundle.keys.push_back(entry);
  }
  if (!in.complete() || !well_formed(bundle)) return std::nullopt;
  return bundle;
}

std::string_view to_string(BundleRefusal refusal) {
  switch (refusal) {
    case BundleRefusal::kOlderThanFloor:
      return "older_than_floor";
    case BundleRefusal::kKeyChanged:
      return "key_changed";
    case BundleRefusal::kKeyRevived:
      return "key_revived";
    case BundleRefusal::kOtherIssuer:
      return "other_issuer";
    case BundleRefusal::kExpired:
      return "expired";
    case BundleRefusal::kNoActiveKey:
      return "no_active_key";
  }
  std::unreachable();
}

std::optional<BundleRefusal> KeyRing::install(const KeyBundle& bundle, WallTime now) {
  if (bundle_ && bundle_->issuer != bundle.issuer) return BundleRefusal::kOtherIssuer;
  if (bundle.version < floor_) return BundleRefusal::kOlderThanFloor;
  if (bundle_ && bundle_->version == bundle.version &&
      (bundle_->keys != bundle.keys || bundle.valid_until < bundle_->valid_until)) {
    return BundleRefusal::kOlderThanFloor;
  }
  if (now >= bundle.valid_until) return BundleRefusal::kExpired;
  if (std::ranges::find(bundle.keys, KeyState::kActive, &BundleKey::state) == bundle.keys.end()) {
    return BundleRefusal::kNoActiveKey;
  }
  if (bundle_) {
    if (const auto refusal = refuse_change(*bundle_, bundle)) return refusal;
  }
  bundle_ = bundle;
  floor_ = bundle.version;
  return std::nullopt;
}

bool KeyRing::usable(WallTime now) const { return bundle_ && now < bundle_->valid_until; }

std::expected<KeyRing::Found, DenyReason> KeyRing::find(const Issuer& issuer, KeyId id,
                                                        WallTime now) const {
  if (!usable(now)) return std::unexpected(DenyReason::kNoBundle);
  const auto key = std::ranges::find(bundle_->keys, id, &BundleKey::id);
  // A key belongs to its issuer: an equal id of another issuer is another key (C011).
  if (issuer != bundle_->issuer || key == bundle_->keys.end()) {
    return std::unexpected(DenyReason::kUnknownKey);
  }
  switch (key->state) {
    case KeyState::kNext:
    case KeyState::kActive:
      return Found{key->key, key->state};
    case KeyState::kRetired:
      if (now < key->retired_until) return Found{key->key, key->state};
      return std::unexpected(DenyReason::kRetiredKey);
    case KeyState::kCompromised:
      return std::unexpected(DenyReason::kCompromisedKey);
  }
  std::unreachable();
}

bool RefreshLimiter::try_start(MonoTime now) {
  if (last_ && now - *last_ < kBundleRefreshCoolDown) return false;
  last_ = now;
  return true;
}

std::size_t SignatureCache::Hash::operator()(ByteView bytes) const {
  return static_cast<std::size_t>(sip_hash(seed, ~seed, bytes));
}

SignatureCache::SignatureCache(std::uint64_t seed, std::size_t max_entries)
    : half_(max_entries / 2), newer_(0, Hash{seed}), older_(0, Hash{seed}) {}

const Claims* SignatureCache::find(ByteView sealed) const {
  for (const auto* half : {&newer_, &older_}) {
    if (const auto found = half->find(sealed); found != half->end()) {
      return &found->second;
    }
  }
  return nullptr;
}

void SignatureCache::insert(ByteView sealed, const Claims& claims) {
  if (half_ == 0 || find(sealed) != nullptr) return;
  if (newer_.size() == half_) {
    std::swap(newer_, older_);
    newer_.clear();
  }
  newer_.emplace(Bytes(sealed.begin(), sealed.end()), claims);
}

void SignatureCache::clear() {
  newer_.clear();
  older_.clear();
}

std::size_t SignatureCache::size() const { return newer_.size() + older_.size(); }

}  // namespace space::identity
