#pragma once
#include <cstdint>
#include <string>

#include "adapters/runtime_oci/sys.h"

// Mounts of space-stage. All are made in its private mount namespace: the container inherits them
// and they end with it, whatever becomes of the manager.
namespace space::oci {

// A fresh mount namespace in which no change reaches the host.
RuntimeResult<void> enter_private_mounts();

// A user namespace that maps 0..65535 to host ids `first`..; only for idmapped mounts.
RuntimeResult<Fd> make_user_namespace(std::uint32_t first);

// A detached mount of file or folder `path` alone (not what is mounted below it).
RuntimeResult<Fd> clone_mount(const std::string& path);
// A detached mount of the ext4 file system on `device`.
RuntimeResult<Fd> mount_ext4(const std::string& device);

// Sets MOUNT_ATTR_ flags on a detached mount and, with `user_namespace` >= 0, maps its ids.
RuntimeResult<void> set_attributes(const Fd& mount, std::uint64_t flags, int user_namespace = -1);
RuntimeResult<void> attach(const Fd& mount, const std::string& path);
// Attaches on `path` below the folder `root`; refused when it leads through a link or out of
// `root`.
RuntimeResult<void> attach_beneath(const Fd& mount, const Fd& root, const std::string& path);

// Acts on files as host id `id` (user and group) with all capabilities kept: on a mount that maps
// ids this makes files that are owned by the sandbox's root. Until destroyed.
class ActAs {
 public:
  explicit ActAs(std::uint32_t id);
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;
  ~ActAs();
  bool ok() const { return ok_; }

 private:
  bool ok_ = false;
};

}  // namespace space::oci
