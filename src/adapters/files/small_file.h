#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace space::files {

// Replaces `path` by a file with this content and mode, whole or not at all; on disk, with its
// folder entry, when this returns without error.
std::error_code write_atomically(const std::filesystem::path& path, std::string_view content,
                                 unsigned mode);
// nullopt when it cannot be read or is larger than 1 MiB.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

}  // namespace space::files
