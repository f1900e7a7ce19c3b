#pragma once
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "base/time.h"

namespace space::identity {

// The last instant a canonical encoding can carry: the end of the year 9999. Adding a lifetime or a
// tolerance to any decoded time can therefore not overflow.
inline constexpr WallTime kMaxWallTime{std::chrono::milliseconds{253'402'300'799'999}};

constexpr bool encodable(WallTime time) { return time >= WallTime{} && time <= kMaxWallTime; }

inline void write_wall_time(ByteWriter& out, WallTime time) {
  SPACE_ASSERT(encodable(time));
  out.u64(static_cast<std::uint64_t>(time.time_since_epoch().count()));
}

// nullopt for a time `write_wall_time` would not have written.
inline std::optional<WallTime> read_wall_time(ByteReader& in) {
  const auto value = in.u64();
  if (value > static_cast<std::uint64_t>(kMaxWallTime.time_since_epoch().count())) {
    return std::nullopt;
  }
  return WallTime{std::chrono::milliseconds{static_cast<std::int64_t>(value)}};
}

}  // namespace space::identity
