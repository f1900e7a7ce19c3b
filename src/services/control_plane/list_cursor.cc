#include "services/control_plane/list_cursor.h"

#include "base/text.h"
#include "core/identity/sha256.h"
#include "core/wire/record.h"

namespace space::control_plane {
namespace {

Bytes sealed(const fleet::Filter& filter, const fleet::Position& position) {
  auto bytes = wire::encode(filter);
  const auto place = wire::encode(position);
  bytes.insert(bytes.end(), place.begin(), place.end());
  return bytes;
}

}  // namespace

// No sandbox has this name, so that no access token tells this key.
ListCursors::ListCursors(ByteView key)
    : key_(identity::hmac_sha256(key, as_bytes("SPACE list cursor v1"))) {}

std::string ListCursors::seal(const fleet::Filter& filter, const fleet::Position& position) const {
  const auto mac = identity::hmac_sha256(key_.reveal(), sealed(filter, position));
  auto bytes = wire::encode(position);
  bytes.insert(bytes.end(), mac.begin(), mac.end());
  return to_hex(bytes);
}

std::optional<fleet::Position> ListCursors::open(const fleet::Filter& filter,
                                                 std::string_view text) const {
  const auto bytes = from_hex(text);
  if (!bytes || bytes->size() < identity::kSha256Bytes) return std::nullopt;
  const auto split = bytes->size() - identity::kSha256Bytes;
  auto position = wire::decode<fleet::Position>(ByteView(*bytes).first(split));
  if (!position) return std::nullopt;
  const auto mac = identity::hmac_sha256(key_.reveal(), sealed(filter, *position));
  if (!identity::constant_time_equal(mac, ByteView(*bytes).subspan(split))) return std::nullopt;
  return position;
}

}  // namespace space::control_plane
