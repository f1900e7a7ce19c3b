#pragma once
#include <cstdint>
#include <string>

#include "adapters/runtime_oci/sys.h"

// Writable layers: sparse ext4 images of a fixed size.
namespace space::oci {

inline constexpr std::uint64_t kMinDiskBytes = 16U << 20;

// The empty image of this size under `templates_folder`, made once. Sizes round up to a MiB.
RuntimeResult<std::string> empty_image(const std::string& templates_folder, std::uint64_t bytes);

// Copies `from` to the new file `to`, holes kept; shares blocks where the file system can.
RuntimeResult<void> copy_sparse(const std::string& from, const std::string& to);

// An image names the template it lies over in its first 1024 bytes, which ext4 leaves alone: so the
// two stay together wherever a copy goes. At most 200 bytes, none of them a line feed.
RuntimeResult<void> mark_template(const std::string& image, const std::string& name);
// Empty: not marked.
RuntimeResult<std::string> marked_template(const std::string& image);

// Attaches `image` to a free loop device that detaches itself after its last unmount. Keep the
// descriptor until the mount is made.
struct LoopDevice {
  Fd fd;
  std::string path;
};
RuntimeResult<LoopDevice> attach_loop(const std::string& image);
// Completes when no loop device uses `image` any more.
RuntimeResult<void> wait_loop_gone(const std::string& image, std::int64_t deadline_ms);

}  // namespace space::oci
