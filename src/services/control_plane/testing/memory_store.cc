#include "services/control_plane/testing/memory_store.h"

#include <algorithm>

namespace space::control_plane {
namespace {

using fleet::ExecutionState;
using fleet::SandboxState;

std::unexpected<StoreFailure> failure(StoreError error, std::string detail) {
  return std::unexpected(StoreFailure{error, std::move(detail)});
}

}  // namespace

Task<StoreResult<void>> MemoryStore::add_api_key(ApiKeyRow row) {
  if (!keys_.emplace(row.hash, row).second) {
    co_return failure(StoreError::kAlreadyExists, "this key exists");
  }
  co_return StoreResult<void>{};
}

Task<StoreResult<void>> MemoryStore::revoke_api_key(CredentialHash hash, WallTime now) {
  const auto at = keys_.find(hash);
  if (at == keys_.end()) co_return failure(StoreError::kNotFound, "no such key");
  if (!at->second.revoked_at) at->second.revoked_at = now;
  co_return StoreResult<void>{};
}

Task<StoreResult<std::vector<ApiKeyRow>>> MemoryStore::list_api_keys() {
  std::vector<ApiKeyRow> rows;
  for (const auto& [hash, row] : keys_) rows.push_back(row);
  co_return rows;
}

std::optional<SessionRow> MemoryStore::authorise(const CredentialHash& credential) const {
  SessionRow row;
  row.credential = credential;
  if (const auto key = keys_.find(credential); key != keys_.end()) {
    if (key->second.revoked_at) return std::nullopt;
    row.team = key->second.team;
    return row;
  }
  for (const auto& [id, sandbox] : sandboxes_) {
    if (sandbox.access != credential || sandbox.state == SandboxState::kKilling ||
        sandbox.state == SandboxState::kKilled) {
      continue;
    }
    row.team = sandbox.team;
    row.sandbox = id;
    return row;
  }
  return std::nullopt;
}

Task<StoreResult<SessionRow>> MemoryStore::open_session(CredentialHash credential,
                                                        identity::HolderId holder,
                                                        identity::SessionId fresh, WallTime now,
                                                        WallTime expires_at) {
  auto opened = authorise(credential);
  if (!opened) co_return failure(StoreError::kNotFound, "no such credential");
  for (auto& [id, row] : sessions_) {
    if (row.credential == credential && row.holder == holder && row.expires_at > now) {
      row.expires_at = expires_at;
      co_return row;
    }
  }
  opened->id = fresh;
  opened->holder = holder;
  opened->expires_at = expires_at;
  sessions_.emplace(fresh, *opened);
  co_return *std::move(opened);
}

const SessionRow* MemoryStore::find_live(const identity::SessionId& id, WallTime now) const {
  const auto at = sessions_.find(id);
  if (at == sessions_.end() || at->second.expires_at <= now) return nullptr;
  return authorise(at->second.credential) ? &at->second : nullptr;
}

Task<StoreResult<SessionRow>> MemoryStore::live_session(identity::SessionId id, WallTime now) {
  const auto* found = find_live(id, now);
  if (found == nullptr) co_return failure(StoreError::kNotFound, "no such session");
  co_return *found;
}

Task<StoreResult<std::vector<identity::SessionId>>> MemoryStore::end_sessions(WallTime now) {
  std::vector<identity::SessionId> ended;
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const bool expired = it->second.expires_at <= now;
    const bool revoked = !authorise(it->second.credential);
    if (revoked && !expired) ended.push_back(it->first);
    it = revoked || expired ? sessions_.erase(it) : std::next(it);
  }
  co_return ended;
}

Task<StoreResult<void>> MemoryStore::insert_sandbox(fleet::Sandbox sandbox) {
  const bool token_taken = std::ranges::any_of(
      sandboxes_, [&](const auto& item) { return item.second.access == sandbox.access; });
  if (token_taken || !sandboxes_.emplace(sandbox.id, sandbox).second) {
    co_return failure(StoreError::kAlreadyExists, "this sandbox id or access token is in use");
  }
  co_return StoreResult<void>{};
}

fleet::Snapshot MemoryStore::snapshot(const fleet::Sandbox& sandbox) const {
  fleet::Snapshot result{sandbox, {}};
  for (auto it = executions_.lower_bound({sandbox.id, {}});
       it != executions_.end() && it->first.first == sandbox.id; ++it) {
    if (it->second.state != ExecutionState::kGone) result.executions.push_back(it->second);
  }
  return result;
}

Task<StoreResult<fleet::Snapshot>> MemoryStore::load(identity::SandboxId sandbox) {
  const auto at = sandboxes_.find(sandbox);
  if (at == sandboxes_.end()) co_return failure(StoreError::kNotFound, "no such sandbox");
  co_return snapshot(at->second);
}

Task<StoreResult<fleet::Page>> MemoryStore::list(fleet::Filter filter,
                                                 std::optional<fleet::Position> after,
                                                 std::size_t limit) {
  std::vector<const fleet::Sandbox*> ordered;
  for (const auto& [id, sandbox] : sandboxes_) {
    const auto position = fleet::position_of(sandbox);
    const bool past = after && (filter.newest_first ? position >= *after : position <= *after);
    if (!past) ordered.push_back(&sandbox);
  }
  std::ranges::sort(ordered, {}, [](const auto* sandbox) { return fleet::position_of(*sandbox); });
  if (filter.newest_first) std::ranges::reverse(ordered);
  fleet::Page page;
  fleet::Pager pager(std::move(filter), limit, kMaxListScan);
  for (const auto* sandbox : ordered) {
    const auto verdict = pager.offer(*sandbox);
    if (verdict == fleet::Pager::Verdict::kFull) break;
    if (verdict == fleet::Pager::Verdict::kTaken) page.sandboxes.push_back(snapshot(*sandbox));
  }
  page.next = pager.next();
  co_return page;
}

Task<StoreResult<TeamCounts>> MemoryStore::count(identity::TeamId team) {
  TeamCounts counts;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (sandbox.team != team) continue;
    if (sandbox.state == SandboxState::kRunning) ++counts.running;
    if (sandbox.state == SandboxState::kPaused) ++counts.paused;
  }
  co_return counts;
}

Task<StoreResult<void>> MemoryStore::commit(fleet::Snapshot changed) {
  const auto at = sandboxes_.find(changed.sandbox.id);
  if (at == sandboxes_.end()) co_return failure(StoreError::kNotFound, "no such sandbox");
  if (at->second.revision != changed.sandbox.revision) {
    co_return failure(StoreError::kConflict, "the sandbox changed meanwhile");
  }
  for (const auto& execution : changed.executions) {
    const auto stored = executions_.find({changed.sandbox.id, execution.route.generation});
    if (stored != executions_.end() && stored->second.route != execution.route) {
      co_return failure(StoreError::kAlreadyExists, "this generation is taken");
    }
  }
  at->second = changed.sandbox;
  ++at->second.revision;
  for (auto& execution : changed.executions) {
    const std::pair key{changed.sandbox.id, execution.route.generation};
    executions_.insert_or_assign(key, std::move(execution));
  }
  co_return StoreResult<void>{};
}

Task<StoreResult<std::vector<identity::SandboxId>>> MemoryStore::unfinished() {
  std::vector<identity::SandboxId> found;
  for (const auto& [id, sandbox] : sandboxes_) {
    bool wanted = sandbox.operation.has_value();
    for (const auto& execution : snapshot(sandbox).executions) {
      wanted = wanted || execution.state == ExecutionState::kDiscarding;
    }
    if (wanted) found.push_back(id);
  }
  co_return found;
}

Task<StoreResult<std::vector<identity::SandboxId>>> MemoryStore::expired(WallTime now) {
  std::vector<identity::SandboxId> found;
  for (const auto& [id, sandbox] : sandboxes_) {
    const auto state = sandbox.state;
    const bool timed = state == SandboxState::kCreating || state == SandboxState::kRunning ||
                       state == SandboxState::kFailed || state == SandboxState::kLost;
    if (timed && sandbox.ends_at <= now) found.push_back(id);
  }
  co_return found;
}

Task<StoreResult<std::vector<fleet::Execution>>> MemoryStore::executions() {
  std::vector<fleet::Execution> found;
  for (const auto& [key, execution] : executions_) {
    if (execution.state != ExecutionState::kGone) found.push_back(execution);
  }
  co_return found;
}

Task<StoreResult<void>> MemoryStore::purge(WallTime before) {
  for (auto it = sandboxes_.begin(); it != sandboxes_.end();) {
    const auto& sandbox = it->second;
    if (sandbox.state != SandboxState::kKilled || sandbox.ends_at >= before ||
        !snapshot(sandbox).executions.empty()) {
      ++it;
      continue;
    }
    std::erase_if(executions_, [&](const auto& item) { return item.first.first == it->first; });
    it = sandboxes_.erase(it);
  }
  co_return StoreResult<void>{};
}

Task<StoreResult<MintView>> MemoryStore::mint_view(identity::SessionId session,
                                                   identity::SandboxId sandbox, WallTime now) {
  MintView view;
  if (const auto* row = find_live(session, now)) view.session = *row;
  if (const auto at = sandboxes_.find(sandbox); at != sandboxes_.end()) {
    view.snapshot = snapshot(at->second);
  }
  co_return view;
}

Task<StoreResult<identity::KeyBundle>> MemoryStore::load_bundle() {
  if (!bundle_) co_return failure(StoreError::kNotFound, "no key bundle yet");
  co_return *bundle_;
}

Task<StoreResult<void>> MemoryStore::save_bundle(identity::KeyBundle bundle) {
  if (bundle_ && bundle.version < bundle_->version) {
    co_return failure(StoreError::kConflict, "a newer key bundle is stored");
  }
  bundle_ = std::move(bundle);
  co_return StoreResult<void>{};
}

Task<StoreResult<void>> MemoryStore::save_worker(WorkerRow row) {
  workers_.insert_or_assign(row.worker, row);
  co_return StoreResult<void>{};
}

Task<StoreResult<std::vector<WorkerRow>>> MemoryStore::list_workers() {
  std::vector<WorkerRow> rows;
  for (const auto& [id, row] : workers_) rows.push_back(row);
  co_return rows;
}

std::vector<fleet::Execution> MemoryStore::history(const identity::SandboxId& sandbox) const {
  std::vector<fleet::Execution> found;
  for (const auto& [key, execution] : executions_) {
    if (key.first == sandbox) found.push_back(execution);
  }
  return found;
}

}  // namespace space::control_plane
