#pragma once
#include <cstdint>

namespace space::sim {

// splitmix64: defined here, so that a seed means the same schedule everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    auto z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  bool permille(unsigned p) { return below(1000) < p; }

 private:
  std::uint64_t state_;
};

}  // namespace space::sim
