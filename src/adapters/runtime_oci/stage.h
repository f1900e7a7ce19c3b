#pragma once
#include <string>

#include "adapters/runtime_oci/oci_config.h"
#include "adapters/runtime_oci/sys.h"

// The verbs of space-stage: the blocking half of OciRuntime, run in a short-lived process of its
// own per call. The request is one JSON object on descriptor 0, the answer one on descriptor 1;
// messages of programs it starts go to descriptor 2. For `start`, descriptor 3 is a place holder
// and 4 the end of a pipe that holds the guest's secret; both are handed to the guest, 3 replaced
// by its socket folder.
namespace space::oci {

struct StageStart {
  std::string handle;
  std::string sandbox;
  std::uint32_t slot = 0;
  SandboxSpec spec;
  std::string artifact;
  std::uint32_t first_public_pid = 1;
};

// Request texts. The verb is argv[1].
std::string start_request(const OciConfig& config, const StageStart& start);
std::string handle_request(const OciConfig& config, const std::string& handle,
                           const std::string& artifact = {});

// Answer texts. What `start` made is in the instance's meta.json.
std::string encode_answer(const RuntimeResult<void>& result);
RuntimeResult<void> decode_answer(std::string_view text);

// Runs argv[1] in {start, freeze, thaw, publish, destroy, remove-artifact, probe, check}. Exit
// status 0 when an answer was written.
int stage_main(int argc, char** argv);

}  // namespace space::oci
