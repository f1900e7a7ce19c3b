#include "adapters/files/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace space::files {
namespace {
constexpr std::size_t kMaxSmallFile = 1U << 20;
std::error_code last_error() { return {errno, std::generic_category()}; }

std::error_code sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return last_error();
  const auto error = ::fsync(descriptor) == 0 ? std::error_code() : last_error();
  ::close(descriptor);
  return error;
}
}  // namespace

std::error_code write_atomically(const std::filesystem::path& path, std::string_view content,
                                 unsigned mode) {
  const std::string temporary = path.string() + ".new";
  const int descriptor =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) return last_error();
  std::error_code error;
  std::string_view rest = content;
  while (!rest.empty() && !error) {
    const auto count = ::write(descriptor, rest.data(), rest.size());
    if (count < 0) {
      error = last_error();
    } else {
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  if (!error && (::fchmod(descriptor, mode) != 0 || ::fsync(descriptor) != 0)) error = last_error();
  ::close(descriptor);
  if (!error && ::rename(temporary.c_str(), path.c_str()) != 0) error = last_error();
  if (error) {
    ::unlink(temporary.c_str());
    return error;
  }
  return sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto count = ::read(descriptor, buffer.data(), buffer.size());
    if (count == 0) break;
    if (count < 0 || text.size() + static_cast<std::size_t>(count) > kMaxSmallFile) {
      ::close(descriptor);
      return std::nullopt;
    }
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  return text;
}

}  // namespace space::files
