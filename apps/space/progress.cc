#include "progress.h"

#include <algorithm>

namespace space::app {
namespace {
constexpr std::size_t kWidth = 24;
constexpr std::string_view kClearLine = "\r\x1b[K";
}  // namespace

Progress::~Progress() {
  if (bar_ && !step_.empty()) terminal_.err(kClearLine);
}

void Progress::show(std::string_view step, unsigned percent) {
  if (!bar_ && step == step_) return;
  step_ = step;
  if (!bar_) {
    terminal_.err("space: " + title_ + ": " + step_ + "\n");
    return;
  }
  const std::size_t full = std::min<std::size_t>(percent, 100) * kWidth / 100;
  const std::string number = std::to_string(percent);
  terminal_.err(std::string(kClearLine) + title_ + " [" + std::string(full, '#') +
                std::string(kWidth - full, '.') + "] " +
                std::string(3 - std::min<std::size_t>(number.size(), 3), ' ') + number + "% " +
                step_);
}

}  // namespace space::app
