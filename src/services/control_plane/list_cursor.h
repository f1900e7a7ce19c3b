#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/secret.h"
#include "core/fleet/listing.h"

namespace space::control_plane {

// The text that the next page of a list is asked for with: the position, and a MAC of it together
// with the filter, which names the team. A cursor of another filter, another team or another key,
// and any other text, opens nothing (C110). Of letters and digits.
class ListCursors {
 public:
  // The key may have other uses: a key of its own is derived from it.
  explicit ListCursors(ByteView key);
  std::string seal(const fleet::Filter& filter, const fleet::Position& position) const;
  std::optional<fleet::Position> open(const fleet::Filter& filter, std::string_view text) const;

 private:
  Secret<32> key_;
};

}  // namespace space::control_plane
