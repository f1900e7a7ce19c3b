#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/identity/runtime_record.h"
#include "core/wire/hop.h"

// The typed records of each operation (P-22): the metadata of OPEN and the result of END, one of
// each per operation. A list or record above kMaxMetadataBytes travels as DATA of the stream
// instead.
namespace space::wire {

// ---- files. Paths are absolute or relative to the user's home; at most 4096 bytes, no NUL. ----
inline constexpr std::size_t kMaxPathBytes = 4096;

enum class FileType : std::uint8_t { kFile = 1, kDirectory = 2, kSymlink = 3, kOther = 4 };
constexpr bool is_known(FileType t) { return t >= FileType::kFile && t <= FileType::kOther; }

struct FileEntry {
  std::string name;
  std::string path;
  FileType type = FileType::kFile;
  std::uint64_t size = 0;
  std::uint32_t mode = 0;  // permission bits
  std::string owner;
  std::string group;
  WallTime modified;
  std::optional<std::string> symlink_target;
  static void fields(auto& r, auto& f) {
    f(r.name, r.path, r.type, r.size, r.mode, r.owner, r.group, r.modified, r.symlink_target);
  }
};
struct FileReadRequest {  // -> DATA...; END result: FileReadResult
  std::string path;
  std::string user;  // whose rights apply; empty: "user" where it exists, else "root"
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  static void fields(auto& r, auto& f) { f(r.path, r.user, r.offset, r.length); }
};
struct FileReadResult {
  std::uint64_t size = 0;  // of the file when it was opened
  static void fields(auto& r, auto& f) { f(r.size); }
};
// DATA... then END of the opener -> END result: FileEntry. Visible only whole: temporary file and
// rename. A stream that ends otherwise leaves the old content.
struct FileWriteRequest {
  std::string path;
  std::string user;
  std::optional<std::uint32_t> mode;
  std::optional<std::uint64_t> size;  // announced; any other number of bytes refuses the write
  static void fields(auto& r, auto& f) { f(r.path, r.user, r.mode, r.size); }
};
struct FileStatRequest {  // -> FileEntry
  std::string path;
  std::string user;
  static void fields(auto& r, auto& f) { f(r.path, r.user); }
};
struct FileListRequest {  // -> DATA: FileListResult
  std::string path;
  std::string user;
  std::uint32_t depth = 1;
  static void fields(auto& r, auto& f) { f(r.path, r.user, r.depth); }
};
struct FileListResult {
  std::vector<FileEntry> entries;
  bool truncated = false;  // more entries than fit kMaxRecordBytes
  static void fields(auto& r, auto& f) { f(r.entries, r.truncated); }
};
struct FileRemoveRequest {  // recursive; -> Nothing
  std::string path;
  std::string user;
  static void fields(auto& r, auto& f) { f(r.path, r.user); }
};
struct FileMakeDirRequest {  // parents too; -> FileEntry
  std::string path;
  std::string user;
  static void fields(auto& r, auto& f) { f(r.path, r.user); }
};
// Renames a file, a link or a directory; missing parents of the destination are made, and a file
// there is replaced. -> FileEntry
struct FileMoveRequest {
  std::string source;
  std::string destination;
  std::string user;
  static void fields(auto& r, auto& f) { f(r.source, r.destination, r.user); }
};
struct Nothing {
  static void fields(auto&, auto&) {}
};

// ---- processes ----
struct ProcessSpec {
  std::string command;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> envs;
  std::string cwd;  // empty: the user's home
  std::string user;
  std::string tag;
  bool stdin_open = false;  // false: the process reads end-of-file at once (C066)
  static void fields(auto& r, auto& f) {
    f(r.command, r.arguments, r.envs, r.cwd, r.user, r.tag, r.stdin_open);
  }
};
// A stream: the guest sends ProcessEvents, each as u32 length + record, inside DATA; the opener's
// DATA is stdin and its END closes stdin. END of the guest comes after the exit event. Cancelling
// the stream does not end the process.
struct ProcessStartRequest {
  ProcessSpec spec;
  std::uint32_t timeout_ms = 0;  // kills the whole process tree; 0 = none
  static void fields(auto& r, auto& f) { f(r.spec, r.timeout_ms); }
};
struct ProcessStarted {
  std::uint32_t pid = 0;  // public pid (P-25)
  static void fields(auto& r, auto& f) { f(r.pid); }
};
enum class OutputChannel : std::uint8_t { kStdout = 1, kStderr = 2 };
constexpr bool is_known(OutputChannel c) {
  return c == OutputChannel::kStdout || c == OutputChannel::kStderr;
}
struct ProcessOutput {
  OutputChannel channel = OutputChannel::kStdout;
  Bytes bytes;  // at most 32 KiB
  static void fields(auto& r, auto& f) { f(r.channel, r.bytes); }
};
struct ProcessExited {
  std::int32_t exit_code = 0;  // n, or 128 + signal (C065)
  std::int32_t signal = 0;     // 0: exited by itself
  bool core_dumped = false;
  bool out_of_memory = false;
  bool timed_out = false;
  static void fields(auto& r, auto& f) {
    f(r.exit_code, r.signal, r.core_dumped, r.out_of_memory, r.timed_out);
  }
};
struct ProcessEvent {
  std::variant<ProcessStarted, ProcessOutput, ProcessExited> event;
  static void fields(auto& r, auto& f) { f(r.event); }
};
struct ProcessListRequest {  // -> DATA: ProcessListResult
  static void fields(auto&, auto&) {}
};
struct ProcessInfo {
  std::uint32_t pid = 0;
  ProcessSpec spec;
  static void fields(auto& r, auto& f) { f(r.pid, r.spec); }
};
struct ProcessListResult {
  std::vector<ProcessInfo> processes;
  static void fields(auto& r, auto& f) { f(r.processes); }
};
struct ProcessSignalRequest {  // -> Nothing; kNotFound for an unknown pid
  std::uint32_t pid = 0;
  std::int32_t signal = 0;  // 1..31
  static void fields(auto& r, auto& f) { f(r.pid, r.signal); }
};
// Upload: the opener's DATA goes to the stdin of a running process; -> ProcessInputResult once
// written.
struct ProcessInputRequest {
  std::uint32_t pid = 0;
  bool close_after = false;  // then end-of-file
  static void fields(auto& r, auto& f) { f(r.pid, r.close_after); }
};
struct ProcessInputResult {
  std::uint64_t accepted = 0;
  static void fields(auto& r, auto& f) { f(r.accepted); }
};

// ---- platform: node-api -> control plane. All but SessionOpen name a session. ----
// -> SessionOpenResult; kUnauthenticated for an unknown or revoked API key, and kNotFound, like an
// unknown sandbox (C023), for an access token of no sandbox or of one that is being killed or gone.
struct SessionOpenRequest {
  // A team's API key, or the access token of one sandbox (SandboxInfo::access_token). At most 256
  // bytes; only its hash is stored or logged.
  std::string api_key;
  static void fields(auto& r, auto& f) { f(r.api_key); }
};
struct SessionOpenResult {
  identity::SessionId session;
  identity::TeamId team;
  WallTime expires_at;
  // Set for an access token: the session may resolve and mint for this sandbox alone. Any other
  // sandbox is kNotFound to it, any other operation kPermissionDenied. It ends when a kill begins.
  std::optional<identity::SandboxId> sandbox;
  static void fields(auto& r, auto& f) { f(r.session, r.team, r.expires_at, r.sandbox); }
};

enum class SandboxState : std::uint8_t {
  kCreating = 1,
  kRunning,
  kPausing,
  kPaused,
  kResuming,
  kMoving,
  kKilling,
  kKilled,
  kFailed,
  kLost,
};
constexpr bool is_known(SandboxState s) {
  return s >= SandboxState::kCreating && s <= SandboxState::kLost;
}
std::string_view to_string(SandboxState state);

// What happens when the sandbox's time is over. A pause that fails gives it 30 s more and is tried
// again then; a sandbox that is to be paused is never killed for its time, but one that never
// served.
enum class TimeoutAction : std::uint8_t { kKill = 1, kPause = 2 };
constexpr bool is_known(TimeoutAction a) {
  return a == TimeoutAction::kKill || a == TimeoutAction::kPause;
}

struct SandboxInfo {
  identity::SandboxId sandbox;
  SandboxState state = SandboxState::kCreating;
  std::string template_name;
  std::map<std::string, std::string> metadata;
  WallTime started_at;  // when its creation began
  WallTime ends_at;
  std::uint32_t cpu_millis = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  identity::Generation generation;           // of the newest execution
  std::optional<identity::WorkerId> worker;  // where it runs or is parked
  std::string state_reason;                  // why failed or lost; empty otherwise
  TimeoutAction on_timeout = TimeoutAction::kKill;
  // A credential for the work inside this one sandbox; empty in lists. Never logged.
  std::string access_token;
  static void fields(auto& r, auto& f) {
    f(r.sandbox, r.state, r.template_name, r.metadata, r.started_at, r.ends_at, r.cpu_millis,
      r.memory_bytes, r.disk_bytes, r.generation, r.worker, r.state_reason, r.on_timeout,
      r.access_token);
  }
};
struct SandboxCreateRequest {  // -> SandboxInfo, when it serves
  identity::SessionId session;
  std::string template_name;
  std::uint32_t timeout_s = 300;  // 1..86400
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> envs;
  std::optional<identity::WorkerId> worker;  // placement wish
  std::uint32_t cpu_millis = 0;              // 0: the default
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  TimeoutAction on_timeout = TimeoutAction::kKill;
  static void fields(auto& r, auto& f) {
    f(r.session, r.template_name, r.timeout_s, r.metadata, r.envs, r.worker, r.cpu_millis,
      r.memory_bytes, r.disk_bytes, r.on_timeout);
  }
};
// The team's sandboxes that match all that is given, ordered by start, then id; one that is there
// all the time is shown exactly once, whatever comes and goes meanwhile. -> DATA:
// SandboxListResult. A page may hold fewer than `limit`, even none, and yet not be the last: only
// an empty next_cursor says so. kInvalidArgument for a cursor that is not one of ours for this
// filter (C110).
struct SandboxListRequest {
  identity::SessionId session;
  std::vector<SandboxState> states;             // empty: any; killed ones are never listed
  std::map<std::string, std::string> metadata;  // all of these pairs
  std::string template_name;                    // empty: any
  std::optional<WallTime> started_after;
  bool newest_first = false;
  std::uint32_t limit = 0;  // 1..100; 0: what one answer takes
  std::string cursor;       // next_cursor of the page before; empty: the first page
  static void fields(auto& r, auto& f) {
    f(r.session, r.states, r.metadata, r.template_name, r.started_after, r.newest_first, r.limit,
      r.cursor);
  }
};
struct SandboxListResult {
  std::vector<SandboxInfo> sandboxes;
  std::string next_cursor;          // empty: the last page
  std::uint32_t total_running = 0;  // of the team, whatever the filter
  static void fields(auto& r, auto& f) { f(r.sandboxes, r.next_cursor, r.total_running); }
};
struct SandboxRequest {  // get, kill -> SandboxInfo
  identity::SessionId session;
  identity::SandboxId sandbox;
  static void fields(auto& r, auto& f) { f(r.session, r.sandbox); }
};
struct SandboxTimeoutRequest {  // -> SandboxInfo; absolute, from now
  identity::SessionId session;
  identity::SandboxId sandbox;
  std::uint32_t timeout_s = 300;
  bool only_extend = false;  // a later deadline stays (C091)
  static void fields(auto& r, auto& f) { f(r.session, r.sandbox, r.timeout_s, r.only_extend); }
};
struct SandboxPauseRequest {  // -> SandboxInfo; kConflict when it is paused already
  identity::SessionId session;
  identity::SandboxId sandbox;
  static void fields(auto& r, auto& f) { f(r.session, r.sandbox); }
};
// -> SandboxResumeResult. A running sandbox stays as it is and its deadline is only ever extended
// (C091); absent `timeout_s` keeps it. A paused one gets `timeout_s`, absent: the default.
struct SandboxResumeRequest {
  identity::SessionId session;
  identity::SandboxId sandbox;
  std::optional<std::uint32_t> timeout_s;
  std::optional<identity::WorkerId> worker;  // absent: where it is parked
  static void fields(auto& r, auto& f) { f(r.session, r.sandbox, r.timeout_s, r.worker); }
};
struct SandboxResumeResult {
  SandboxInfo info;
  bool resumed = false;  // false: it was running already
  static void fields(auto& r, auto& f) { f(r.info, r.resumed); }
};
// Pause, then resume on another worker, as one operation; a paused one only resumes. It keeps what
// is left of its life; one that was paused at its end gets the default.
struct SandboxMoveRequest {
  identity::SessionId session;
  identity::SandboxId sandbox;
  std::optional<identity::WorkerId> worker;  // absent: any other worker
  static void fields(auto& r, auto& f) { f(r.session, r.sandbox, r.worker); }
};
struct InstalledAt {
  identity::WorkerId worker;
  bool reachable = false;
  std::optional<identity::RouteIdentity> route;  // what this receiver has installed for the sandbox
  std::uint32_t attempt = 0;
  std::uint64_t epoch = 0;
  std::uint64_t floor = 0;
  std::uint32_t leases = 0;
  static void fields(auto& r, auto& f) {
    f(r.worker, r.reachable, r.route, r.attempt, r.epoch, r.floor, r.leases);
  }
};
struct SandboxRouteResult {                         // of kSandboxRoute (request: SandboxRequest)
  std::optional<identity::RouteIdentity> selected;  // what the control plane selects now
  std::uint32_t attempt = 0;
  std::string endpoint;
  std::vector<InstalledAt> receivers;
  static void fields(auto& r, auto& f) { f(r.selected, r.attempt, r.endpoint, r.receivers); }
};
// The selected execution of a sandbox: no authority in it (P-17). Fails with kNotFound (no such
// sandbox of this team), kConflict (paused; message "paused"), kUnavailable (in transition, or
// lost).
struct RouteResolveRequest {
  identity::SessionId session;
  identity::SandboxId sandbox;
  static void fields(auto& r, auto& f) { f(r.session, r.sandbox); }
};
struct RouteResolveResult {
  identity::RouteIdentity route;
  std::uint32_t attempt = 1;
  std::string endpoint;  // of the worker's hop listener
  identity::BootNonce worker_boot;
  static void fields(auto& r, auto& f) { f(r.route, r.attempt, r.endpoint, r.worker_boot); }
};
// Fails with kConflict when `route` is not the current one any more: resolve again.
struct CapabilityMintRequest {  // -> CapabilityMintResult
  identity::SessionId session;
  identity::RouteIdentity route;
  std::uint32_t attempt = 1;
  identity::Purpose purpose = identity::Purpose::kControl;
  identity::AccessSet access;
  std::optional<std::uint16_t> port;
  std::optional<identity::PortProtocol> protocol;
  static void fields(auto& r, auto& f) {
    f(r.session, r.route, r.attempt, r.purpose, r.access, r.port, r.protocol);
  }
};
struct CapabilityMintResult {
  Bytes sealed;
  WallTime expires_at;
  static void fields(auto& r, auto& f) { f(r.sealed, r.expires_at); }
};
struct WorkerInfo {
  identity::WorkerId worker;
  bool reachable = false;
  std::string reason;  // why not
  std::uint32_t sandboxes = 0;
  std::uint64_t bundle_version = 0;  // installed there
  bool clock_healthy = true;
  std::int64_t clock_offset_ms = 0;
  std::string runtime;   // "crun 1.8.1"
  std::string evidence;  // "basic"
  static void fields(auto& r, auto& f) {
    f(r.worker, r.reachable, r.reason, r.sandboxes, r.bundle_version, r.clock_healthy,
      r.clock_offset_ms, r.runtime, r.evidence);
  }
};
struct PlatformStatusRequest {  // -> PlatformStatusResult
  identity::SessionId session;
  static void fields(auto& r, auto& f) { f(r.session); }
};
struct PlatformStatusResult {
  std::vector<WorkerInfo> workers;
  std::uint32_t running = 0;
  std::uint32_t paused = 0;
  static void fields(auto& r, auto& f) { f(r.workers, r.running, r.paused); }
};

// ---- node: control plane -> sbx-manager ----
struct NodeStartRequest {  // makes a runtime for an activation; it serves only once installed. ->
                           // NodeInstance
  identity::RouteIdentity route;
  std::string template_name;
  std::uint64_t memory_bytes = 0;
  std::uint32_t cpu_millis = 0;
  std::uint32_t max_processes = 0;
  std::uint64_t disk_bytes = 0;
  std::map<std::string, std::string> envs;
  std::string artifact;
  Bytes secret;                        // 32 bytes
  std::uint32_t first_public_pid = 0;  // of a block of kPublicPidBlock (P-25)
  static void fields(auto& r, auto& f) {
    f(r.route, r.template_name, r.memory_bytes, r.cpu_millis, r.max_processes, r.disk_bytes, r.envs,
      r.artifact, r.secret, r.first_public_pid);
  }
};
struct NodeInstance {
  std::string handle;  // opaque
  static void fields(auto& r, auto& f) { f(r.handle); }
};
// Refuses new operations on this exact execution, cuts its leases, stops its processes where they
// are and makes its writes durable (P-35, P-36). Idempotent. -> NodeInstance
struct NodeFreezeRequest {
  identity::RouteIdentity route;
  static void fields(auto& r, auto& f) { f(r.route); }
};
// Thaws a parked instance for a new activation and rekeys its guest. -> NodeInstance; serves once
// installed.
struct NodeThawRequest {
  identity::RouteIdentity parked;  // the retired execution
  identity::RouteIdentity route;   // the new one
  std::string handle;
  Bytes old_secret;
  Bytes secret;
  std::uint32_t first_public_pid = 0;
  static void fields(auto& r, auto& f) {
    f(r.parked, r.route, r.handle, r.old_secret, r.secret, r.first_public_pid);
  }
};
struct NodePublishRequest {  // -> Nothing, when the artifact is durable
  std::string handle;
  std::string artifact;
  static void fields(auto& r, auto& f) { f(r.handle, r.artifact); }
};
// Removes a runtime that is not installed; kConflict for one that is. -> Nothing
struct NodeDestroyRequest {
  std::string handle;
  std::string artifact;  // also removed when not empty
  static void fields(auto& r, auto& f) { f(r.handle, r.artifact); }
};
struct NodeStatusRequest {                     // -> DATA: NodeStatusResult
  std::optional<identity::SandboxId> sandbox;  // absent: all
  static void fields(auto& r, auto& f) { f(r.sandbox); }
};
struct NodeSandboxStatus {
  identity::SandboxId sandbox;
  std::optional<identity::RouteIdentity> installed;
  std::uint32_t attempt = 0;
  std::uint64_t epoch = 0;
  std::uint64_t floor = 0;
  std::uint32_t leases = 0;
  bool serving = false;  // false: installed but not proved yet, or lost
  std::string reason;
  static void fields(auto& r, auto& f) {
    f(r.sandbox, r.installed, r.attempt, r.epoch, r.floor, r.leases, r.serving, r.reason);
  }
};
struct NodeStatusResult {
  identity::BootNonce boot;
  std::uint64_t bundle_version = 0;
  std::string runtime;
  std::string evidence;
  std::vector<NodeSandboxStatus> sandboxes;
  static void fields(auto& r, auto& f) {
    f(r.boot, r.bundle_version, r.runtime, r.evidence, r.sandboxes);
  }
};

}  // namespace space::wire
