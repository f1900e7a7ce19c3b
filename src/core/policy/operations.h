#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/identity/capability.h"

// The one table of operations (RC-5): code, docs and tests read it.
namespace space::policy {

// Raised when an operation is added or its meaning changes; exchanged in HELLO.
inline constexpr std::uint16_t kOperationTableVersion = 2;

enum class Operation : std::uint16_t {
  // On a sandbox: node-api -> sbx-manager -> spaced-host -> spaced-guest.
  kFileRead = 1,
  kFileWrite = 2,
  kFileStat = 3,
  kFileList = 4,
  kFileRemove = 5,
  kFileMakeDir = 6,
  kFileMove = 7,
  kProcessStart = 16,
  kProcessList = 17,
  kProcessSignal = 18,
  kProcessInput = 19,
  // Of the platform: node-api -> control plane.
  kSessionOpen = 64,
  kSandboxCreate = 65,
  kSandboxList = 66,
  kSandboxGet = 67,
  kSandboxKill = 68,
  kSandboxSetTimeout = 69,
  kSandboxPause = 70,
  kSandboxResume = 71,
  kSandboxMove = 72,
  kSandboxRoute = 73,
  kRouteResolve = 74,
  kCapabilityMint = 75,
  kPlatformStatus = 76,
  // Of a worker's node manager: control plane -> sbx-manager.
  kNodeStart = 128,
  kNodeFreeze = 129,
  kNodeThaw = 130,
  kNodePublish = 131,
  kNodeDestroy = 132,
  kNodeStatus = 133,
};

enum class Scope : std::uint8_t { kSandbox, kPlatform, kNode };

enum class Kind : std::uint8_t {
  kUnary,     // one record in, one record out
  kUpload,    // client bytes in, one record out
  kDownload,  // one record in, bytes out
  kStream,    // both ways, until either side ends
};

// What may be sent again after a transport failure (RC-5). An admission refusal happens before
// forwarding and is covered by `repairable` alone.
enum class Replay : std::uint8_t {
  kNever,            // outcome unknown once any byte was forwarded
  kBeforeFirstByte,  // only while nothing of it was forwarded
  kIdempotent,       // any time
};

struct OperationInfo {
  Operation operation;
  std::string_view name;  // "file.read"; in logs, docs, errors
  Scope scope;
  Kind kind;
  identity::AccessSet access;  // every bit is needed; empty outside Scope::kSandbox
  bool repairable;             // a RefreshRoute refusal may lead to one rebuilt attempt (RC-2)
  Replay replay;
  bool activity;  // counts for idle timers
};

std::span<const OperationInfo> operations();
// Null for a number that is not in the table.
const OperationInfo* find_operation(std::uint16_t number);
const OperationInfo* find_operation(std::string_view name);
const OperationInfo& info(Operation operation);

}  // namespace space::policy
