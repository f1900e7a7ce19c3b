#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ports/log.h"

namespace space::supervisor {

// One process to keep running.
struct Part {
  std::string name;
  std::filesystem::path program;  // opened by the supervisor: its folder may be closed to `uid`
  std::vector<std::string> arguments;  // without argv[0]
  // Runs with this uid and gid and no other group; absent: as we do.
  std::optional<std::uint32_t> uid;
  std::filesystem::path log;  // stdout and stderr are appended here (0600)
};

struct Setting {
  std::filesystem::path working_directory;
  std::vector<std::string> environment;  // "NAME=value", all of it
};

struct PartState {
  std::string name;
  pid_t pid = 0;  // 0: waiting to be started again
  std::uint32_t starts = 0;
  std::string last_end;  // "exit 1", "signal 9"; empty before the first end
};

// Starts `parts` in order and starts each again when it ends (Backoff) until SIGTERM or SIGINT
// arrives, then ends them in reverse order: SIGTERM, and SIGKILL after `stop_time`. Becomes the
// subreaper of all that they leave behind, and reaps it. When this process dies, the kernel kills
// the parts (not their children), so that a successor finds no rival. Calls `changed` after each
// start and end. Blocks the calling thread, which must be the only one of the process; returns
// when all parts have ended.
void run(const std::vector<Part>& parts, const Setting& setting, Log& log,
         std::function<void(const std::vector<PartState>&)> changed,
         std::chrono::milliseconds stop_time = std::chrono::seconds(10));

}  // namespace space::supervisor
