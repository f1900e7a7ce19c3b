#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
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

// The accounts of this machine, read from /etc/passwd and /etc/group at construction, without the
// name service switch (a static program has none). Lines that are no entries are skipped.
class Accounts {
 public:
  Accounts();
  // Of given file contents.
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

// `path` as an absolute one: relative to the home, "~" and "~/" expanded. Neither links nor ".."
// are resolved; repeated and trailing slashes go.
std::string absolute_path(const std::string& path, const User& user);

// While it lives, this thread's file-system rights are those of the user (file-system uid, gid and
// supplementary groups). Not across a suspension: the rights belong to the thread.
class ActingAs {
 public:
  explicit ActingAs(const User& user);
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  ~ActingAs();
  // The kernel took over all of it. If not, do nothing in the user's name.
  bool ok() const { return ok_; }

 private:
  std::vector<gid_t> old_groups_;
  uid_t old_uid_;
  gid_t old_gid_;
  bool ok_ = false;
};

// The failure that an errno stands for.
GuestFailure failure_of(int error, const std::string& what);

}  // namespace space::guest_linux
