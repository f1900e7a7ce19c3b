#pragma once
#include <cstdio>
#include <string>

#include "ports/log.h"
#include "sim/world.h"

namespace space::sim {

// Events become facts of the run's digest, and lines on stderr when the run is traced.
class SimLog final : public Log {
 public:
  SimLog(World& world, std::string part, bool trace)
      : world_(world), part_(std::move(part)), trace_(trace) {}

  void event(Level level, std::string_view name, std::initializer_list<Field> fields) override {
    auto line = part_ + " " + std::string(name);
    for (const auto& field : fields) {
      line += " " + std::string(field.name) + "=" + field.value;
    }
    if (level == Level::kAlarm) ++alarms_;
    world_.note(line);
    if (trace_) {
      const auto now = std::chrono::duration<double>(world_.now().time_since_epoch()).count();
      std::fprintf(stderr, "%12.6f %s\n", now, line.c_str());
    }
  }
  bool trace() const { return trace_; }
  unsigned alarms() const { return alarms_; }

 private:
  World& world_;
  std::string part_;
  bool trace_;
  unsigned alarms_ = 0;
};

}  // namespace space::sim
