#pragma once
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/wire/messages.h"
#include "ports/task.h"

// What the guest agent does its work with: the files, processes and clock of the machine it runs
// in.
namespace space {

// Why an operation in the guest failed, as its END will say.
struct GuestFailure {
  wire::hop::Outcome outcome = wire::hop::Outcome::kInternal;
  std::string message;  // one line for people
};
template <class T>
using GuestResult = std::expected<T, GuestFailure>;

inline std::unexpected<GuestFailure> guest_failure(wire::hop::Outcome outcome,
                                                   std::string message) {
  return std::unexpected(GuestFailure{outcome, std::move(message)});
}

// A regular file open for reading.
class GuestFileReader {
 public:
  virtual ~GuestFileReader() = default;
  // Of the file when it was opened.
  virtual std::uint64_t size() const = 0;
  // The next 1..buffer.size() bytes; 0 at the end of the file.
  virtual GuestResult<std::size_t> read(std::span<std::byte> buffer) = 0;
};

// New content of a file, invisible until `commit`. Destroyed without it: the old content stays and
// nothing is left behind.
class GuestFileWriter {
 public:
  virtual ~GuestFileWriter() = default;
  virtual GuestResult<void> write(ByteView bytes) = 0;
  // Puts the content in place as a whole. Call once, last.
  virtual GuestResult<wire::FileEntry> commit() = 0;
};

// Files with the rights of a named user (empty: "user" where it exists, else "root"; unknown:
// kInvalidArgument). Paths are absolute, relative to the user's home, or begin with "~". They pass
// is_guest_path(). Calls block the loop for one chunk or one directory listing at most.
class GuestFiles {
 public:
  virtual ~GuestFiles() = default;
  // Errors: kNotFound, kIsDirectory, kPermissionDenied; kInvalidArgument for what is no regular
  // file.
  virtual GuestResult<std::unique_ptr<GuestFileReader>> open(std::string path, std::string user,
                                                             std::uint64_t offset) = 0;
  // Missing parents are made. A link at the end of the path is followed. An existing file keeps its
  // owner, and its mode unless `mode` is given; a new one belongs to the user, with mode 0644.
  virtual GuestResult<std::unique_ptr<GuestFileWriter>> create(
      std::string path, std::string user, std::optional<std::uint32_t> mode) = 0;
  // Follows no link at the end of the path.
  virtual GuestResult<wire::FileEntry> stat(std::string path, std::string user) = 0;
  // Entries to `depth` levels, by name, no links followed below the path; as many as encode within
  // kMaxRecordBytes.
  virtual GuestResult<wire::FileListResult> list(std::string path, std::string user,
                                                 std::uint32_t depth) = 0;
  // Removes a file, a link, or a directory with everything in it. Lets other work go on in between;
  // stopped or failed half-way, what was removed is gone.
  // `wanted` is asked before each further batch; once false, the removal ends there.
  virtual Task<GuestResult<void>> remove(std::string path, std::string user,
                                         std::function<bool()> wanted) = 0;
  // Makes the directory and missing parents with mode 0755. kAlreadyExists when it is there.
  virtual GuestResult<wire::FileEntry> make_dir(std::string path, std::string user) = 0;
  // Renames within one file system, at once. Follows no link at the end of either path; makes
  // missing parents of the destination, and replaces a file there.
  virtual GuestResult<wire::FileEntry> move(std::string source, std::string destination,
                                            std::string user) = 0;
};

// A command that was started: its main process and all that descends from it.
class GuestProcess {
 public:
  virtual ~GuestProcess() = default;

  using Event = std::variant<wire::ProcessOutput, wire::ProcessExited>;
  // The next piece of output, in order within each channel; then, once, how the main process ended,
  // after every byte it wrote. Nothing is read ahead, so that a process whose output is not asked
  // for comes to wait. Descendants that still write after the exit are neither waited for nor
  // disturbed: their output is thrown away, also after this object is gone (C063). nullopt: the
  // task was cancelled.
  virtual Task<std::optional<Event>> next() = 0;

  // Writes to its stdin, as fast as it reads. One call at a time. kConflict when stdin was not
  // asked for, is closed here, or was closed by the process. `bytes` outlives the task.
  virtual Task<GuestResult<void>> write_input(ByteView bytes) = 0;
  // The process reads end-of-file; a pending write fails.
  virtual void close_input() = 0;

  // The main process has not ended yet.
  virtual bool running() const = 0;
  // To the process group of the main process; nothing once it has ended.
  virtual void signal(int signal) = 0;
  // To every process of the tree, those that left the group or session included. SIGKILL is
  // repeated until none is left (C064).
  virtual void signal_tree(int signal) = 0;
};

class GuestProcesses {
 public:
  virtual ~GuestProcesses() = default;
  // Starts `spec` as its user, in a new session. `spec.envs` goes on top of PATH, HOME, USER,
  // LOGNAME and SHELL; nothing else is inherited, no descriptor and no signal setting. Text without
  // NUL. Errors: kNotFound, kPermissionDenied, kInvalidArgument (user, cwd), kLimitReached.
  virtual GuestResult<std::unique_ptr<GuestProcess>> start(wire::ProcessSpec spec) = 0;
};

// The machine's calendar clock.
class GuestClock {
 public:
  virtual ~GuestClock() = default;
  // Sets it where that is allowed.
  virtual void set(WallTime now) = 0;
};

}  // namespace space
