#include "core/policy/operations.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace space::policy {
namespace {

using identity::Access;
using identity::AccessSet;
using enum Operation;

constexpr AccessSet only(Access access) { return AccessSet{}.with(access); }

constexpr OperationInfo sandbox(Operation operation, std::string_view name, Kind kind,
                                Access access, Replay replay) {
  return {operation, name, Scope::kSandbox, kind, only(access), true, replay, true};
}
constexpr OperationInfo internal(Operation operation, std::string_view name, Scope scope,
                                 Replay replay) {
  return {operation, name, scope, Kind::kUnary, {}, false, replay, false};
}
constexpr OperationInfo platform(Operation operation, std::string_view name, Replay replay) {
  return internal(operation, name, Scope::kPlatform, replay);
}
constexpr OperationInfo node(Operation operation, std::string_view name, Replay replay) {
  return internal(operation, name, Scope::kNode, replay);
}

// Ascending by number.
constexpr std::array kTable{
    sandbox(kFileRead, "file.read", Kind::kDownload, Access::kFilesRead, Replay::kIdempotent),
    // Atomic as a whole, but it replaces what another writer may have put there in the meantime.
    sandbox(kFileWrite, "file.write", Kind::kUpload, Access::kFilesWrite, Replay::kBeforeFirstByte),
    sandbox(kFileStat, "file.stat", Kind::kUnary, Access::kFilesRead, Replay::kIdempotent),
    sandbox(kFileList, "file.list", Kind::kUnary, Access::kFilesRead, Replay::kIdempotent),
    sandbox(kFileRemove, "file.remove", Kind::kUnary, Access::kFilesWrite, Replay::kNever),
    sandbox(kFileMakeDir, "file.make_dir", Kind::kUnary, Access::kFilesWrite,
            Replay::kBeforeFirstByte),
    sandbox(kFileMove, "file.move", Kind::kUnary, Access::kFilesWrite, Replay::kNever),
    sandbox(kProcessStart, "process.start", Kind::kStream, Access::kProcessWrite, Replay::kNever),
    sandbox(kProcessList, "process.list", Kind::kUnary, Access::kProcessRead, Replay::kIdempotent),
    sandbox(kProcessSignal, "process.signal", Kind::kUnary, Access::kProcessWrite, Replay::kNever),
    sandbox(kProcessInput, "process.input", Kind::kUpload, Access::kProcessWrite, Replay::kNever),
    platform(kSessionOpen, "session.open", Replay::kNever),
    platform(kSandboxCreate, "sandbox.create", Replay::kNever),
    platform(kSandboxList, "sandbox.list", Replay::kIdempotent),
    platform(kSandboxGet, "sandbox.get", Replay::kIdempotent),
    platform(kSandboxKill, "sandbox.kill", Replay::kNever),
    platform(kSandboxSetTimeout, "sandbox.set_timeout", Replay::kNever),
    platform(kSandboxPause, "sandbox.pause", Replay::kNever),
    platform(kSandboxResume, "sandbox.resume", Replay::kNever),
    platform(kSandboxMove, "sandbox.move", Replay::kNever),
    platform(kSandboxRoute, "sandbox.route", Replay::kIdempotent),
    platform(kRouteResolve, "route.resolve", Replay::kIdempotent),
    platform(kCapabilityMint, "capability.mint", Replay::kNever),
    platform(kPlatformStatus, "platform.status", Replay::kIdempotent),
    node(kNodeStart, "node.start", Replay::kNever),
    node(kNodeFreeze, "node.freeze", Replay::kNever),
    node(kNodeThaw, "node.thaw", Replay::kNever),
    node(kNodePublish, "node.publish", Replay::kNever),
    node(kNodeDestroy, "node.destroy", Replay::kNever),
    node(kNodeStatus, "node.status", Replay::kIdempotent),
};
static_assert(std::ranges::is_sorted(kTable, {}, &OperationInfo::operation));

}  // namespace

std::span<const OperationInfo> operations() { return kTable; }

const OperationInfo* find_operation(std::uint16_t number) {
  const auto operation = static_cast<Operation>(number);
  const auto at = std::ranges::lower_bound(kTable, operation, {}, &OperationInfo::operation);
  return at != kTable.end() && at->operation == operation ? &*at : nullptr;
}

const OperationInfo* find_operation(std::string_view name) {
  const auto at = std::ranges::find(kTable, name, &OperationInfo::name);
  return at != kTable.end() ? &*at : nullptr;
}

const OperationInfo& info(Operation operation) {
  const auto* found = find_operation(static_cast<std::uint16_t>(operation));
  SPACE_ASSERT(found != nullptr);
  return *found;
}

}  // namespace space::policy
