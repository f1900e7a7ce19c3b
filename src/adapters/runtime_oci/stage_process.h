#pragma once
#include <sys/types.h>

#include <string>

#include "adapters/runtime_oci/sys.h"
#include "ports/clock.h"

namespace space::oci {

// What one run of space-stage wrote.
struct StageOutput {
  std::string answer;    // descriptor 1; empty when it ended without one
  std::string messages;  // descriptor 2: of the programs it ran, at most 64 KiB
};

// A running space-stage. Destroyed before its end, it is killed and waited for; programs it started
// die with it, a container it had started does not.
class StageProcess {
 public:
  // `secret_fd` becomes descriptor 4; -1: none. The program starts with an empty environment but
  // PATH.
  static RuntimeResult<StageProcess> spawn(const std::string& program, const char* verb,
                                           const std::string& request, int secret_fd = -1);
  StageProcess(StageProcess&&) = default;
  StageProcess& operator=(StageProcess&&) = delete;
  ~StageProcess();

  // kTimedOut at `deadline`: the process was killed then.
  Task<RuntimeResult<StageOutput>> wait(Timer& timer, MonoTime deadline);
  // Blocks at most `milliseconds`.
  RuntimeResult<StageOutput> wait_blocking(int milliseconds);

 private:
  StageProcess() = default;
  void kill();
  RuntimeResult<StageOutput> finish();

  Fd pidfd_;
  Fd answer_;
  Fd messages_;
};

}  // namespace space::oci
