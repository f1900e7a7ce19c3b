#pragma once
#include <cstdint>
#include <expected>
#include <optional>
#include <string>

#include "core/identity/route_identity.h"

namespace space::identity {

// A process as the kernel shows it (BR-1). `pidfs_inode` 0: the kernel has no pidfs (before 6.9).
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time_ticks = 0;
  std::uint64_t pidfs_inode = 0;
  std::uint64_t exe_device = 0;
  std::uint64_t exe_inode = 0;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Where the guest's hybrid VSOCK listener is and which kernel object it is (BR-2).
struct TransportIdentity {
  std::string socket_path;        // at most 1024 bytes
  std::uint64_t path_device = 0;  // of the bound socket file
  std::uint64_t path_inode = 0;
  std::uint64_t listener_inode = 0;   // 0: not recorded (evidence: basic)
  std::uint64_t listener_cookie = 0;  // 0: not recorded
  std::uint32_t cid = 0;              // a label, never proof
  friend bool operator==(const TransportIdentity&, const TransportIdentity&) = default;
};

// What a receiver serves, as it persists it (RCV-1, RCV-6). The comparator reads route and attempt
// only.
struct RuntimeRecord {
  RouteIdentity route;
  Attempt attempt{1};
  OwnerId owner;                                 // of the lifecycle operation; ID-5
  OperationId operation;                         // that installed this record
  std::optional<ProcessIdentity> guest_process;  // owner of the listener (VMM or container init)
  std::optional<TransportIdentity> transport;
  std::uint32_t first_public_pid = 0;  // block of kPublicPidBlock pids (P-25)
  std::string runtime_handle;  // opaque to the manager, of the Runtime port; at most 4096 bytes
  friend bool operator==(const RuntimeRecord&, const RuntimeRecord&) = default;
};

inline constexpr std::uint32_t kPublicPidBlock = 16'384;

// Canonical bytes of a record, with a format version first. Decoding refuses what encoding would
// not write.
Bytes encode_record(const RuntimeRecord& record);
std::optional<RuntimeRecord> decode_record(ByteView bytes);

}  // namespace space::identity
