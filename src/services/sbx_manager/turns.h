#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ports/notifier.h"

namespace space::sbx_manager {

// One task at a time per key, in the order they came: lifecycle work on one sandbox or one
// instance. Owned by one loop; outlives its turns.
class Turns {
 public:
  explicit Turns(Timer& timer) : timer_(timer) {}

  // Holding it is having the turn; ends when destroyed.
  class Turn {
   public:
    Turn(Turns& turns, std::string key) : turns_(turns), key_(std::move(key)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { turns_.pass_on(key_); }

   private:
    Turns& turns_;
    std::string key_;
  };
  // Null when the task was cancelled.
  Task<std::unique_ptr<Turn>> take(std::string key) {
    auto& queue = queues_[key];
    const auto ticket = queue.last++;
    bool cancelled = false;
    while (!cancelled && queue.serving != ticket) {
      cancelled = co_await queue.changed.wait(timer_) == Notifier::Wake::kCancelled;
    }
    if (!cancelled) co_return std::make_unique<Turn>(*this, std::move(key));
    // Cancelled at shutdown, when everybody in the queue is: nobody waits for this ticket.
    co_return nullptr;
  }

 private:
  struct Queue {
    std::uint64_t last = 0;
    std::uint64_t serving = 0;
    Notifier changed;
  };
  void pass_on(const std::string& key) {
    const auto at = queues_.find(key);
    if (++at->second.serving == at->second.last) {
      queues_.erase(at);
    } else {
      at->second.changed.notify();
    }
  }

  Timer& timer_;
  std::map<std::string, Queue> queues_;
};

}  // namespace space::sbx_manager
