// Two ends that obey their own rules never find each other in violation, whatever crosses on the
// wire; and nothing but the frames of P-20 ever gets through from a guest.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/wire/testing/two_ends.h"

using namespace space;
using namespace space::wire::hop;
using namespace space::wire::hop::testing;

namespace {

bool guest_may(FrameType type) {
  constexpr std::array kGuestTypes{
      FrameType::kHello,   FrameType::kProof,    FrameType::kOpened, FrameType::kData,
      FrameType::kCredit,  FrameType::kConsumed, FrameType::kEnd,    FrameType::kReset,
      FrameType::kRekeyed, FrameType::kPong,
  };
  return std::ranges::find(kGuestTypes, type) != kGuestTypes.end();
}

class Bytewise {
 public:
  explicit Bytewise(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  std::uint32_t operator()(std::uint32_t bound) {
    std::uint32_t value = 0;
    for (auto reach = bound - 1; reach > 0 && !rest_.empty(); reach >>= 8) {
      value = (value << 8) | rest_.front();
      rest_ = rest_.subspan(1);
    }
    return value % bound;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytewise choose(std::span(data, std::min(size, std::size_t{4096})));
  TwoEnds ends(kLegs[choose(kLegs.size())]);
  if (choose(8) != 0) ends.shake_hands();
  while (!choose.done()) {
    ends.step(choose);
    if (choose(8) == 0) ends.check_agreement(choose);
    if (ends.role(1) == Role::kGuest && choose(4) == 0) {
      const auto frame = ends.candidate(1, choose);
      auto bridge = ends.rules(0);
      const auto type = type_of(frame.payload);
      SPACE_ASSERT(guest_may(type) || !bridge.received(frame));
    }
  }
  ends.check_agreement(choose);
  return 0;
}
