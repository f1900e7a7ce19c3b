#pragma once
#include <expected>
#include <filesystem>
#include <memory>
#include <string>

#include "ports/control_store.h"

namespace SQLite {
class Database;
}

namespace space::sqlite {

// The ControlStore in one SQLite file: STRICT tables, WAL, synchronous=FULL, BEGIN IMMEDIATE
// (P-34). Works inside the call: a transaction of this size takes one fsync, and the loop waits for
// it. Used by one loop at a time; other processes may open the same file and wait up to kBusyMs for
// each other.
class SqliteControlStore final : public ControlStore {
 public:
  static constexpr int kSchemaVersion = 4;
  static constexpr int kBusyMs = 5'000;

  // Opens or makes the file, with mode 0600 since it holds guest secrets. The error is for people:
  // another schema, a file that is not a database or is corrupt, or what the OS says.
  static std::expected<std::unique_ptr<SqliteControlStore>, std::string> open(
      const std::filesystem::path& file);
  ~SqliteControlStore() override;

  Task<StoreResult<void>> add_api_key(ApiKeyRow row) override;
  Task<StoreResult<void>> revoke_api_key(CredentialHash hash, WallTime now) override;
  Task<StoreResult<std::vector<ApiKeyRow>>> list_api_keys() override;
  Task<StoreResult<SessionRow>> open_session(CredentialHash credential, identity::HolderId holder,
                                             identity::SessionId fresh, WallTime now,
                                             WallTime expires_at) override;
  Task<StoreResult<SessionRow>> live_session(identity::SessionId id, WallTime now) override;
  Task<StoreResult<std::vector<identity::SessionId>>> end_sessions(WallTime now) override;
  Task<StoreResult<void>> insert_sandbox(fleet::Sandbox sandbox) override;
  Task<StoreResult<fleet::Snapshot>> load(identity::SandboxId sandbox) override;
  Task<StoreResult<fleet::Page>> list(fleet::Filter filter, std::optional<fleet::Position> after,
                                      std::size_t limit) override;
  Task<StoreResult<TeamCounts>> count(identity::TeamId team) override;
  Task<StoreResult<void>> commit(fleet::Snapshot snapshot) override;
  Task<StoreResult<std::vector<identity::SandboxId>>> unfinished() override;
  Task<StoreResult<std::vector<identity::SandboxId>>> expired(WallTime now) override;
  Task<StoreResult<std::vector<fleet::Execution>>> executions() override;
  Task<StoreResult<void>> purge(WallTime before) override;
  Task<StoreResult<MintView>> mint_view(identity::SessionId session, identity::SandboxId sandbox,
                                        WallTime now) override;
  Task<StoreResult<identity::KeyBundle>> load_bundle() override;
  Task<StoreResult<void>> save_bundle(identity::KeyBundle bundle) override;
  Task<StoreResult<void>> save_worker(WorkerRow row) override;
  Task<StoreResult<std::vector<WorkerRow>>> list_workers() override;

 private:
  explicit SqliteControlStore(std::unique_ptr<SQLite::Database> database);
  std::unique_ptr<SQLite::Database> database_;
};

}  // namespace space::sqlite
