#include "core/policy/operations.h"

#include <gtest/gtest.h>

#include <set>

namespace space::policy {
namespace {

// A new enumerator is a compile error here until it is listed, and then a failure until it is in
// the table.
bool is_enumerator(Operation operation) {
  switch (operation) {
    case Operation::kFileRead:
    case Operation::kFileWrite:
    case Operation::kFileStat:
    case Operation::kFileList:
    case Operation::kFileRemove:
    case Operation::kFileMakeDir:
    case Operation::kFileMove:
    case Operation::kProcessStart:
    case Operation::kProcessList:
    case Operation::kProcessSignal:
    case Operation::kProcessInput:
    case Operation::kSessionOpen:
    case Operation::kSandboxCreate:
    case Operation::kSandboxList:
    case Operation::kSandboxGet:
    case Operation::kSandboxKill:
    case Operation::kSandboxSetTimeout:
    case Operation::kSandboxPause:
    case Operation::kSandboxResume:
    case Operation::kSandboxMove:
    case Operation::kSandboxRoute:
    case Operation::kRouteResolve:
    case Operation::kCapabilityMint:
    case Operation::kPlatformStatus:
    case Operation::kNodeStart:
    case Operation::kNodeFreeze:
    case Operation::kNodeThaw:
    case Operation::kNodePublish:
    case Operation::kNodeDestroy:
    case Operation::kNodeStatus:
      return true;
  }
  return false;
}

TEST(Operations, RC5_TheTableHasEveryOperationAndNothingElse) {
  std::size_t count = 0;
  for (std::uint32_t n = 0; n <= UINT16_MAX; ++n) {
    const auto number = static_cast<std::uint16_t>(n);
    const auto* found = find_operation(number);
    ASSERT_EQ(found != nullptr, is_enumerator(static_cast<Operation>(number))) << number;
    if (found == nullptr) continue;
    ++count;
    EXPECT_EQ(found->operation, static_cast<Operation>(number));
    EXPECT_EQ(&info(found->operation), found);
  }
  EXPECT_EQ(count, operations().size());
}

TEST(Operations, NamesAreUniqueAndFindTheirOperation) {
  std::set<std::string_view> names;
  for (const auto& row : operations()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find_operation(row.name), &row);
  }
  EXPECT_EQ(find_operation("file"), nullptr);
  EXPECT_EQ(find_operation(""), nullptr);
}

TEST(Operations, CAP1_SandboxOperationsAloneNeedAccessAreRepairableAndKeepASandboxActive) {
  for (const auto& row : operations()) {
    const bool sandbox = row.scope == Scope::kSandbox;
    EXPECT_EQ(row.access.bits != 0, sandbox) << row.name;
    EXPECT_EQ(row.access.bits & ~unsigned{identity::AccessSet::kKnown}, 0U) << row.name;
    EXPECT_EQ(row.repairable, sandbox) << row.name;
    EXPECT_EQ(row.activity, sandbox) << row.name;
    if (!sandbox) {
      EXPECT_EQ(row.kind, Kind::kUnary) << row.name;
    }
  }
}

TEST(Operations, RC5_WhatOnlyReadsIsIdempotentAndNothingElseIs) {
  using identity::Access;
  for (const auto& row : operations()) {
    if (row.scope != Scope::kSandbox) continue;
    const bool reads = row.access.has(Access::kFilesRead) || row.access.has(Access::kProcessRead);
    EXPECT_EQ(row.replay == Replay::kIdempotent, reads) << row.name;
  }
  EXPECT_EQ(info(Operation::kFileWrite).replay, Replay::kBeforeFirstByte);
  EXPECT_EQ(info(Operation::kProcessStart).replay, Replay::kNever);
  EXPECT_EQ(info(Operation::kSandboxCreate).replay, Replay::kNever);
}

}  // namespace
}  // namespace space::policy
