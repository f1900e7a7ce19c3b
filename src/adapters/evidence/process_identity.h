#pragma once
#include <sys/types.h>

#include <expected>
#include <system_error>

#include "core/identity/runtime_record.h"

namespace space::evidence {

// What the kernel shows of process `pid` now (BR-1). All fields belong to one process: a pidfd is
// opened first and found alive last, so the number cannot have been reused in between. Needs
// permission to follow /proc/PID/exe. Errors: no_such_process (gone, or a zombie), or what the
// kernel answered.
std::expected<identity::ProcessIdentity, std::error_code> read_process_identity(pid_t pid);

// As above for a process named by `pidfd`, which the caller keeps.
std::expected<identity::ProcessIdentity, std::error_code> read_process_identity(pid_t pid,
                                                                                int pidfd);

// An open pidfd of the process `expected`, which the caller closes. Errors: no_such_process when
// the number is free or names another process now. The executable is not compared: exec keeps the
// process.
std::expected<int, std::error_code> open_process(const identity::ProcessIdentity& expected);

// Whether the process was still running when asked.
bool alive(const identity::ProcessIdentity& expected);

}  // namespace space::evidence
