#pragma once
#include <cstddef>
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"

// JSON of the public API, read strictly: one value per text, no duplicate keys, no fractions or
// exponents, no integer outside 64 bits, no invalid UTF-8 or lone surrogate, no BOM, at most
// kMaxJsonDepth deep.
namespace space::node_api {

inline constexpr std::size_t kMaxJsonDepth = 16;
inline constexpr std::size_t kMaxJsonBytes = 1U << 20;

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::int32_t value) : value_(std::int64_t{value}) {}
  Json(std::uint64_t value);
  Json(std::uint32_t value) : value_(std::int64_t{value}) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }
  // The integer when it is one and lies in the range of Int.
  template <class Int>
  std::optional<Int> integer() const {
    if (const auto* i = std::get_if<std::int64_t>(&value_); i && std::in_range<Int>(*i)) {
      return static_cast<Int>(*i);
    }
    if (const auto* u = std::get_if<std::uint64_t>(&value_); u && std::in_range<Int>(*u)) {
      return static_cast<Int>(*u);
    }
    return std::nullopt;
  }

  // Compact JSON text in ASCII-safe UTF-8: bytes that are no UTF-8 become U+FFFD.
  std::string text() const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  void append(std::string& out) const;
  // An unsigned value is used only above the range of int64.
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, std::string, Array, Object>
      value_;
};

// The value, or one line that says what is wrong and where ("duplicate key \"a\" at byte 12").
std::expected<Json, std::string> parse_json(std::string_view text);

bool is_utf8(std::string_view text);

// Reads the fields of a request's object. Every field may be taken once; `error()` then names the
// first one that was missing, of the wrong type, out of range, or unknown. Names outlive the
// reader.
class JsonFields {
 public:
  // `object` outlives the reader; anything but an object is an error.
  explicit JsonFields(const Json& object);

  std::string required_text(std::string_view name);
  std::string text(std::string_view name);
  bool flag(std::string_view name);
  std::optional<std::uint64_t> number(std::string_view name, std::uint64_t min, std::uint64_t max);
  std::map<std::string, std::string> text_map(std::string_view name);
  std::vector<std::string> text_list(std::string_view name);
  // Null when it is absent. Valid as long as the object that is read.
  const Json* object(std::string_view name);
  // The value as it is; null when it was not given.
  const Json* raw(std::string_view name);

  // Names a field whose value is not acceptable; an earlier error stays.
  void refuse(std::string_view name, std::string_view problem);
  // The name of a field that nobody has read; null when there is none.
  const std::string* left_over() const;
  // Null when all was well and no field is left over.
  std::optional<std::string> error() const;

 private:
  const Json::Object* fields_ = nullptr;
  std::vector<std::string_view> names_;
  std::optional<std::string> error_;
};

}  // namespace space::node_api
