#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace space::templates {

// How far a build is, read from what `mmdebstrap --verbose` writes. The share never goes back.
class BuildProgress {
 public:
  // One line of its output; true when `step` or `percent` changed.
  bool line(std::string_view text);
  const std::string& step() const { return step_; }  // for people: "installing packages"
  unsigned percent() const { return percent_; }      // 0..99: the end is not in the output

 private:
  bool set(std::string_view step, unsigned percent);

  std::string step_ = "starting";
  unsigned percent_ = 0;
  // Of the phase under way: its part of the whole, and what it has to do.
  unsigned begin_ = 0;
  unsigned end_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace space::templates
