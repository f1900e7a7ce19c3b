#pragma once
#include <expected>
#include <filesystem>
#include <optional>
#include <system_error>

#include "adapters/files/small_file.h"

namespace space::supervisor {

// "One process at a time", held by the kernel: the lock ends with the process, however it ends, so
// a file left behind by a crash locks nothing. The file is never removed (removing it would let two
// in).
class LockFile {
 public:
  // nullopt: another process holds it.
  static std::expected<std::optional<LockFile>, std::error_code> acquire(
      const std::filesystem::path& path);
  // Whether some process holds the lock. False when the file is missing.
  static bool held(const std::filesystem::path& path);
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;
  ~LockFile();

 private:
  explicit LockFile(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

using files::read_small_file;
using files::write_atomically;

}  // namespace space::supervisor
