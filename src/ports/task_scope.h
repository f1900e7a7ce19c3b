#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "ports/clock.h"
#include "ports/notifier.h"

namespace space {

// Owns background tasks of one loop: no task outlives what it uses. Tasks end by themselves or at
// `stop()`, which cancels and waits. Cancelling makes the wait a task is in end with an error value
// (kCancelled, operation_canceled, false), once; the task then returns. Destroyed with tasks still
// running, it aborts, and so it does on an exception that escapes a task.
class TaskScope {
 public:
  explicit TaskScope(Timer& timer);
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
  ~TaskScope();

  // `name` must outlive the task (a literal). The task starts in a later turn.
  void spawn(const char* name, Task<void> task);
  // Asks every task to stop and completes when all have. New tasks are refused from then on
  // (dropped).
  Task<void> stop();
  // Completes when no task is left, without asking any to stop.
  Task<void> join();
  std::size_t size() const { return running_.size(); }

 private:
  struct Entry;
  Timer& timer_;
  std::list<std::unique_ptr<Entry>> running_;
  Notifier changed_;
  bool stopping_ = false;
};

}  // namespace space
