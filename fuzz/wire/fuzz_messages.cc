// Every record has one encoding: what decodes is encoded to the same bytes. The first byte selects
// the record.
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "core/wire/messages.h"

using namespace space;
using namespace space::wire;

namespace {

template <class T>
void check(ByteView bytes) {
  if (const auto record = decode<T>(bytes)) {
    const auto again = encode(*record);
    SPACE_ASSERT(equal(again, bytes));
  }
}

template <class... T>
constexpr std::array<void (*)(ByteView), sizeof...(T)> checks_of() {
  return {&check<T>...};
}

constexpr auto kChecks =
    checks_of<FileEntry, FileReadRequest, FileReadResult, FileWriteRequest, FileStatRequest,
              FileListRequest, FileListResult, FileRemoveRequest, FileMakeDirRequest, Nothing,
              ProcessStartRequest, ProcessEvent, ProcessListRequest, ProcessListResult,
              ProcessSignalRequest, ProcessInputRequest, ProcessInputResult, SessionOpenRequest,
              SessionOpenResult, SandboxInfo, SandboxCreateRequest, SandboxListRequest,
              SandboxListResult, SandboxRequest, SandboxTimeoutRequest, SandboxPauseRequest,
              SandboxResumeRequest, SandboxResumeResult, SandboxMoveRequest, SandboxRouteResult,
              RouteResolveRequest, RouteResolveResult, CapabilityMintRequest, CapabilityMintResult,
              PlatformStatusRequest, PlatformStatusResult, NodeStartRequest, NodeInstance,
              NodeFreezeRequest, NodeThawRequest, NodePublishRequest, NodeDestroyRequest,
              NodeStatusRequest, NodeStatusResult, FileMoveRequest>();

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size));
  kChecks[data[0] % kChecks.size()](input.subspan(1));
  return 0;
}
