#include "core/identity/runtime_record.h"

#include <limits>

#include "base/check.h"

// Layout, all integers big-endian (u8 flag: 0 or 1, nothing else):
//
//   u8 version = 1
//   route identity (see capability.cc)
//   u32 attempt >= 1
//   u8 length + owner
//   16 operation
//   u8 flag; if 1: u32 pid (1 .. 2^31-1), u64 start time, u64 pidfs inode, u64 exe device, u64 exe
//   inode u8 flag; if 1: u16 length (at most 1024) + socket path, u64 path device, u64 path inode,
//            u64 listener inode, u64 listener cookie, u32 cid
//   u32 first public pid
//   u16 length (at most 4096) + runtime handle

namespace space::identity {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMaxSocketPathBytes = 1024;
constexpr std::size_t kMaxRuntimeHandleBytes = 4096;

std::optional<ProcessIdentity> read_process(ByteReader& in) {
  const auto pid = in.u32();
  ProcessIdentity process;
  process.start_time_ticks = in.u64();
  process.pidfs_inode = in.u64();
  process.exe_device = in.u64();
  process.exe_inode = in.u64();
  if (pid == 0 || pid > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  process.pid = static_cast<std::int32_t>(pid);
  return process;
}

std::optional<TransportIdentity> read_transport(ByteReader& in) {
  TransportIdentity transport;
  transport.socket_path = in.text16();
  transport.path_device = in.u64();
  transport.path_inode = in.u64();
  transport.listener_inode = in.u64();
  transport.listener_cookie = in.u64();
  transport.cid = in.u32();
  if (transport.socket_path.size() > kMaxSocketPathBytes) return std::nullopt;
  return transport;
}

}  // namespace

Bytes encode_record(const RuntimeRecord& record) {
  SPACE_ASSERT(record.attempt.value >= 1);
  SPACE_ASSERT(record.runtime_handle.size() <= kMaxRuntimeHandleBytes);
  ByteWriter out;
  out.u8(kVersion);
  write_route_identity(out, record.route);
  out.u32(record.attempt.value);
  out.text8(record.owner.text());
  out.raw(record.operation.view());
  out.u8(record.guest_process ? 1 : 0);
  if (const auto& process = record.guest_process) {
    SPACE_ASSERT(process->pid >= 1);
    out.u32(static_cast<std::uint32_t>(process->pid));
    out.u64(process->start_time_ticks);
    out.u64(process->pidfs_inode);
    out.u64(process->exe_device);
    out.u64(process->exe_inode);
  }
  out.u8(record.transport ? 1 : 0);
  if (const auto& transport = record.transport) {
    SPACE_ASSERT(transport->socket_path.size() <= kMaxSocketPathBytes);
    out.text16(transport->socket_path);
    out.u64(transport->path_device);
    out.u64(transport->path_inode);
    out.u64(transport->listener_inode);
    out.u64(transport->listener_cookie);
    out.u32(transport->cid);
  }
  out.u32(record.first_public_pid);
  out.text16(record.runtime_handle);
  return out.take();
}

std::optional<RuntimeRecord> decode_record(ByteView bytes) {
  ByteReader in(bytes);
  if (in.u8() != kVersion) return std::nullopt;
  auto route = read_route_identity(in);
  const Attempt attempt{in.u32()};
  auto owner = OwnerId::parse(in.text8());
  const auto operation = OperationId::from(in.raw(OperationId::kBytes));
  if (!route || attempt.value == 0 || !owner || !operation) return std::nullopt;
  RuntimeRecord record{.route = *std::move(route),
                       .attempt = attempt,
                       .owner = *std::move(owner),
                       .operation = *operation,
                       .guest_process = {},
                       .transport = {},
                       .first_public_pid = 0,
                       .runtime_handle = {}};
  const auto has_process = in.u8();
  if (has_process > 1) return std::nullopt;
  if (has_process == 1) {
    record.guest_process = read_process(in);
    if (!record.guest_process) return std::nullopt;
  }
  const auto has_transport = in.u8();
  if (has_transport > 1) return std::nullopt;
  if (has_transport == 1) {
    record.transport = read_transport(in);
    if (!record.transport) return std::nullopt;
  }
  record.first_public_pid = in.u32();
  record.runtime_handle = in.text16();
  if (!in.complete() || record.runtime_handle.size() > kMaxRuntimeHandleBytes) return std::nullopt;
  return record;
}

}  // namespace space::identity
