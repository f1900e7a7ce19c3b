#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <boost/asio/signal_set.hpp>
#include <map>
#include <memory>

#include "adapters/asio/loop.h"
#include "adapters/guest_linux/users.h"
#include "ports/guest.h"

namespace space::guest_linux {

// Processes of this machine, each command below a keeper (keeper.h). Reaps every child of the
// calling process, as the first process of a machine must. Remembers the descriptor limit at
// construction and gives it to what it starts. Outlives the loop's run.
class LinuxProcesses final : public GuestProcesses {
 public:
  explicit LinuxProcesses(asio::Loop& loop);
  GuestResult<std::unique_ptr<GuestProcess>> start(wire::ProcessSpec spec) override;

 private:
  class Tree;
  class Process;
  void reap();
  void await_children();

  asio::Loop& loop_;
  boost::asio::signal_set children_;
  rlimit files_{};
  CurrentAccounts accounts_;
  std::map<pid_t, std::weak_ptr<Tree>> keepers_;
};

}  // namespace space::guest_linux
