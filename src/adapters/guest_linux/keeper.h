#pragma once
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "adapters/guest_linux/descriptor.h"
#include "adapters/guest_linux/users.h"
#include "ports/guest.h"

namespace space::guest_linux {

// A program to run and how, ready for exec.
struct Launch {
  std::vector<std::string> arguments;    // [0] as asked for
  std::vector<std::string> candidates;   // paths to try, in order
  std::vector<std::string> environment;  // KEY=VALUE
  std::string cwd;
  bool cwd_optional = false;  // else "/"
  User user;
  rlimit files;  // RLIMIT_NOFILE
  bool input = false;
};

// What `launch` leaves to the agent. Descriptors are ours alone, close-on-exec and non-blocking.
struct Launched {
  pid_t keeper = 0;
  pid_t main = 0;
  Descriptor control;  // see ExitNote; closing it lets the keeper reap the main process
  Descriptor input;    // none unless asked for
  Descriptor output[2];
};

// The one message on `control`: how the main process ended, as waitid tells it. Until `control` is
// closed the process stays a zombie, so its pid names nothing else.
struct ExitNote {
  int code = 0;    // CLD_EXITED, CLD_KILLED or CLD_DUMPED
  int status = 0;  // exit status or signal
};

// Starts the program under a keeper: a process of our own that is the subreaper of everything the
// program starts, so that descendants stay below it however they detach. The keeper ends with its
// last child. The caller reaps keepers; descriptors 0 to 2 of the caller are open.
GuestResult<Launched> launch(const Launch& launch);

}  // namespace space::guest_linux
