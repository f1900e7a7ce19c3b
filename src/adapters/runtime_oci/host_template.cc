#include "adapters/runtime_oci/host_template.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/result.h"

namespace space::oci {
namespace {
namespace fs = std::filesystem;

// Raised with any change to what is generated here.
constexpr std::string_view kLayout = "1";

struct Entry {
  const char* path;
  std::uint32_t mode;
};

constexpr std::array kFolders = {
    Entry{"usr", 0755},       Entry{"etc", 0755},           Entry{"etc/ssl", 0755},
    Entry{"etc/pam.d", 0755}, Entry{"etc/sudoers.d", 0755}, Entry{"home", 0755},
    Entry{"home/user", 0755}, Entry{"root", 0700},          Entry{"tmp", 01777},
    Entry{"var", 0755},       Entry{"var/cache", 0755},     Entry{"var/lib", 0755},
    Entry{"var/log", 0755},   Entry{"var/mail", 0755},      Entry{"var/spool", 0755},
    Entry{"var/tmp", 01777},  Entry{"run", 0755},           Entry{"run/lock", 01777},
    Entry{"dev", 0755},       Entry{"proc", 0755},          Entry{"sys", 0755},
    Entry{"mnt", 0755},       Entry{"media", 0755},         Entry{"opt", 0755},
    Entry{"srv", 0755},       Entry{".space", 0755},
};

struct Text {
  const char* path;
  std::uint32_t mode;
  const char* text;
};

constexpr std::array kFiles = {
    Text{".space/spaced-guest", 0755, ""},
    Text{"etc/passwd", 0644,
         "root:x:0:0:root:/root:/bin/bash\n"
         "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
         "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
         "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
         "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
         "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
         "user:x:1000:1000::/home/user:/bin/bash\n"},
    Text{
        "etc/group", 0644,
        "root:x:0:\ndaemon:x:1:\nbin:x:2:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\nshadow:x:42:\n"
        "www-data:x:33:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nsudo:x:27:user\nnogroup:x:65534:\n"
        "user:x:1000:\n"},
    Text{"etc/shadow", 0640, "root:*:19700:0:99999:7:::\nuser:*:19700:0:99999:7:::\n"},
    Text{"etc/gshadow", 0640, "root:*::\nsudo:*::user\nuser:!::\n"},
    Text{"etc/hosts", 0644, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"},
    Text{"etc/hostname", 0644, "sandbox\n"},
    Text{"etc/host.conf", 0644, "multi on\n"},
    Text{"etc/nsswitch.conf", 0644,
         "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
         "protocols: files\nservices: files\n"},
    Text{"etc/resolv.conf", 0644, "options timeout:1 attempts:1\n"},
    Text{"etc/shells", 0644, "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"},
    Text{"etc/profile", 0644,
         "if [ \"$(id -u)\" -eq 0 ]; then\n"
         "  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
         "else\n"
         "  PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games\n"
         "fi\n"
         "export PATH\n"},
    Text{"etc/fstab", 0644, ""},
    Text{"etc/environment", 0644, ""},
    Text{"etc/sudoers", 0440,
         "Defaults env_reset\n"
         "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
         "root ALL=(ALL:ALL) ALL\n"
         "user ALL=(ALL:ALL) NOPASSWD:ALL\n"},
    Text{"etc/pam.d/sudo", 0644,
         "auth required pam_permit.so\naccount required pam_permit.so\n"
         "session required pam_permit.so\n"},
    Text{"etc/pam.d/su", 0644,
         "auth sufficient pam_rootok.so\nauth required pam_unix.so\n"
         "account required pam_permit.so\nsession required pam_permit.so\n"},
    Text{"etc/pam.d/other", 0644,
         "auth required pam_deny.so\naccount required pam_deny.so\n"
         "password required pam_deny.so\nsession required pam_deny.so\n"},
};

// Of the host's /etc: what programs in /usr need and holds no secret. Links stay links.
constexpr std::array kCopied = {
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "emacs",
    "ethertypes",
    "fonts",
    "gai.conf",
    "inputrc",
    "java-17-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "login.defs",
    "magic",
    "mailcap",
    "mime.types",
    "networks",
    "nodejs",
    "os-release",
    "perl",
    "protocols",
    "python3",
    "python3.11",
    "rpc",
    "services",
    "skel",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "xattr.conf",
};
// Root folders that are links into /usr on a merged-/usr system.
constexpr std::array kRootLinks = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

// FNV-1a, to name a folder by what it holds; not a defence.
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint8_t>(c));
    add(std::uint8_t{0});
  }
  void add_number(std::uint64_t number) { add(std::to_string(number)); }
  std::string text() const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(value_ >> shift) & 15];
    return out;
  }

 private:
  void add(std::uint8_t byte) {
    value_ ^= byte;
    value_ *= 0x100000001b3;
  }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

// Names the copy by the layout and by size and time of each source: a package that changes one of
// them leads to a new folder.
std::string source_hash() {
  Hash hash;
  hash.add(kLayout);
  for (const char* name : kCopied) {
    struct stat info{};
    if (::lstat((std::string("/etc/") + name).c_str(), &info) != 0) continue;
    hash.add(name);
    hash.add_number(static_cast<std::uint64_t>(info.st_size));
    hash.add_number(static_cast<std::uint64_t>(info.st_mtim.tv_sec));
    hash.add_number(static_cast<std::uint64_t>(info.st_mtim.tv_nsec));
  }
  return hash.text();
}

RuntimeResult<void> make_root(const std::string& root) {
  for (const auto& folder : kFolders) {
    if (auto made = make_folder(root + "/" + folder.path, folder.mode); !made) return made;
  }
  for (const auto& file : kFiles) {
    if (auto made = write_file(root + "/" + file.path, file.text, file.mode); !made) return made;
  }
  std::error_code error;
  const auto link = [&](const std::string& target, const char* name) {
    if (!error) fs::create_symlink(target, root + "/" + name, error);
  };
  for (const char* name : kRootLinks) {
    const fs::path host = std::string("/") + name;
    if (std::error_code ignored; fs::is_symlink(host, ignored)) {
      link(fs::read_symlink(host, error).string(), name);
    }
  }
  link("/run", "var/run");
  link("/run/lock", "var/lock");
  link("/proc/self/mounts", "etc/mtab");
  for (const char* name : kCopied) {
    const fs::path host = std::string("/etc/") + name;
    if (error || !exists(host)) continue;
    fs::copy(host, root + "/etc/" + name,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  }
  if (error) return failure(RuntimeError::kFailed, "host template: " + error.message());
  const std::string home = root + "/home/user";
  const std::string shadow = root + "/etc/shadow";
  if (::chown(home.c_str(), kSandboxUser, kSandboxUser) != 0 ||
      ::chown(shadow.c_str(), 0, 42) != 0) {
    return errno_failure("host template");
  }
  for (const char* name : {".bashrc", ".profile", ".bash_logout"}) {
    const std::string copy = home + "/" + name;
    fs::copy_file(std::string("/etc/skel/") + name, copy, error);
    if (!error && ::chown(copy.c_str(), kSandboxUser, kSandboxUser) != 0) {
      return errno_failure("host template");
    }
    error.clear();  // a host without skeleton files is fine
  }
  return {};
}
}  // namespace

RuntimeResult<std::string> host_template(const std::string& templates_folder) {
  const std::string folder = templates_folder + "/host@" + source_hash();
  std::string root = folder + "/root";
  if (exists(root)) return root;
  const std::string next = templates_folder + "/.host." + std::to_string(::getpid());
  const auto make = [&]() -> RuntimeResult<void> {
    if (auto removed = remove_tree(next); !removed) return removed;
    if (auto made = make_folder(next, 0700); !made) return made;
    if (auto made = make_folder(next + "/root", 0755); !made) return made;
    return make_root(next + "/root");
  };
  ::umask(022);
  auto made = make();
  // Another worker may have been faster: its copy is as good.
  if (made && ::rename(next.c_str(), folder.c_str()) != 0 && !exists(root)) {
    made = errno_failure("rename " + next);
  }
  static_cast<void>(remove_tree(next));
  if (!made) return std::unexpected(std::move(made).error());
  return root;
}

}  // namespace space::oci
