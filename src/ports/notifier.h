#pragma once
#include <boost/intrusive/list.hpp>
#include <memory>
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
  // A suspended task. In the list until it is woken; owns itself.
  class Waiter : public boost::intrusive::list_base_hook<
                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
   public:
    virtual ~Waiter() = default;
    // Lets the task go on in a later turn, and ends this object.
    virtual void wake(Wake wake) = 0;
    std::unique_ptr<Timer::Alarm> alarm;
  };
  template <class Handler>
  class TaskWaiter;
  boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> waiters_;
};

}  // namespace space
