#pragma once
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/fleet/listing.h"
#include "core/identity/key_bundle.h"
#include "ports/task.h"

namespace space {

using identity::CredentialHash;

struct ApiKeyRow {
  CredentialHash hash;
  identity::TeamId team;
  WallTime created_at;
  std::optional<WallTime> revoked_at;
  friend bool operator==(const ApiKeyRow&, const ApiKeyRow&) = default;
};

// A native session (P-18): `holder` authorised a caller with this credential. It is live until it
// expires, its API key is revoked, or a kill of the sandbox of its access token has begun.
struct SessionRow {
  identity::SessionId id;
  CredentialHash credential;
  identity::TeamId team;
  identity::HolderId holder;
  WallTime expires_at;
  std::optional<identity::SandboxId> sandbox;  // of an access token: the only one it may use
  friend bool operator==(const SessionRow&, const SessionRow&) = default;
};

// What a worker last said it has installed (LC-3); the latest word, not a promise.
struct WorkerRow {
  identity::WorkerId worker;
  identity::BootNonce boot;
  identity::BundleVersion bundle;
  WallTime seen_at;  // when it first said so
  friend bool operator==(const WorkerRow&, const WorkerRow&) = default;
};

// A team's sandboxes by state.
struct TeamCounts {
  std::uint32_t running = 0;
  std::uint32_t paused = 0;
  friend bool operator==(const TeamCounts&, const TeamCounts&) = default;
};

inline constexpr std::size_t kMaxListScan = 1'000;

// All that a mint decides on, seen in one transaction (P-3).
struct MintView {
  std::optional<SessionRow> session;  // while it is live
  std::optional<fleet::Snapshot> snapshot;
};

enum class StoreError : std::uint8_t {
  kConflict = 1,  // the row is not as the caller saw it: load again
  kNotFound,
  kAlreadyExists,
  kFailed,  // the store cannot do it now; `detail` says why
};
struct StoreFailure {
  StoreError error = StoreError::kFailed;
  std::string detail;
};
template <class T>
using StoreResult = std::expected<T, StoreFailure>;

// The durable state of the control plane (P-34). Each call is one transaction and is durable when
// it completes. Writes to a sandbox compare its revision, which every write raises, so that a
// crashed or late owner does no harm (DESIGN 6). An implementation may do its work inside the call
// without suspending.
class ControlStore {
 public:
  virtual ~ControlStore() = default;

  // ---- teams and keys ----
  // Makes the team when it is new. kAlreadyExists for a known hash.
  virtual Task<StoreResult<void>> add_api_key(ApiKeyRow row) = 0;
  // Revokes; idempotent. kNotFound for an unknown hash.
  virtual Task<StoreResult<void>> revoke_api_key(CredentialHash hash, WallTime now) = 0;
  virtual Task<StoreResult<std::vector<ApiKeyRow>>> list_api_keys() = 0;

  // ---- sessions ----
  // The live session of this credential and holder with its expiry moved to `expires_at`, else a
  // new one named `fresh`. kNotFound when it is neither an API key that is not revoked nor the
  // access token of a sandbox that no kill of has begun.
  virtual Task<StoreResult<SessionRow>> open_session(CredentialHash credential,
                                                     identity::HolderId holder,
                                                     identity::SessionId fresh, WallTime now,
                                                     WallTime expires_at) = 0;
  // The session while it is live; kNotFound otherwise.
  virtual Task<StoreResult<SessionRow>> live_session(identity::SessionId id, WallTime now) = 0;
  // Removes the sessions that are not live; returns those that ended before they expired.
  virtual Task<StoreResult<std::vector<identity::SessionId>>> end_sessions(WallTime now) = 0;

  // ---- sandboxes ----
  // A new sandbox with its begun operation. kAlreadyExists for an id or an access token in use.
  virtual Task<StoreResult<void>> insert_sandbox(fleet::Sandbox sandbox) = 0;
  virtual Task<StoreResult<fleet::Snapshot>> load(identity::SandboxId sandbox) = 0;
  // The sandboxes that match and come after `after`, in the filter's order, `limit` (at least 1) of
  // them at most; fewer, with `next` set, once kMaxListScan were looked at.
  virtual Task<StoreResult<fleet::Page>> list(fleet::Filter filter,
                                              std::optional<fleet::Position> after,
                                              std::size_t limit) = 0;
  virtual Task<StoreResult<TeamCounts>> count(identity::TeamId team) = 0;
  // Writes the sandbox and inserts or updates the executions given, when the stored revision is the
  // one in `snapshot`, and raises it; kConflict otherwise. What the sandbox was made with (id,
  // team, template, metadata, start) must be the same. (sandbox, generation) is unique for ever:
  // another route under a stored generation is kAlreadyExists.
  virtual Task<StoreResult<void>> commit(fleet::Snapshot snapshot) = 0;
  // Sandboxes with an unfinished operation or an execution to be discarded.
  virtual Task<StoreResult<std::vector<identity::SandboxId>>> unfinished() = 0;
  // Sandboxes whose time is over and for which that may mean something (fleet::at_timeout):
  // creating, running, failed or lost.
  virtual Task<StoreResult<std::vector<identity::SandboxId>>> expired(WallTime now) = 0;
  // Executions that are not gone, of all sandboxes.
  virtual Task<StoreResult<std::vector<fleet::Execution>>> executions() = 0;
  // Forgets sandboxes killed before `before` that have nothing to be discarded.
  virtual Task<StoreResult<void>> purge(WallTime before) = 0;

  virtual Task<StoreResult<MintView>> mint_view(identity::SessionId session,
                                                identity::SandboxId sandbox, WallTime now) = 0;

  // ---- signing keys and workers ----
  // The bundle of the highest version; kNotFound before the first.
  virtual Task<StoreResult<identity::KeyBundle>> load_bundle() = 0;
  // kConflict unless its version is at least the stored one.
  virtual Task<StoreResult<void>> save_bundle(identity::KeyBundle bundle) = 0;
  virtual Task<StoreResult<void>> save_worker(WorkerRow row) = 0;
  virtual Task<StoreResult<std::vector<WorkerRow>>> list_workers() = 0;
};

}  // namespace space
