#pragma once
#include <string>

#include "base/time.h"
#include "ports/log.h"

namespace space::telemetry {

// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD; control
// characters and DEL are escaped, so that a value can neither end a line nor colour a terminal.
std::string json_string(std::string_view text);
// RFC 3339 with milliseconds in UTC: 2026-01-02T03:04:05.678Z.
std::string rfc3339(WallTime time);

// Events as JSON lines (DESIGN 9 "logs"): time, level, event, part, then the fields in order. One
// write(2) a line, so lines of several writers of one append-only file do not mix. A value longer
// than kMaxValueBytes is cut and ends in "...". A line that cannot be written is dropped: logging
// never fails the work it describes. Safe from several threads.
class JsonLog final : public Log {
 public:
  static constexpr std::size_t kMaxValueBytes = 4096;
  // Writes to `descriptor`, which stays open for the life of the log and is not taken over.
  explicit JsonLog(std::string part, Level minimum = Level::kInfo, int descriptor = 2)
      : part_(json_string(part)), minimum_(minimum), descriptor_(descriptor) {}
  void event(Level level, std::string_view name, std::initializer_list<Field> fields) override;

 private:
  std::string part_;
  Level minimum_;
  int descriptor_;
};

}  // namespace space::telemetry
