#include "ports/task_scope.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <cstdio>
#include <exception>

#include "base/check.h"

namespace space {
namespace net = boost::asio;

struct TaskScope::Entry {
  const char* name;
  net::cancellation_signal cancel;
};

namespace {
void abort_on_escape(const char* name, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "task %s: %s\n", name, e.what());
  }
  std::abort();
}
}  // namespace

namespace {
// Cancellation makes the pending wait fail with a value; it never throws past a task's own
// clean-up.
Task<void> without_throw(Task<void> task) {
  co_await net::this_coro::throw_if_cancelled(false);
  co_await std::move(task);
}
}  // namespace

TaskScope::TaskScope(Timer& timer) : timer_(timer) {}
TaskScope::~TaskScope() { SPACE_ASSERT(running_.empty()); }

void TaskScope::spawn(const char* name, Task<void> task) {
  if (stopping_) return;
  auto at = running_.insert(running_.end(), std::make_unique<Entry>());
  auto* entry = at->get();
  entry->name = name;
  auto done = [this, at, name](const std::exception_ptr& error) {
    if (error) abort_on_escape(name, error);
    running_.erase(at);
    changed_.notify();
  };
  net::co_spawn(timer_.executor(), without_throw(std::move(task)),
                net::bind_cancellation_slot(entry->cancel.slot(), std::move(done)));
}

Task<void> TaskScope::stop() {
  stopping_ = true;
  for (auto it = running_.begin(); it != running_.end();) {
    auto* entry = (it++)->get();  // emit may end the task at once
    entry->cancel.emit(net::cancellation_type::terminal);
  }
  co_await join();
}

Task<void> TaskScope::join() {
  while (!running_.empty()) co_await changed_.wait(timer_);
}

}  // namespace space
