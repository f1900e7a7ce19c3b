// Whatever parses has one reading: its text parses to the same value, within the bounds, and
// reading the fields of a request from it never fails in another way than by naming an error.
#include <cstddef>
#include <cstdint>

#include "services/node_api/json.h"

using namespace space;
using namespace space::node_api;

namespace {

std::size_t depth_of(const Json& value) {
  std::size_t deepest = 0;
  if (const auto* array = value.array()) {
    for (const auto& item : *array) deepest = std::max(deepest, depth_of(item));
    return deepest + 1;
  }
  if (const auto* object = value.object()) {
    for (const auto& [key, item] : *object) {
      if (!is_utf8(key)) __builtin_trap();
      deepest = std::max(deepest, depth_of(item));
    }
    return deepest + 1;
  }
  if (const auto* string = value.string(); string != nullptr && !is_utf8(*string)) {
    __builtin_trap();
  }
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(std::as_bytes(std::span(data, size)));
  const auto parsed = parse_json(text);
  if (!parsed) return parsed.error().empty() ? (__builtin_trap(), 0) : 0;
  if (depth_of(*parsed) > kMaxJsonDepth) __builtin_trap();
  const auto written = parsed->text();
  const auto again = parse_json(written);
  // Escapes may make the text longer than is accepted.
  if (written.size() <= kMaxJsonBytes && (!again || *again != *parsed)) __builtin_trap();
  JsonFields fields(*parsed);
  fields.required_text("command");
  fields.text_list("arguments");
  fields.text_map("envs");
  fields.flag("stdin");
  fields.number("timeout_ms", 1, 100);
  const auto error = fields.error();
  if (error && error->empty()) __builtin_trap();
  return 0;
}
