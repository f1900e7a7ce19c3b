#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/text.h"

namespace space {

// A name that has passed `parse`: 1..Max bytes of [a-z0-9-], not beginning or ending with '-', so
// that it is a DNS label. Types with different tags do not convert into each other. The default
// value is the empty name, a placeholder that `parse` never yields.
template <class Tag, std::size_t Max>
class StrongName {
 public:
  static constexpr std::size_t kMaxBytes = Max;
  StrongName() = default;
  static std::optional<StrongName> parse(std::string_view text) {
    if (text.empty() || text.size() > Max || text.front() == '-' || text.back() == '-') {
      return std::nullopt;
    }
    for (const char c : text) {
      if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) return std::nullopt;
    }
    return StrongName(std::string(text));
  }
  const std::string& text() const { return text_; }
  auto operator<=>(const StrongName&) const = default;

 private:
  explicit StrongName(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

// A fixed-size opaque identifier, printed as lower-case hexadecimal. Zero-initialised by default.
template <class Tag, std::size_t Size>
class StrongBytes {
 public:
  static constexpr std::size_t kBytes = Size;
  StrongBytes() = default;
  // From exactly Size bytes; nullopt for any other length.
  static std::optional<StrongBytes> from(ByteView bytes) {
    if (bytes.size() != Size) return std::nullopt;
    StrongBytes id;
    std::memcpy(id.bytes_.data(), bytes.data(), Size);
    return id;
  }
  static std::optional<StrongBytes> parse(std::string_view hex) {
    const auto bytes = from_hex(hex);
    return bytes ? from(*bytes) : std::nullopt;
  }
  ByteView view() const { return bytes_; }
  std::string text() const { return to_hex(bytes_); }
  auto operator<=>(const StrongBytes&) const = default;

 private:
  std::array<std::byte, Size> bytes_{};
};

// A counter that does not mix with other counters.
template <class Tag, class Int>
struct StrongNumber {
  Int value = 0;
  auto operator<=>(const StrongNumber&) const = default;
};

}  // namespace space

template <class Tag, std::size_t Max>
struct std::hash<space::StrongName<Tag, Max>> {
  std::size_t operator()(const space::StrongName<Tag, Max>& id) const {
    return std::hash<std::string>{}(id.text());
  }
};
template <class Tag, std::size_t Size>
struct std::hash<space::StrongBytes<Tag, Size>> {
  std::size_t operator()(const space::StrongBytes<Tag, Size>& id) const {
    return std::hash<std::string_view>{}(space::as_text(id.view()));
  }
};
template <class Tag, class Int>
struct std::hash<space::StrongNumber<Tag, Int>> {
  std::size_t operator()(const space::StrongNumber<Tag, Int>& n) const {
    return std::hash<Int>{}(n.value);
  }
};
