#include "adapters/runtime_oci/mounts.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/result.h"

namespace space::oci {
namespace {
// Raises every permitted capability: the kernel drops those over files when the fs uid leaves 0.
bool raise_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return false;
  for (auto& half : data) half.effective = half.permitted;
  return ::syscall(SYS_capset, &header, data.data()) == 0;
}

bool set_ids(std::uint32_t id) {
  ::setfsgid(id);
  ::setfsuid(id);
  // Neither call reports failure; asking for an invalid id reads the current one.
  return static_cast<std::uint32_t>(::setfsuid(~0U)) == id &&
         static_cast<std::uint32_t>(::setfsgid(~0U)) == id;
}
}  // namespace

RuntimeResult<void> enter_private_mounts() {
  if (::unshare(CLONE_NEWNS) != 0) return errno_failure("unshare mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return errno_failure("make mounts private");
  }
  return {};
}

RuntimeResult<Fd> make_user_namespace(std::uint32_t first) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_failure("pipe");
  Fd reading(ends[0]);
  const Fd writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return errno_failure("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char done = ::unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';
    if (::write(writing.get(), &done, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  const std::string proc = "/proc/" + std::to_string(child);
  const std::string map = "0 " + std::to_string(first) + " 65536\n";
  const auto make = [&]() -> RuntimeResult<Fd> {
    char done = 'n';
    if (::read(reading.get(), &done, 1) != 1 || done != 'y') {
      return failure(RuntimeError::kUnsupported, "user namespaces cannot be made here");
    }
    for (const char* file : {"/uid_map", "/gid_map"}) {
      if (auto written = write_kernel_file(proc + file, map); !written) {
        return std::unexpected(std::move(written).error());
      }
    }
    Fd ns(::open((proc + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
    if (!ns) return errno_failure("open user namespace");
    return ns;
  };
  auto result = make();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return result;
}

RuntimeResult<Fd> clone_mount(const std::string& path) {
  Fd mount(::open_tree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!mount) return errno_failure("open_tree " + path);
  return mount;
}

RuntimeResult<Fd> mount_ext4(const std::string& device) {
  const Fd context(::fsopen("ext4", FSOPEN_CLOEXEC));
  if (!context) return errno_failure("fsopen ext4");
  const auto set = [&context](const char* key, const char* value) {
    return ::fsconfig(context.get(), value != nullptr ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                      key, value, 0) == 0;
  };
  // noinit_itable: a fresh image stays sparse.
  if (!set("source", device.c_str()) || !set("noinit_itable", nullptr) ||
      ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return errno_failure("mount " + device);
  }
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV));
  if (!mount) return errno_failure("fsmount " + device);
  return mount;
}

RuntimeResult<void> set_attributes(const Fd& mount, std::uint64_t flags, int user_namespace) {
  mount_attr attributes{};
  attributes.attr_set = flags;
  if (user_namespace >= 0) {
    attributes.attr_set |= MOUNT_ATTR_IDMAP;
    attributes.userns_fd = static_cast<std::uint64_t>(user_namespace);
  }
  if (::mount_setattr(mount.get(), "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
    return errno_failure("mount_setattr");
  }
  return {};
}

RuntimeResult<void> attach(const Fd& mount, const std::string& path) {
  if (::move_mount(mount.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return errno_failure("mount on " + path);
  }
  return {};
}

RuntimeResult<void> attach_beneath(const Fd& mount, const Fd& root, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const Fd on(static_cast<int>(::syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
  if (!on) return errno_failure("open " + path + " in the root folder");
  if (::move_mount(mount.get(), "", on.get(), "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
    return errno_failure("mount on " + path);
  }
  return {};
}

ActAs::ActAs(std::uint32_t id) : ok_(set_ids(id) && raise_capabilities()) {}
ActAs::~ActAs() {
  set_ids(0);
  raise_capabilities();
}

}  // namespace space::oci
