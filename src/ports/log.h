#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace space {

enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError, kAlarm };

// One named fact of an event. Secrets have no conversion to text, so they cannot get here.
struct Field {
  std::string_view name;
  std::string value;
  Field(std::string_view n, std::string_view v) : name(n), value(v) {}
  Field(std::string_view n, std::uint64_t v) : name(n), value(std::to_string(v)) {}
};

// Structured events (DESIGN 9 "logs"): a stable event name and fields, e.g.
// log.event(Level::kInfo, "install.done", {{"sandbox", id.text()}, {"generation", 8}}).
class Log {
 public:
  virtual ~Log() = default;
  virtual void event(Level level, std::string_view name, std::initializer_list<Field> fields) = 0;
};

}  // namespace space
