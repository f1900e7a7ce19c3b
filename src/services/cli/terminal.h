#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "ports/http.h"

namespace space::cli {

// What a command sees of the shell that called it.
class Terminal {
 public:
  virtual ~Terminal() = default;
  // Writes all of `bytes` to stdout. False from the moment its reader has left.
  virtual bool out(std::string_view bytes) = 0;
  virtual void err(std::string_view bytes) = 0;
  // 1..buffer.size() bytes of stdin; 0 at its end. `buffer` outlives the task.
  virtual Task<IoResult<std::size_t>> in(std::span<std::byte> buffer) = 0;
  // Completes with the number of the next SIGINT, SIGTERM or SIGHUP; 0 when the task was cancelled.
  // From the first call on, these no longer end the process by themselves.
  virtual Task<int> interrupted() = 0;
  // Ends the process now; what is under way is abandoned.
  virtual void leave(int exit_code) = 0;
};

// A local file being written: visible under its name only after `commit`.
class FileSink {
 public:
  virtual ~FileSink() = default;  // without commit: nothing is left
  virtual IoResult<void> write(ByteView bytes) = 0;
  virtual IoResult<void> commit() = 0;
};

class LocalFiles {
 public:
  virtual ~LocalFiles() = default;
  // Errors: those of the OS; is_a_directory.
  virtual IoResult<std::unique_ptr<HttpBodySource>> open(const std::string& path) = 0;
  // `path` naming a folder gets the file `name` inside it.
  virtual IoResult<std::unique_ptr<FileSink>> create(const std::string& path,
                                                     const std::string& name) = 0;
};

}  // namespace space::cli
