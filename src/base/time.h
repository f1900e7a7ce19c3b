#pragma once
#include <chrono>

namespace space {

// Wall-clock time, milliseconds since the Unix epoch, UTC.
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

// Time of the boot-time clock (runs through suspend); durations and deadlines use it (P-2).
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;
};
using MonoTime = BootClock::time_point;

}  // namespace space
