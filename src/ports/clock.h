#pragma once
#include <functional>
#include <memory>

#include "base/time.h"
#include "ports/task.h"

namespace space {

// Monotonic time and wake-ups of one loop. `now()` may be constant while a handler runs.
class Timer {
 public:
  // Cancels the wake-up when destroyed.
  class Alarm {
   public:
    virtual ~Alarm() = default;
  };
  virtual ~Timer() = default;
  virtual MonoTime now() const = 0;
  // Calls `action` once, from the loop, at the first turn with now() >= `deadline`, unless the
  // alarm was destroyed before. `action` must not throw. The timer outlives its alarms.
  virtual std::unique_ptr<Alarm> at(MonoTime deadline, std::move_only_function<void()> action) = 0;
  // The executor of the loop this timer belongs to.
  virtual boost::asio::any_io_executor executor() = 0;
};

// Completes at the first loop turn with now() >= `deadline`: true. False when the task was
// cancelled.
Task<bool> sleep_until(Timer& timer, MonoTime deadline);
inline Task<bool> sleep_for(Timer& timer, BootClock::duration duration) {
  return sleep_until(timer, timer.now() + duration);
}

// Completes in a later turn of the loop, after everything that was ready to run at the call.
Task<void> next_turn(Timer& timer);

// Calendar time, and whether this machine knows it well enough to judge expiry (P-2).
class WallClock {
 public:
  virtual ~WallClock() = default;
  virtual WallTime now() const = 0;
};

}  // namespace space
