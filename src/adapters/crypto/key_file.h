#pragma once
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <system_error>

#include "base/bytes.h"
#include "ports/entropy.h"

namespace space::crypto {

// Why a key file could not be used; `code` says more for kIo.
struct KeyFileError {
  enum class Kind : std::uint8_t {
    kNotFound = 1,
    kExists,     // create never replaces a key
    kUnsafe,     // not a regular file of this user with no group or other permission
    kMalformed,  // not one whole key of its format
    kIo,
  };
  Kind kind;
  std::error_code code;
};
// For people: "PATH: must be a file of this user with mode 0600".
std::string describe(const std::string& path, const KeyFileError& error);

// Makes a file of mode 0600, which is on disk, with its folder entry, when this returns. It appears
// whole or not at all. The folder must exist.
std::expected<void, KeyFileError> create_key_file(const std::string& path, ByteView content,
                                                  Entropy& entropy);
// The whole content into `out`; its size. kMalformed when it does not fit. Follows no symbolic link
// at the end of `path`.
std::expected<std::size_t, KeyFileError> read_key_file(const std::string& path,
                                                       std::span<std::byte> out);

}  // namespace space::crypto
