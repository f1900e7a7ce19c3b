#pragma once
#include <chrono>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/strong_id.h"
#include "base/time.h"
#include "core/identity/capability.h"
#include "core/identity/route_identity.h"

// Typed records on the wire: a struct lists its fields once, and reading and writing follow that
// list.
//
//   struct FileStat {
//     std::string path;
//     static void fields(auto& record, auto& visit) { visit(record.path); }
//   };
//
// One encoding per value: integers big-endian at their size, bool 0 or 1, enums at their size (an
// enum has `constexpr bool is_known(E)` found by argument-dependent lookup), strings and bytes with
// u32 length, optionals with a presence byte, vectors with u32 count, maps with strictly ascending
// keys, variants with a u8 index. Trailing bytes are refused. A decoder allocates at most a small
// multiple of its input.
namespace space::wire {

template <class T>
concept Enum = std::is_enum_v<T>;

class RecordWriter {
 public:
  RecordWriter() = default;
  // Appends to `begun`.
  explicit RecordWriter(Bytes begun) : out_(std::move(begun)) {}
  template <class... T>
  void operator()(const T&... values) {
    (write(values), ...);
  }
  Bytes take() { return out_.take(); }

 private:
  template <class T>
  void write(const T& value);
  ByteWriter out_;
};

class RecordReader {
 public:
  explicit RecordReader(ByteView bytes) : in_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (read(values), ...);
  }
  bool complete() const { return !bad_ && in_.complete(); }
  void fail() { bad_ = true; }

 private:
  template <class T>
  void read(T& value);
  ByteReader in_;
  bool bad_ = false;
};

template <class T>
Bytes encode(const T& record) {
  RecordWriter writer;
  T::fields(record, writer);
  return writer.take();
}

// The exact inverse of `encode`; nullopt for any other byte string.
template <class T>
std::optional<T> decode(ByteView bytes) {
  RecordReader reader(bytes);
  T record;
  T::fields(record, reader);
  if (!reader.complete()) return std::nullopt;
  return record;
}

namespace detail {
template <class T, template <class...> class Template>
inline constexpr bool kIs = false;
template <template <class...> class Template, class... A>
inline constexpr bool kIs<Template<A...>, Template> = true;

template <class T>
concept Name = requires(std::string_view s) {
  { T::parse(s) } -> std::same_as<std::optional<T>>;
  T::kMaxBytes;
};
template <class T>
concept FixedBytes = requires(ByteView b) {
  { T::from(b) } -> std::same_as<std::optional<T>>;
  T::kBytes;
};
template <class T>
inline constexpr bool kIsNumber = false;
template <class Tag, class Int>
inline constexpr bool kIsNumber<StrongNumber<Tag, Int>> = true;

template <class Variant, std::size_t I = 0>
void emplace_index(Variant& value, std::size_t index) {
  if constexpr (I < std::variant_size_v<Variant>) {
    if (index == I) {
      value.template emplace<I>();
    } else {
      emplace_index<Variant, I + 1>(value, index);
    }
  }
}
}  // namespace detail

template <class T>
void RecordWriter::write(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    out_.u8(value ? 1 : 0);
  } else if constexpr (Enum<T>) {
    write(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_integral_v<T>) {
    const auto raw = static_cast<std::make_unsigned_t<T>>(value);
    if constexpr (sizeof(T) == 1) out_.u8(raw);
    if constexpr (sizeof(T) == 2) out_.u16(raw);
    if constexpr (sizeof(T) == 4) out_.u32(raw);
    if constexpr (sizeof(T) == 8) out_.u64(raw);
  } else if constexpr (detail::kIsNumber<T>) {
    write(value.value);
  } else if constexpr (std::same_as<T, WallTime>) {
    write(static_cast<std::int64_t>(value.time_since_epoch().count()));
  } else if constexpr (std::same_as<T, std::string>) {
    out_.bytes32(as_bytes(value));
  } else if constexpr (std::same_as<T, Bytes>) {
    out_.bytes32(value);
  } else if constexpr (detail::Name<T>) {
    out_.bytes8(as_bytes(value.text()));
  } else if constexpr (detail::FixedBytes<T>) {
    out_.raw(value.view());
  } else if constexpr (std::same_as<T, identity::RouteIdentity>) {
    identity::write_route_identity(out_, value);
  } else if constexpr (std::same_as<T, identity::AccessSet>) {
    out_.u16(value.bits);
  } else if constexpr (detail::kIs<T, std::optional>) {
    out_.u8(value ? 1 : 0);
    if (value) write(*value);
  } else if constexpr (detail::kIs<T, std::vector>) {
    out_.u32(static_cast<std::uint32_t>(value.size()));
    for (const auto& item : value) write(item);
  } else if constexpr (detail::kIs<T, std::map>) {
    out_.u32(static_cast<std::uint32_t>(value.size()));
    for (const auto& [key, item] : value) {
      write(key);
      write(item);
    }
  } else if constexpr (detail::kIs<T, std::variant>) {
    out_.u8(static_cast<std::uint8_t>(value.index()));
    std::visit([this](const auto& item) { this->write(item); }, value);
  } else if constexpr (std::same_as<T, std::monostate>) {
  } else {
    T::fields(value, *this);
  }
}

template <class T>
void RecordReader::read(T& value) {
  if (bad_ || in_.failed()) {
    bad_ = true;
    return;
  }
  if constexpr (std::same_as<T, bool>) {
    const auto raw = in_.u8();
    bad_ = bad_ || raw > 1;
    value = raw == 1;
  } else if constexpr (Enum<T>) {
    std::underlying_type_t<T> raw{};
    read(raw);
    value = static_cast<T>(raw);
    bad_ = bad_ || !is_known(value);
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (sizeof(T) == 1) value = static_cast<T>(in_.u8());
    if constexpr (sizeof(T) == 2) value = static_cast<T>(in_.u16());
    if constexpr (sizeof(T) == 4) value = static_cast<T>(in_.u32());
    if constexpr (sizeof(T) == 8) value = static_cast<T>(in_.u64());
  } else if constexpr (detail::kIsNumber<T>) {
    read(value.value);
  } else if constexpr (std::same_as<T, WallTime>) {
    std::int64_t raw = 0;
    read(raw);
    value = WallTime{std::chrono::milliseconds{raw}};
  } else if constexpr (std::same_as<T, std::string>) {
    value = to_text(in_.bytes32());
  } else if constexpr (std::same_as<T, Bytes>) {
    const auto view = in_.bytes32();
    value.assign(view.begin(), view.end());
  } else if constexpr (detail::Name<T>) {
    auto parsed = T::parse(in_.text8());
    bad_ = bad_ || !parsed;
    if (parsed) value = *std::move(parsed);
  } else if constexpr (detail::FixedBytes<T>) {
    const auto parsed = T::from(in_.raw(T::kBytes));
    bad_ = bad_ || !parsed;
    if (parsed) value = *parsed;
  } else if constexpr (std::same_as<T, identity::RouteIdentity>) {
    auto parsed = identity::read_route_identity(in_);
    bad_ = bad_ || !parsed;
    if (parsed) value = *std::move(parsed);
  } else if constexpr (std::same_as<T, identity::AccessSet>) {
    value.bits = in_.u16();
    bad_ = bad_ || (value.bits & ~unsigned{identity::AccessSet::kKnown}) != 0;
  } else if constexpr (detail::kIs<T, std::optional>) {
    bool present = false;
    read(present);
    value.reset();
    if (present && !bad_) read(value.emplace());
  } else if constexpr (detail::kIs<T, std::vector>) {
    const auto count = in_.u32();
    value.clear();
    // Every element takes at least one byte, so a count beyond the input is a lie.
    if (count > in_.rest().size()) bad_ = true;
    for (std::uint32_t i = 0; i < count && !bad_ && !in_.failed(); ++i) read(value.emplace_back());
  } else if constexpr (detail::kIs<T, std::map>) {
    const auto count = in_.u32();
    value.clear();
    if (count > in_.rest().size()) bad_ = true;
    for (std::uint32_t i = 0; i < count && !bad_ && !in_.failed(); ++i) {
      std::pair<typename T::key_type, typename T::mapped_type> item;
      read(item.first);
      read(item.second);
      if (!value.empty() && !(std::prev(value.end())->first < item.first)) bad_ = true;
      value.insert(value.end(), std::move(item));
    }
  } else if constexpr (detail::kIs<T, std::variant>) {
    const auto index = in_.u8();
    if (index >= std::variant_size_v<T>) {
      bad_ = true;
      return;
    }
    detail::emplace_index(value, index);
    std::visit([this](auto& item) { this->read(item); }, value);
  } else if constexpr (std::same_as<T, std::monostate>) {
  } else {
    T::fields(value, *this);
  }
}

}  // namespace space::wire
