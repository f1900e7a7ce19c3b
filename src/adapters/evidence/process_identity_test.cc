#include "adapters/evidence/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace space::evidence {
namespace {

TEST(ProcessIdentity, BR1_NamesThisProcessAndItsExecutable) {
  const auto self = read_process_identity(::getpid());
  ASSERT_TRUE(self) << self.error().message();
  struct stat exe{};
  ASSERT_EQ(::stat("/proc/self/exe", &exe), 0);
  EXPECT_EQ(self->exe_device, exe.st_dev);
  EXPECT_EQ(self->exe_inode, exe.st_ino);
  EXPECT_GT(self->start_time_ticks, 0U);
  EXPECT_TRUE(alive(*self));
}

TEST(ProcessIdentity, BR1_DiffersBetweenProcessesAndEndsWithThem) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto identity = read_process_identity(child);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  const bool zombie_alive = identity && alive(*identity);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(identity) << identity.error().message();
  EXPECT_FALSE(zombie_alive);
  EXPECT_FALSE(alive(*identity));
  EXPECT_NE(*identity, *read_process_identity(::getpid()));
}

TEST(ProcessIdentity, BR1_AnotherStartTimeOrPidfsInodeIsAnotherProcess) {
  auto self = *read_process_identity(::getpid());
  auto other = self;
  ++other.start_time_ticks;
  EXPECT_FALSE(alive(other));
  other = self;
  ++other.pidfs_inode;
  EXPECT_FALSE(alive(other));
}

TEST(ProcessIdentity, BR1_RefusesNumbersThatNameNoProcess) {
  EXPECT_FALSE(read_process_identity(0));
  EXPECT_FALSE(read_process_identity(-1));
}

}  // namespace
}  // namespace space::evidence
