#pragma once
#include <string>
#include <string_view>

#include "services/cli/terminal.h"

namespace space::app {

// One long step, shown on stderr: a bar that is drawn anew on a terminal, else a line for each
// sub-step. The bar is gone when this ends.
class Progress {
 public:
  // `terminal` outlives this. `bar`: stderr is a terminal and people read it.
  Progress(cli::Terminal& terminal, std::string title, bool bar)
      : terminal_(terminal), title_(std::move(title)), bar_(bar) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void show(std::string_view step, unsigned percent);

 private:
  cli::Terminal& terminal_;
  std::string title_;
  std::string step_;
  bool bar_;
};

}  // namespace space::app
