#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/api.h"

// The commands that talk to the API: each makes its requests, prints, and completes with the exit
// code.
namespace space::cli {

struct CreateOptions {
  std::string template_name = "base";
  std::optional<std::uint32_t> timeout_s;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> envs;
  std::optional<std::string> worker;
  std::optional<std::uint32_t> cpu_millis;
  std::optional<std::uint64_t> memory_mb;
  std::optional<std::uint64_t> disk_mb;
};
Task<int> create(Context& context, CreateOptions options);
// The credentials as shell assignments, for `eval "$(space env)"`: ours, and those that the
// official E2B SDKs read (E2B.md 1.3).
Task<int> env(Context& context);
Task<int> list(Context& context);
Task<int> info(Context& context, std::string sandbox);
Task<int> pause(Context& context, std::string sandbox);

struct ResumeOptions {
  std::string sandbox;
  std::optional<std::string> worker;
  std::optional<std::uint32_t> timeout_s;
};
Task<int> resume(Context& context, ResumeOptions options);
Task<int> move(Context& context, ResumeOptions options);
Task<int> kill(Context& context, std::vector<std::string> sandboxes);
Task<int> route(Context& context, std::string sandbox);
// The claims of the capability that would open `operation` now: never the capability itself.
Task<int> capability(Context& context, std::string sandbox, std::string operation);

struct TopOptions {
  BootClock::duration interval = std::chrono::seconds(2);
  // Absent: without end where it redraws a terminal, else one. 0: without end.
  std::optional<std::uint64_t> samples;
};
// Sandboxes, executions, repairs and refusals, again and again.
Task<int> top(Context& context, TopOptions options);

Task<int> cat(Context& context, std::string sandbox, std::string path, std::string user);
// One of `from` and `to` is `ID:PATH`, the other a local path; "-" is stdin or stdout. A folder is
// copied with everything in it; what can't be copied is named, and the exit code is kFailed then.
Task<int> copy(Context& context, std::string from, std::string to, std::string user);

struct ExecOptions {
  std::string sandbox;
  std::vector<std::string> command;  // at least one
  std::map<std::string, std::string> envs;
  std::string cwd;
  std::string user;
  std::optional<std::uint64_t> timeout_ms;
  bool forward_stdin = false;
};
Task<int> exec(Context& context, ExecOptions options);

}  // namespace space::cli
