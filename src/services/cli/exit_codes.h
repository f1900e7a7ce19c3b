#pragma once

// Exit codes of `space`, documented in docs/cli.md. `exec` passes on the code of the remote command
// (128+n when signal n ended it), so our own failures lie where neither commands nor signals are:
// signals end at 128 + 64.
namespace space::cli {

inline constexpr int kOk = 0;
inline constexpr int kDoctorFound = 1;   // doctor: something required is missing
inline constexpr int kUsage = 2;         // bad arguments; `exec` answers kFailed instead
inline constexpr int kPlatformDown = 3;  // status: not running
inline constexpr int kFailed = 240;      // refused or failed; nothing was done as far as we know
inline constexpr int kNoSandbox = 241;   // no such sandbox, or it is gone
inline constexpr int kOutcomeUnknown = 242;  // cut off or left in the middle: it may have happened

}  // namespace space::cli
