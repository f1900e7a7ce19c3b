#include "adapters/supervisor/backoff.h"

#include <algorithm>

namespace space::supervisor {
namespace {
constexpr std::chrono::milliseconds kFirst{50};
constexpr std::chrono::milliseconds kLongest{5'000};
constexpr std::chrono::milliseconds kGoodLife{10'000};
}  // namespace

std::chrono::milliseconds Backoff::next(std::chrono::milliseconds life) {
  delay_ = delay_.count() == 0 || life >= kGoodLife ? kFirst : std::min(delay_ * 2, kLongest);
  return delay_;
}

}  // namespace space::supervisor
