#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ports/http.h"

namespace space::cli {

// What a command sees of the shell that called it.
class Terminal {
 public:
  virtual ~Terminal() = default;
  // Writes all of `bytes` to stdout. False from the moment its reader has left.
  virtual bool out(std::string_view bytes) = 0;
  virtual void err(std::string_view bytes) = 0;
  // Whether stdout is a terminal that people look at.
  virtual bool out_is_terminal() const = 0;
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

// What a local folder holds. Never looked through: a symlink is itself.
enum class LocalType : std::uint8_t { kFile, kFolder, kSymlink, kOther };
struct LocalEntry {
  std::string path;  // below the folder, parts joined by '/'
  LocalType type = LocalType::kFile;
  std::uint32_t mode = 0;  // permission bits
};

// A local folder being filled. Every path is below it and reached without following a symlink, so
// that names from a sandbox can't lead elsewhere.
class FolderSink {
 public:
  virtual ~FolderSink() = default;
  // There already is a success.
  virtual IoResult<void> make_folder(const std::string& path) = 0;
  virtual IoResult<std::unique_ptr<FileSink>> create(const std::string& path,
                                                     std::uint32_t mode) = 0;
  virtual IoResult<void> make_symlink(const std::string& path, const std::string& target) = 0;
};

class LocalFiles {
 public:
  virtual ~LocalFiles() = default;
  // Errors: those of the OS; is_a_directory.
  virtual IoResult<std::unique_ptr<HttpBodySource>> open(const std::string& path) = 0;
  // `path` naming a folder gets the file `name` inside it.
  virtual IoResult<std::unique_ptr<FileSink>> create(const std::string& path,
                                                     const std::string& name) = 0;
  // Everything below the folder `path`, parents first, by name.
  virtual IoResult<std::vector<LocalEntry>> walk(const std::string& path) = 0;
  // Makes the folder `path`; when it is there already, the folder `name` inside it.
  virtual IoResult<std::unique_ptr<FolderSink>> create_folder(const std::string& path,
                                                              const std::string& name) = 0;
};

}  // namespace space::cli
