#pragma once
#include <map>
#include <utility>

#include "ports/control_store.h"

namespace space::control_plane {

// A ControlStore that lives as long as the object: for tests and the simulation. Never suspends.
// What a control plane committed stays when that control plane is destroyed.
class MemoryStore final : public ControlStore {
 public:
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

  // Every execution ever committed, the gone ones too, ascending by generation.
  std::vector<fleet::Execution> history(const identity::SandboxId& sandbox) const;

 private:
  // What a session of this credential would be, without id, holder and time; null when it opens
  // none.
  std::optional<SessionRow> authorise(const CredentialHash& credential) const;
  const SessionRow* find_live(const identity::SessionId& id, WallTime now) const;
  fleet::Snapshot snapshot(const fleet::Sandbox& sandbox) const;

  std::map<CredentialHash, ApiKeyRow> keys_;
  std::map<identity::SessionId, SessionRow> sessions_;
  std::map<identity::SandboxId, fleet::Sandbox> sandboxes_;
  std::map<std::pair<identity::SandboxId, identity::Generation>, fleet::Execution> executions_;
  std::optional<identity::KeyBundle> bundle_;
  std::map<identity::WorkerId, WorkerRow> workers_;
};

}  // namespace space::control_plane
