#pragma once
#include "ports/control_store.h"
#include "services/control_plane/testing/memory_store.h"
#include "sim/life.h"
#include "sim/world.h"

namespace space::sim {

// The control plane's store as one run of it sees it: the shared MemoryStore with latency and
// failures. A write by a run that has ended may or may not have happened; it never learns.
class SimStore final : public ControlStore {
 public:
  SimStore(World& world, ControlStore& shared, LifePtr life)
      : world_(world), shared_(shared), life_(std::move(life)) {}
  void set_fail_permille(unsigned permille) { fail_permille_ = permille; }

  Task<StoreResult<void>> add_api_key(ApiKeyRow row) override {
    return pass([=](ControlStore& s) { return s.add_api_key(row); });
  }
  Task<StoreResult<void>> revoke_api_key(CredentialHash hash, WallTime now) override {
    return pass([=](ControlStore& s) { return s.revoke_api_key(hash, now); });
  }
  Task<StoreResult<std::vector<ApiKeyRow>>> list_api_keys() override {
    return pass([](ControlStore& s) { return s.list_api_keys(); });
  }
  Task<StoreResult<SessionRow>> open_session(CredentialHash credential, identity::HolderId holder,
                                             identity::SessionId fresh, WallTime now,
                                             WallTime expires_at) override {
    return pass([=](ControlStore& s) {
      return s.open_session(credential, holder, fresh, now, expires_at);
    });
  }
  Task<StoreResult<SessionRow>> live_session(identity::SessionId id, WallTime now) override {
    return pass([=](ControlStore& s) { return s.live_session(id, now); });
  }
  Task<StoreResult<std::vector<identity::SessionId>>> end_sessions(WallTime now) override {
    return pass([=](ControlStore& s) { return s.end_sessions(now); });
  }
  Task<StoreResult<void>> insert_sandbox(fleet::Sandbox sandbox) override {
    return pass([=](ControlStore& s) { return s.insert_sandbox(sandbox); });
  }
  Task<StoreResult<fleet::Snapshot>> load(identity::SandboxId sandbox) override {
    return pass([=](ControlStore& s) { return s.load(sandbox); });
  }
  Task<StoreResult<fleet::Page>> list(fleet::Filter filter, std::optional<fleet::Position> after,
                                      std::size_t limit) override {
    return pass([=](ControlStore& s) { return s.list(filter, after, limit); });
  }
  Task<StoreResult<TeamCounts>> count(identity::TeamId team) override {
    return pass([=](ControlStore& s) { return s.count(team); });
  }
  Task<StoreResult<void>> commit(fleet::Snapshot snapshot) override {
    return pass([=](ControlStore& s) { return s.commit(snapshot); });
  }
  Task<StoreResult<std::vector<identity::SandboxId>>> unfinished() override {
    return pass([](ControlStore& s) { return s.unfinished(); });
  }
  Task<StoreResult<std::vector<identity::SandboxId>>> expired(WallTime now) override {
    return pass([=](ControlStore& s) { return s.expired(now); });
  }
  Task<StoreResult<std::vector<fleet::Execution>>> executions() override {
    return pass([](ControlStore& s) { return s.executions(); });
  }
  Task<StoreResult<void>> purge(WallTime before) override {
    return pass([=](ControlStore& s) { return s.purge(before); });
  }
  Task<StoreResult<MintView>> mint_view(identity::SessionId session, identity::SandboxId sandbox,
                                        WallTime now) override {
    return pass([=](ControlStore& s) { return s.mint_view(session, sandbox, now); });
  }
  Task<StoreResult<identity::KeyBundle>> load_bundle() override {
    return pass([](ControlStore& s) { return s.load_bundle(); });
  }
  Task<StoreResult<void>> save_bundle(identity::KeyBundle bundle) override {
    return pass([=](ControlStore& s) { return s.save_bundle(bundle); });
  }
  Task<StoreResult<void>> save_worker(WorkerRow row) override {
    return pass([=](ControlStore& s) { return s.save_worker(row); });
  }
  Task<StoreResult<std::vector<WorkerRow>>> list_workers() override {
    return pass([](ControlStore& s) { return s.list_workers(); });
  }

 private:
  template <class Call>
  auto pass(Call call) -> decltype(call(std::declval<ControlStore&>())) {
    return passed(world_, shared_, life_, world_.random().permille(fail_permille_),
                  std::move(call));
  }
  template <class Call>
  static auto passed(World& world, ControlStore& shared, LifePtr life, bool fails, Call call)
      -> decltype(call(std::declval<ControlStore&>())) {
    const auto time = std::chrono::microseconds(20 + world.random().below(400));
    if (!co_await sleep_for(world, time) || life->ended || fails) co_return failed();
    auto result = co_await call(shared);
    if (life->ended) co_return failed();
    co_return result;
  }
  static std::unexpected<StoreFailure> failed() {
    return std::unexpected(StoreFailure{StoreError::kFailed, "injected failure"});
  }

  World& world_;
  ControlStore& shared_;
  LifePtr life_;
  unsigned fail_permille_ = 0;
};

}  // namespace space::sim
