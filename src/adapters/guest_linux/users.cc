#include "adapters/guest_linux/users.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace space::guest_linux {

using wire::hop::Outcome;

namespace {

constexpr std::size_t kMaxAccountsBytes = 1 << 20;
// Two changes of a file within one tick of the kernel's clock leave one stamp.
constexpr time_t kStampSettles = 2;  // seconds

std::string read_small_file(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[4096];
  while (text.size() < kMaxAccountsBytes) {
    const auto count = ::read(fd, buffer, sizeof buffer);
    if (count <= 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(fd);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<std::uint32_t> parse_id(std::string_view text) {
  const auto number = parse_decimal(text);
  if (!number || *number >= UINT32_MAX) return std::nullopt;  // -1 means "unchanged" to the kernel
  return static_cast<std::uint32_t>(*number);
}

FileStamp stamp_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev,          info.st_ino,         info.st_size,        info.st_mtim.tv_sec,
          info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

// setgroups of this thread alone, as setfsuid is.
bool set_thread_groups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// Of this thread, for files: an invalid id changes nothing and tells the present one.
uid_t effective_uid() { return static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))); }
gid_t effective_gid() { return static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))); }

}  // namespace

Accounts::Accounts(std::string_view passwd, std::string_view group) {
  for (const auto line : split(passwd, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() != 7 || fields[0].empty()) continue;
    const auto uid = parse_id(fields[2]);
    const auto gid = parse_id(fields[3]);
    if (!uid || !gid) continue;
    User user{std::string(fields[0]), *uid, *gid, {}, std::string(fields[5]),
              std::string(fields[6])};
    if (!user.home.starts_with('/')) user.home = "/";
    if (user.shell.empty()) user.shell = "/bin/sh";
    user_names_.emplace(*uid, user.name);
    users_.emplace(user.name, std::move(user));
  }
  users_.emplace("root", User{"root", 0, 0, {}, "/root", "/bin/sh"});
  for (const auto line : split(group, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() != 4 || fields[0].empty()) continue;
    const auto gid = parse_id(fields[2]);
    if (!gid) continue;
    group_names_.emplace(*gid, fields[0]);
    for (const auto member : split(fields[3], ',')) {
      const auto user = users_.find(member);
      if (user != users_.end()) user->second.groups.push_back(*gid);
    }
  }
}

GuestResult<User> Accounts::find(const std::string& name) const {
  auto at = users_.find(name.empty() ? "user" : name);
  if (at == users_.end() && name.empty()) at = users_.find("root");
  if (at == users_.end()) return guest_failure(Outcome::kInvalidArgument, "no such user: " + name);
  return at->second;
}

std::string Accounts::user_name(uid_t uid) const {
  const auto at = user_names_.find(uid);
  return at == user_names_.end() ? std::to_string(uid) : at->second;
}

std::string Accounts::group_name(gid_t gid) const {
  const auto at = group_names_.find(gid);
  return at == group_names_.end() ? std::to_string(gid) : at->second;
}

std::shared_ptr<const Accounts> CurrentAccounts::get() {
  const std::pair stamps{stamp_of(passwd_), stamp_of(group_)};
  if (accounts_ && stamps == parsed_at_) return accounts_;
  auto parsed = std::make_shared<const Accounts>(read_small_file(passwd_), read_small_file(group_));
  const auto newest = std::max(stamps.first.changed_s, stamps.second.changed_s);
  accounts_ = ::time(nullptr) - newest >= kStampSettles ? parsed : nullptr;
  parsed_at_ = stamps;
  return parsed;
}

std::string absolute_path(const std::string& path, const User& user) {
  std::string whole;
  if (path == "~" || path.starts_with("~/")) {
    whole = user.home + path.substr(1);
  } else if (path.starts_with('/')) {
    whole = path;
  } else {
    whole = user.home + "/" + path;
  }
  std::string result;
  for (const char c : whole) {
    if (c != '/' || result.empty() || result.back() != '/') result += c;
  }
  if (result.size() > 1 && result.back() == '/') result.pop_back();
  return result;
}

struct ActingAs::Rights {
  uid_t uid;
  gid_t gid;
  std::vector<gid_t> groups;
};

// What the process started with, as the kernel tells it; a thread that cannot tell acts for nobody.
const ActingAs::Rights& ActingAs::own() {
  static const Rights rights = [] {
    Rights started{effective_uid(), effective_gid(), {}};
    started.groups.resize(NGROUPS_MAX);
    const int count = ::getgroups(NGROUPS_MAX, started.groups.data());
    SPACE_ASSERT(count >= 0);
    started.groups.resize(static_cast<std::size_t>(count));
    return started;
  }();
  return rights;
}

ActingAs::ActingAs(const User& user)
    : other_uid_(user.uid != own().uid),
      other_gid_(user.gid != own().gid),
      other_groups_(user.groups != own().groups) {
  // Groups and gid first: they need the privileges that giving up the uid takes away.
  ok_ = !other_groups_ || set_thread_groups(user.groups);
  if (other_gid_) ::setfsgid(user.gid);
  if (other_uid_) ::setfsuid(user.uid);
  ok_ = ok_ && (!other_uid_ || effective_uid() == user.uid) &&
        (!other_gid_ || effective_gid() == user.gid);
}

ActingAs::~ActingAs() {
  const int error = errno;
  if (other_uid_) ::setfsuid(own().uid);
  if (other_gid_) ::setfsgid(own().gid);
  if (other_groups_) set_thread_groups(own().groups);
  errno = error;
}

GuestFailure failure_of(int error, const std::string& what) {
  Outcome outcome = Outcome::kInternal;
  switch (error) {
    case ENOENT:
      outcome = Outcome::kNotFound;
      break;
    case EISDIR:
      outcome = Outcome::kIsDirectory;
      break;
    case ENOTDIR:
      outcome = Outcome::kNotDirectory;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      outcome = Outcome::kPermissionDenied;
      break;
    case ENOSPC:
    case EDQUOT:
      outcome = Outcome::kNoSpace;
      break;
    case EEXIST:
      outcome = Outcome::kAlreadyExists;
      break;
    case EBUSY:
    case ENOTEMPTY:
    case ETXTBSY:
    case EXDEV:
      outcome = Outcome::kConflict;
      break;
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOEXEC:
    case E2BIG:
    case ENXIO:
      outcome = Outcome::kInvalidArgument;
      break;
    case EFBIG:
      outcome = Outcome::kTooLarge;
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
      outcome = Outcome::kLimitReached;
      break;
    default:  // errno is open
      break;
  }
  const char* text = ::strerrordesc_np(error);
  return {outcome, what + ": " + (text != nullptr ? text : "error " + std::to_string(error))};
}

}  // namespace space::guest_linux
