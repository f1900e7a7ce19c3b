#pragma once
#include <functional>
#include <list>
#include <optional>

#include "ports/clock.h"

namespace space {

// A wake-up between tasks of one loop: the condition variable of coroutines. State lives beside it;
// a waiter re-checks its condition in a loop, since a wake-up says "look again", no more.
class Notifier {
 public:
  Notifier() = default;
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;
  // Waiters still there are woken with kCancelled.
  ~Notifier();

  enum class Wake { kNotified, kTimedOut, kCancelled };
  // Suspends until `notify()`, or `deadline` on `timer`, or the task is cancelled. Many tasks may
  // wait.
  Task<Wake> wait(Timer& timer, std::optional<MonoTime> deadline = std::nullopt);
  // Wakes all current waiters; they run in later turns, in the order they came.
  void notify();

 private:
  struct Waiter;
  std::list<Waiter*> waiters_;
  void finish(Waiter& waiter, Wake wake);
};

}  // namespace space
