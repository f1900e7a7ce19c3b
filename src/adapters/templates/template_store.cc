#include "adapters/templates/template_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

#include "adapters/supervisor/lock_file.h"
#include "base/result.h"

namespace space::templates {
namespace {
namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMaxName = 40;
constexpr std::size_t kHashDigits = 64;
constexpr auto kLockPatience = std::chrono::minutes(30);
constexpr auto kLockPoll = std::chrono::milliseconds(200);
// Names of what is under way; a dot keeps them from being templates.
constexpr std::string_view kBuilding = ".building.";  // half made
constexpr std::string_view kRemoving = ".removing.";  // its users are being counted
constexpr std::string_view kTrash = ".trash.";        // has none

std::unexpected<TemplateFailure> failed(const std::string& what, const std::error_code& error) {
  return failure(TemplateError::kFailed, what + ": " + error.message());
}
std::unexpected<TemplateFailure> errno_failed(const std::string& what) {
  return failed(what, {errno, std::generic_category()});
}

TemplateResult<void> move_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) return failed("rename " + from.string(), error);
  return {};
}

TemplateResult<void> remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return failed("remove " + path.string(), error);
  return {};
}

// Everything written so far on the file system of `folder` reaches the disk.
TemplateResult<void> sync_all(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno_failed("open " + folder.string());
  const bool synced = ::syncfs(descriptor) == 0;
  ::close(descriptor);
  if (!synced) return errno_failed("sync " + folder.string());
  return {};
}

TemplateResult<std::uint64_t> disk_size(const fs::path& folder) {
  constexpr std::uint64_t kStatBlock = 512;
  std::error_code error;
  std::uint64_t size = 0;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    struct stat info{};
    if (::lstat(at->path().c_str(), &info) == 0) {
      size += static_cast<std::uint64_t>(info.st_blocks) * kStatBlock;
    }
  }
  if (error) return failed("read " + folder.string(), error);
  return size;
}

std::string time_text(std::time_t time) {
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string manifest_text(const TemplateInfo& info) {
  return json::serialize(
             json::object{{"format", 1},
                          {"name", info.ref.name},
                          {"hash", info.ref.hash},
                          {"suite", info.suite},
                          {"arch", info.arch},
                          {"packages", json::array(info.packages.begin(), info.packages.end())},
                          {"built_at", info.built_at},
                          {"size_bytes", info.size_bytes}}) +
         "\n";
}

std::optional<TemplateInfo> parse_manifest(const std::string& text, const TemplateRef& ref) {
  try {
    const auto value = json::parse(text);
    const auto string = [&value](const char* key) {
      return json::value_to<std::string>(value.at(key));
    };
    TemplateInfo info{ref, string("suite"),    string("arch"),
                      {},  string("built_at"), value.at("size_bytes").to_number<std::uint64_t>()};
    if (value.at("format").to_number<int>() != 1 || string("name") != ref.name ||
        string("hash") != ref.hash) {
      return std::nullopt;
    }
    info.packages = json::value_to<std::vector<std::string>>(value.at("packages"));
    return info;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// When it was made or asked for last, in nanoseconds; nullopt: it is not there.
std::optional<std::int64_t> age_of(const fs::path& folder) {
  struct stat info{};
  if (::stat((folder / "manifest.json").c_str(), &info) != 0) return std::nullopt;
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

struct Found {
  TemplateRef ref;
  std::int64_t time = 0;
};
// The templates of `folder` by name, the newest of a name first.
TemplateResult<std::vector<Found>> find(const fs::path& folder) {
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    auto ref = TemplateRef::parse(at->path().filename().native());
    const auto time = ref ? age_of(at->path()) : std::nullopt;
    if (time) found.push_back({*std::move(ref), *time});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return failed("read " + folder.string(), error);
  }
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    return std::tie(a.ref.name, b.time, a.ref.hash) < std::tie(b.ref.name, a.time, b.ref.hash);
  });
  return found;
}

TemplateResult<supervisor::LockFile> take_lock(const fs::path& folder,
                                               const std::function<void()>& waiting) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failed("create " + folder.string(), error);
  const auto path = folder / ".lock";
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  for (bool said = false;; said = true) {
    auto lock = supervisor::LockFile::acquire(path);
    if (!lock) return failed(path.string(), lock.error());
    if (*lock) return **std::move(lock);
    if (std::chrono::steady_clock::now() > deadline) {
      return failure(TemplateError::kUnavailable,
                     "another process holds " + path.string() + " for half an hour");
    }
    if (!said) waiting();
    std::this_thread::sleep_for(kLockPoll);
  }
}

}  // namespace

std::unexpected<TemplateFailure> failure(TemplateError error, std::string message) {
  return std::unexpected(TemplateFailure{error, std::move(message)});
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name[0] != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

std::optional<TemplateRef> TemplateRef::parse(std::string_view text) {
  const auto at = text.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  const auto name = text.substr(0, at);
  const auto hash = text.substr(at + 1);
  if (!valid_name(name) || hash.size() != kHashDigits ||
      hash.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return std::nullopt;
  }
  return TemplateRef{std::string(name), std::string(hash)};
}

std::optional<TemplateRef> TemplateStore::newest(std::string_view name) const {
  const auto found = find(folder_);
  if (!found) return std::nullopt;
  for (const auto& [ref, time] : *found) {
    if (ref.name == name) return ref;
  }
  return std::nullopt;
}

bool TemplateStore::has(const TemplateRef& ref) const { return age_of(path(ref)).has_value(); }

TemplateResult<std::vector<TemplateInfo>> TemplateStore::list() const {
  SPACE_TRY(const auto found, find(folder_));
  std::vector<TemplateInfo> list;
  for (const auto& [ref, time] : found) {
    const auto file = path(ref) / "manifest.json";
    auto info = parse_manifest(supervisor::read_small_file(file).value_or(""), ref);
    if (!info) return failure(TemplateError::kFailed, file.string() + " is damaged or unreadable");
    list.push_back(*std::move(info));
  }
  return list;
}

bool TemplateStore::renew(const TemplateRef& ref) const {
  return ::utimensat(AT_FDCWD, (path(ref) / "manifest.json").c_str(), nullptr, 0) == 0;
}

TemplateResult<void> TemplateStore::sweep() const {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  if (error) return failed("read " + folder_.string(), error);
  for (const auto& entry : found) {
    const auto name = entry.filename().string();
    TemplateResult<void> done;
    if (name.starts_with(kBuilding) || name.starts_with(kTrash)) {
      done = remove_folder(entry);
    } else if (name.starts_with(kRemoving)) {
      // Whether somebody uses it is not known: it is there again.
      done = move_folder(entry, folder_ / name.substr(kRemoving.size()));
    }
    if (!done) return done;
  }
  return {};
}

TemplateResult<void> TemplateStore::publish(const fs::path& work, TemplateInfo info) const {
  SPACE_TRY(info.size_bytes, disk_size(work / "root"));
  info.built_at = time_text(std::time(nullptr));
  if (const auto error =
          supervisor::write_atomically(work / "manifest.json", manifest_text(info), 0644)) {
    return failed("write the manifest", error);
  }
  if (auto synced = sync_all(work); !synced) return synced;
  if (auto moved = move_folder(work, path(info.ref)); !moved) return moved;
  return sync_all(folder_);
}

TemplateResult<bool> TemplateStore::build(TemplateInfo info, const Maker& make,
                                          const std::function<void()>& waiting) {
  if (renew(info.ref)) return false;
  SPACE_TRY(const auto lock, take_lock(folder_, waiting));
  if (auto swept = sweep(); !swept) return std::unexpected(std::move(swept).error());
  if (renew(info.ref)) return false;
  const auto work = folder_ / (std::string(kBuilding) + info.ref.name);
  if (::mkdir(work.c_str(), 0700) != 0) return errno_failed("mkdir " + work.string());
  auto made = make(work);
  if (made) made = publish(work, std::move(info));
  if (made) return true;
  // The first failure is the one to report; what is left is swept later.
  static_cast<void>(remove_folder(work));
  return std::unexpected(std::move(made).error());
}

TemplateResult<void> TemplateStore::remove(const TemplateRef& ref, const Users& users) {
  SPACE_TRY(const auto lock, take_lock(folder_, [] {}));
  if (auto swept = sweep(); !swept) return swept;
  if (!has(ref)) return failure(TemplateError::kNoSuchTemplate, "no template " + ref.text());
  const auto in_use = [&]() -> TemplateResult<void> {
    const auto list = users(ref);
    if (list.empty()) return {};
    std::string text = ref.text() + " is in use by " + list.front();
    for (std::size_t i = 1; i < std::min<std::size_t>(list.size(), 10); ++i) text += ", " + list[i];
    if (list.size() > 10) text += " and " + std::to_string(list.size() - 10) + " more";
    return failure(TemplateError::kInUse, std::move(text));
  };
  if (auto used = in_use(); !used) return used;
  const auto removing = folder_ / (std::string(kRemoving) + ref.text());
  const auto trash = folder_ / (std::string(kTrash) + ref.text());
  if (auto moved = move_folder(path(ref), removing); !moved) return moved;
  // A start that found it before writes down its use before it opens it.
  if (auto used = in_use(); !used) {
    if (auto back = move_folder(removing, path(ref)); !back) return back;
    return used;
  }
  if (auto moved = move_folder(removing, trash); !moved) return moved;
  return remove_folder(trash);
}

}  // namespace space::templates
