#include "adapters/templates/build_progress.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace space::templates {
namespace {

struct Phase {
  std::string_view begins;  // the line that announces it
  std::string_view step;
  unsigned begin;  // percent, from builds that were watched
  unsigned end;
};
constexpr std::array kPhases = {
    Phase{"I: running apt-get update", "reading the package lists", 1, 8},
    Phase{"I: downloading packages", "downloading packages", 8, 12},
    Phase{"I: extracting archives", "unpacking the first packages", 12, 32},
    Phase{"I: installing essential", "installing the first packages", 32, 52},
    Phase{"I: installing remaining", "installing the other packages", 52, 96},
    Phase{"I: running --customize-hook", "making the user", 96, 97},
    Phase{"I: cleaning package lists", "cleaning up", 97, 99},
};

}  // namespace

bool BuildProgress::set(std::string_view step, unsigned percent) {
  percent = std::max(percent, percent_);
  if (step == step_ && percent == percent_) return false;
  step_ = step;
  percent_ = percent;
  return true;
}

bool BuildProgress::line(std::string_view text) {
  for (const auto& phase : kPhases) {
    if (!text.starts_with(phase.begins)) continue;
    begin_ = phase.begin;
    end_ = phase.end;
    done_ = 0;
    return set(phase.step, begin_);
  }
  // "0 upgraded, 69 newly installed, 0 to remove and 0 not upgraded."
  constexpr std::string_view kAfterCount = " newly installed";
  if (const auto at = text.find(kAfterCount); at != std::string_view::npos) {
    const auto number = text.substr(0, at);
    total_ = 2 * parse_decimal(number.substr(number.rfind(' ') + 1)).value_or(0);
    return false;
  }
  if (total_ == 0 || !(text.starts_with("Unpacking ") || text.starts_with("Setting up "))) {
    return false;
  }
  done_ = std::min(done_ + 1, total_);
  return set(step_, begin_ + static_cast<unsigned>(done_ * (end_ - begin_) / total_));
}

}  // namespace space::templates
