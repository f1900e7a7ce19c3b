#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ports/guest.h"

namespace space::guest_linux {

struct User {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
  std::string home;
  std::string shell;
};

// The accounts that two files tell of, without the name service switch (a static program has none).
// Lines that are no entries are skipped.
class Accounts {
 public:
  Accounts(std::string_view passwd, std::string_view group);

  // By name; empty: "user" where it exists, else "root". root exists even without an entry.
  GuestResult<User> find(const std::string& name) const;
  // The name of an id, or its number in decimal.
  std::string user_name(uid_t uid) const;
  std::string group_name(gid_t gid) const;

 private:
  std::map<std::string, User, std::less<>> users_;
  std::map<uid_t, std::string> user_names_;
  std::map<gid_t, std::string> group_names_;
};

// What differs when a file was changed or replaced. All zero for none.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  std::int64_t modified_s = 0, modified_ns = 0;
  std::int64_t changed_s = 0, changed_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// The accounts as the two files are at each call; parsed again only when one of them has changed.
class CurrentAccounts {
 public:
  explicit CurrentAccounts(std::string passwd = "/etc/passwd", std::string group = "/etc/group")
      : passwd_(std::move(passwd)), group_(std::move(group)) {}
  std::shared_ptr<const Accounts> get();

 private:
  std::string passwd_;
  std::string group_;
  std::shared_ptr<const Accounts> accounts_;  // null: to be parsed at the next call
  std::pair<FileStamp, FileStamp> parsed_at_;
};

// `path` as an absolute one: relative to the home, "~" and "~/" expanded. Neither links nor ".."
// are resolved; repeated and trailing slashes go.
std::string absolute_path(const std::string& path, const User& user);

// While it lives, this thread's file-system rights are those of the user (file-system uid, gid and
// supplementary groups); afterwards those that the process started with. Not across a suspension,
// not nested: the rights belong to the thread. Nothing else in the process changes them.
class ActingAs {
 public:
  explicit ActingAs(const User& user);
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  ~ActingAs();
  // The kernel took over all of it. If not, do nothing in the user's name.
  bool ok() const { return ok_; }

 private:
  struct Rights;
  static const Rights& own();

  bool other_uid_;
  bool other_gid_;
  bool other_groups_;
  bool ok_;
};

// The failure that an errno stands for.
GuestFailure failure_of(int error, const std::string& what);

}  // namespace space::guest_linux
