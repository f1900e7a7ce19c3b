#pragma once
#include <chrono>

namespace space::supervisor {

// How long to wait before a part that ended is started again: 50 ms, doubled at each early end up
// to 5 s; back to 50 ms after a life of 10 s.
class Backoff {
 public:
  std::chrono::milliseconds next(std::chrono::milliseconds life);

 private:
  std::chrono::milliseconds delay_{0};
};

}  // namespace space::supervisor
