#pragma once
#include <cstdint>
#include <expected>
#include <string>
#include <system_error>

#include "adapters/bridge/guest_dial.h"

namespace space::bridge {

// A spaced-host process, ours to end: killed and reaped when this goes.
class Child {
 public:
  Child() = default;
  Child(std::int32_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  Child(Child&&) noexcept = default;
  Child& operator=(Child&&) noexcept = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }

  std::int32_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  // Idempotent; waits for a process that has been killed, which is short.
  void end();

 private:
  std::int32_t pid_ = 0;
  Fd pidfd_;
};

// Starts `program` (an open descriptor, so that no right to reach its path is needed) as
// `uid`:`uid` without supplementary groups, with all capability sets and the bounding set empty,
// no-new-privileges, no core dumps and an empty environment. It inherits `third` as 3, `fourth` as
// 4 and our stderr, nothing else, and dies with the thread that called this.
std::expected<Child, std::error_code> spawn_unprivileged(int program, const std::string& name,
                                                         std::uint32_t uid, int third, int fourth);

}  // namespace space::bridge
