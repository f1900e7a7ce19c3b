#pragma once
#include <memory>
#include <string>

namespace space::sim {

// One run of one process. Its ports look at `ended`: what its coroutines still do after a kill,
// while they unwind, has no effect on anything outside.
struct Life {
  std::string node;
  bool ended = false;
};
using LifePtr = std::shared_ptr<Life>;

}  // namespace space::sim
