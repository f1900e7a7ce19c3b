#include "adapters/guest_linux/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "adapters/guest_linux/descriptor.h"
#include "adapters/guest_linux/users.h"
#include "base/result.h"
#include "base/text.h"

namespace space::guest_linux {

using wire::FileEntry;
using wire::hop::Outcome;

namespace {

constexpr int kMaxLinks = 40;  // followed, as the kernel does
constexpr mode_t kPermissions = 07777;

struct Place {
  std::shared_ptr<const Accounts> accounts;
  User user;
  std::string path;  // absolute
};

GuestResult<Place> locate(std::shared_ptr<const Accounts> accounts, const std::string& path,
                          const std::string& user_name) {
  SPACE_TRY(auto user, accounts->find(user_name));
  auto absolute = absolute_path(path, user);
  return Place{std::move(accounts), std::move(user), std::move(absolute)};
}

std::unexpected<GuestFailure> failed(int error, const std::string& what) {
  return std::unexpected(failure_of(error, what));
}
std::unexpected<GuestFailure> no_rights(const Place& place) {
  return guest_failure(Outcome::kPermissionDenied, "cannot act as user " + place.user.name);
}

std::string name_of(const std::string& path) {
  return path == "/" ? path : path.substr(path.rfind('/') + 1);
}
std::string parent_of(const std::string& path) {
  const auto at = path.rfind('/');
  return at == 0 ? "/" : path.substr(0, at);
}
std::string join(const std::string& folder, const std::string& name) {
  return folder == "/" ? "/" + name : folder + "/" + name;
}

std::optional<std::string> read_link(int folder, const char* name) {
  char target[PATH_MAX];
  const auto count = ::readlinkat(folder, name, target, sizeof target);
  if (count < 0) return std::nullopt;
  return std::string(target, static_cast<std::size_t>(count));
}

// The entry `name` of an open folder, or AT_FDCWD and a whole path; not following a link.
std::optional<FileEntry> entry_at(int folder, const char* name, std::string path,
                                  const Accounts& accounts) {
  struct stat info{};
  if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  FileEntry entry;
  entry.name = name_of(path);
  entry.path = std::move(path);
  entry.type = wire::FileType::kOther;
  if (S_ISREG(info.st_mode)) entry.type = wire::FileType::kFile;
  if (S_ISDIR(info.st_mode)) entry.type = wire::FileType::kDirectory;
  if (S_ISLNK(info.st_mode)) {
    entry.type = wire::FileType::kSymlink;
    entry.symlink_target = read_link(folder, name);
  }
  entry.size = static_cast<std::uint64_t>(info.st_size);
  entry.mode = info.st_mode & kPermissions;
  entry.owner = accounts.user_name(info.st_uid);
  entry.group = accounts.group_name(info.st_gid);
  entry.modified = WallTime{std::chrono::seconds(info.st_mtim.tv_sec) +
                            std::chrono::milliseconds(info.st_mtim.tv_nsec / 1'000'000)};
  return entry;
}

GuestResult<FileEntry> entry_of(const std::string& path, const Accounts& accounts) {
  auto entry = entry_at(AT_FDCWD, path.c_str(), path, accounts);
  if (!entry) return failed(errno, path);
  return *std::move(entry);
}

// Makes `path` and its missing parents; true when `path` itself is new.
GuestResult<bool> make_dirs(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0) return true;
  if (errno == EEXIST) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) return failed(errno, path);
    if (!S_ISDIR(info.st_mode)) return failed(ENOTDIR, path);
    return false;
  }
  if (errno != ENOENT || path == "/") return failed(errno, path);
  SPACE_TRY([[maybe_unused]] const bool made, make_dirs(parent_of(path)));
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return failed(errno, path);
  return true;
}

class Reader final : public GuestFileReader {
 public:
  Reader(Descriptor fd, std::uint64_t size, std::uint64_t offset, std::string path)
      : fd_(std::move(fd)), size_(size), offset_(offset), path_(std::move(path)) {}
  std::uint64_t size() const override { return size_; }
  GuestResult<std::size_t> read(std::span<std::byte> buffer) override {
    const auto count =
        ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(offset_));
    if (count < 0) return failed(errno, path_);
    offset_ += static_cast<std::uint64_t>(count);
    return static_cast<std::size_t>(count);
  }

 private:
  Descriptor fd_;
  std::uint64_t size_;
  std::uint64_t offset_;
  std::string path_;
};

class Writer final : public GuestFileWriter {
 public:
  // `folder` is where the content will be, opened with the user's rights. `named`: it has its
  // temporary name already, because the file system has no nameless files.
  Writer(Place place, Descriptor folder, Descriptor fd, std::string temporary, bool named)
      : place_(std::move(place)),
        folder_(std::move(folder)),
        fd_(std::move(fd)),
        temporary_(std::move(temporary)),
        named_(named) {}
  ~Writer() override {
    if (named_) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
  }
  int descriptor() const { return fd_.get(); }

  GuestResult<void> write(ByteView bytes) override {
    while (!bytes.empty()) {
      const auto count = ::write(fd_.get(), bytes.data(), bytes.size());
      if (count < 0) return failed(errno, place_.path);
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return {};
  }

  GuestResult<FileEntry> commit() override {
    if (!named_) {
      // With the agent's own rights, since the content may belong to the replaced file's owner; the
      // user's right to this very folder was seen when it was opened.
      const auto nameless = "/proc/self/fd/" + std::to_string(fd_.get());
      if (::linkat(AT_FDCWD, nameless.c_str(), folder_.get(), temporary_.c_str(),
                   AT_SYMLINK_FOLLOW) != 0) {
        return failed(errno, place_.path);
      }
      named_ = true;
    }
    const ActingAs acting(place_.user);
    if (!acting.ok()) return no_rights(place_);
    const auto name = name_of(place_.path);
    if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name.c_str()) != 0) {
      return failed(errno, place_.path);
    }
    named_ = false;
    auto entry = entry_at(folder_.get(), name.c_str(), place_.path, *place_.accounts);
    if (!entry) return failed(errno, place_.path);
    return *std::move(entry);
  }

 private:
  Place place_;
  Descriptor folder_;
  Descriptor fd_;
  std::string temporary_;
  bool named_;
};

// A directory being emptied.
struct Level {
  DIR* stream;
  std::string name;  // in its parent
};

// The entries still to be removed, as an explicit stack: depth costs descriptors, not stack.
class Remover {
 public:
  Remover() = default;
  Remover(const Remover&) = delete;
  Remover& operator=(const Remover&) = delete;
  ~Remover() {
    for (const auto& level : levels_) ::closedir(level.stream);
  }
  // Removes `name` in `folder` or, if it is a directory with content, enters it. False: errno tells
  // why.
  bool begin(int folder, const char* name) {
    if (::unlinkat(folder, name, 0) == 0) return true;
    if (errno != EISDIR) return false;
    if (::unlinkat(folder, name, AT_REMOVEDIR) == 0) return true;
    if (errno != ENOTEMPTY && errno != EEXIST) return false;
    Descriptor fd(::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return false;
    DIR* stream = ::fdopendir(fd.get());
    if (stream == nullptr) return false;
    fd.release();
    levels_.push_back({stream, name});
    return true;
  }
  bool done() const { return levels_.empty(); }
  // One entry. False: errno tells why.
  bool step(int root) {
    const auto& level = levels_.back();
    errno = 0;
    const auto* entry = ::readdir(level.stream);
    if (entry != nullptr) {
      if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0)
        return true;
      return begin(::dirfd(level.stream), entry->d_name) || errno == ENOENT;
    }
    if (errno != 0) return false;
    const auto name = level.name;
    ::closedir(level.stream);
    levels_.pop_back();
    const int parent = levels_.empty() ? root : ::dirfd(levels_.back().stream);
    // Filled again in the meantime: begin anew with it.
    return begin(parent, name.c_str()) || errno == ENOENT;
  }

 private:
  std::vector<Level> levels_;
};

constexpr std::size_t kRemovalsPerTurn = 256;

class Lister {
 public:
  explicit Lister(const Accounts& accounts) : accounts_(accounts) {}
  // False when the limit is reached; failures below the first level are skipped entries.
  bool add(const std::string& path, std::uint32_t depth) {
    DIR* stream = ::opendir(path.c_str());
    if (stream == nullptr) return true;
    std::vector<std::string> names;
    while (const auto* entry = ::readdir(stream)) {
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
        names.emplace_back(entry->d_name);
      }
    }
    std::ranges::sort(names);
    bool complete = true;
    for (const auto& name : names) {
      auto entry = entry_at(::dirfd(stream), name.c_str(), join(path, name), accounts_);
      if (!entry) continue;  // gone since it was read
      const bool descend = entry->type == wire::FileType::kDirectory && depth > 1;
      const auto below = entry->path;
      bytes_ += wire::encode(*entry).size();
      complete = bytes_ <= wire::hop::kMaxRecordBytes;
      if (!complete) break;
      result.entries.push_back(*std::move(entry));
      if (descend) complete = add(below, depth - 1);
      if (!complete) break;
    }
    ::closedir(stream);
    return complete;
  }
  wire::FileListResult result;

 private:
  const Accounts& accounts_;
  std::size_t bytes_ = 16;  // of the list around the entries
};

}  // namespace

GuestResult<std::unique_ptr<GuestFileReader>> LinuxFiles::open(std::string path, std::string user,
                                                               std::uint64_t offset) {
  SPACE_TRY(const auto place, locate(accounts_.get(), path, user));
  const ActingAs acting(place.user);
  if (!acting.ok()) return no_rights(place);
  // Non-blocking, so that opening a FIFO does not wait for its other end.
  Descriptor fd(::open(place.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0) return failed(errno, place.path);
  if (S_ISDIR(info.st_mode)) return failed(EISDIR, place.path);
  if (!S_ISREG(info.st_mode)) {
    return guest_failure(Outcome::kInvalidArgument, place.path + ": not a regular file");
  }
  if (offset > INT64_MAX) return failed(EINVAL, place.path);
  return std::make_unique<Reader>(std::move(fd), static_cast<std::uint64_t>(info.st_size), offset,
                                  place.path);
}

GuestResult<std::unique_ptr<GuestFileWriter>> LinuxFiles::create(
    std::string path, std::string user, std::optional<std::uint32_t> mode) {
  SPACE_TRY(auto place, locate(accounts_.get(), path, user));
  if (mode && (*mode & ~kPermissions) != 0) return failed(EINVAL, place.path);
  std::optional<struct stat> existing;
  Descriptor folder;
  Descriptor fd;
  std::string temporary;
  bool named = false;
  {
    const ActingAs acting(place.user);
    if (!acting.ok()) return no_rights(place);
    struct stat info{};
    for (int links = 0;; ++links) {
      if (::lstat(place.path.c_str(), &info) != 0) {
        if (errno == ENOENT) break;
        return failed(errno, place.path);
      }
      if (!S_ISLNK(info.st_mode)) {
        existing = info;
        break;
      }
      if (links == kMaxLinks) return failed(ELOOP, place.path);
      const auto target = read_link(AT_FDCWD, place.path.c_str());
      if (!target) return failed(errno, place.path);
      place.path = target->starts_with('/') ? *target : join(parent_of(place.path), *target);
    }
    if (existing) {
      if (S_ISDIR(existing->st_mode)) return failed(EISDIR, place.path);
      if (!S_ISREG(existing->st_mode)) {
        return guest_failure(Outcome::kInvalidArgument, place.path + ": not a regular file");
      }
      // Replacing takes the right to write the file, as writing into it would.
      const Descriptor writable(::open(place.path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
      if (!writable && errno != ETXTBSY) return failed(errno, place.path);
    } else {
      if (path.ends_with('/') || place.path == "/") return failed(EISDIR, place.path);
      SPACE_TRY([[maybe_unused]] const bool made, make_dirs(parent_of(place.path)));
    }
    folder.reset(::open(parent_of(place.path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return failed(errno, place.path);
    fd.reset(::openat(folder.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
    const auto unique = random_id<StrongBytes<struct TemporaryTag, 8>>(entropy_);
    temporary = ".space-" + unique.text() + ".tmp";
    if (!fd && (errno == EOPNOTSUPP || errno == EISDIR)) {
      fd.reset(::openat(folder.get(), temporary.c_str(),
                        O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600));
      named = static_cast<bool>(fd);
    }
    if (!fd) return failed(errno, place.path);
  }
  const bool is_root = place.user.uid == 0;
  const bool is_owner = !existing || is_root || existing->st_uid == place.user.uid;
  const auto target_path = place.path;
  auto writer = std::make_unique<Writer>(std::move(place), std::move(folder), std::move(fd),
                                         std::move(temporary), named);
  if (mode && !is_owner) return failed(EPERM, target_path);
  auto final_mode = static_cast<mode_t>(mode.value_or(0644));
  if (existing && !mode) {
    // What is written by another must not run with the owner's rights.
    final_mode = existing->st_mode & (is_root ? kPermissions : 01777U);
  }
  // The agent's own rights: the user may write the file without owning it.
  if (existing && ::fchown(writer->descriptor(), existing->st_uid, existing->st_gid) != 0) {
    return failed(errno, target_path);
  }
  if (::fchmod(writer->descriptor(), final_mode) != 0) return failed(errno, target_path);
  return writer;
}

GuestResult<FileEntry> LinuxFiles::stat(std::string path, std::string user) {
  SPACE_TRY(const auto place, locate(accounts_.get(), path, user));
  const ActingAs acting(place.user);
  if (!acting.ok()) return no_rights(place);
  return entry_of(place.path, *place.accounts);
}

GuestResult<wire::FileListResult> LinuxFiles::list(std::string path, std::string user,
                                                   std::uint32_t depth) {
  SPACE_TRY(const auto place, locate(accounts_.get(), path, user));
  const ActingAs acting(place.user);
  if (!acting.ok()) return no_rights(place);
  // The path itself must be readable; below it, what cannot be read is left out.
  const Descriptor folder(::open(place.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return failed(errno, place.path);
  Lister lister(*place.accounts);
  lister.result.truncated = !lister.add(place.path, depth);
  return std::move(lister.result);
}

Task<GuestResult<void>> LinuxFiles::remove(std::string path, std::string user,
                                           std::function<bool()> wanted) {
  const auto place = locate(accounts_.get(), path, user);
  if (!place) co_return std::unexpected(place.error());
  const auto name = name_of(place->path);
  if (name == "/" || name == "." || name == "..") co_return failed(EINVAL, place->path);
  Descriptor folder;
  Remover remover;
  for (bool first = true; first || !remover.done(); first = false) {
    {
      const ActingAs acting(place->user);
      if (!acting.ok()) co_return no_rights(*place);
      if (first) {
        folder.reset(::open(parent_of(place->path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!folder || !remover.begin(folder.get(), name.c_str())) {
          co_return failed(errno, place->path);
        }
      }
      for (std::size_t i = 0; i < kRemovalsPerTurn && !remover.done(); ++i) {
        if (!remover.step(folder.get())) co_return failed(errno, place->path);
      }
    }
    if (remover.done()) break;
    const bool woken = co_await sleep_until(timer_, timer_.now());
    if (!woken || !wanted()) {
      co_return guest_failure(Outcome::kInterrupted, "removal was interrupted");
    }
  }
  co_return GuestResult<void>{};
}

GuestResult<FileEntry> LinuxFiles::make_dir(std::string path, std::string user) {
  SPACE_TRY(const auto place, locate(accounts_.get(), path, user));
  const ActingAs acting(place.user);
  if (!acting.ok()) return no_rights(place);
  SPACE_TRY(const bool made, make_dirs(place.path));
  if (!made) return failed(EEXIST, place.path);
  return entry_of(place.path, *place.accounts);
}

GuestResult<FileEntry> LinuxFiles::move(std::string source, std::string destination,
                                        std::string user) {
  SPACE_TRY(const auto place, locate(accounts_.get(), source, user));
  const auto target = absolute_path(destination, place.user);
  const ActingAs acting(place.user);
  if (!acting.ok()) return no_rights(place);
  // Seen first, so that nothing is made for what is not there.
  SPACE_TRY([[maybe_unused]] const auto entry, entry_of(place.path, *place.accounts));
  SPACE_TRY([[maybe_unused]] const bool made, make_dirs(parent_of(target)));
  if (::rename(place.path.c_str(), target.c_str()) != 0) {
    return failed(errno, place.path + " to " + target);
  }
  return entry_of(target, *place.accounts);
}

}  // namespace space::guest_linux
