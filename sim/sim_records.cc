#include "sim/sim_records.h"

#include <algorithm>

namespace space::sim {

Task<bool> SimRecords::sync() {
  const auto life = life_;
  const bool fails = world_.random().permille(fail_permille_);
  const auto time = std::chrono::microseconds(200 + world_.random().below(4000));
  co_return co_await sleep_for(world_, time) && !life->ended && !fails;
}

Task<IoResult<RecordStore::Contents>> SimRecords::load_all() {
  Contents contents;
  for (const auto& [sandbox, entry] : disk_.records) {
    contents.records.push_back(
        {entry.record, GuestSecret(std::span(entry.secret).first<32>()), entry.boot_id});
  }
  contents.floors = disk_.floors;
  contents.bundle = disk_.bundle;
  co_return contents;
}

Task<IoResult<void>> SimRecords::put(StoredRecord stored) {
  if (!co_await sync()) co_return io_error(std::errc::io_error);
  if (gate_ != nullptr) {
    gate_->reached = true;
    while (gate_->closed) {
      if (co_await gate_->opened.wait(world_) == Notifier::Wake::kCancelled) {
        co_return io_error(std::errc::operation_canceled);
      }
    }
  }
  const auto& route = stored.record.route;
  oracle_.record_durable(worker_, route);
  auto& floor = disk_.floors[route.sandbox];
  floor = std::max(floor, route.generation);
  const auto secret = stored.secret.reveal();
  disk_.records.insert_or_assign(
      route.sandbox,
      RecordDisk::Entry{stored.record, Bytes(secret.begin(), secret.end()), stored.boot_id});
  co_return IoResult<void>{};
}

Task<IoResult<std::optional<identity::RuntimeRecord>>> SimRecords::read(
    identity::SandboxId sandbox) {
  if (!co_await sleep_for(world_, std::chrono::microseconds(50))) {
    co_return io_error(std::errc::operation_canceled);
  }
  const auto at = disk_.records.find(sandbox);
  std::optional<identity::RuntimeRecord> record;
  if (at != disk_.records.end()) record = at->second.record;
  co_return record;
}

Task<IoResult<void>> SimRecords::erase(identity::SandboxId sandbox, identity::Generation floor) {
  if (!co_await sync()) co_return io_error(std::errc::io_error);
  auto& stored = disk_.floors[sandbox];
  stored = std::max(stored, floor);
  disk_.records.erase(sandbox);
  co_return IoResult<void>{};
}

Task<IoResult<void>> SimRecords::put_bundle_version(identity::BundleVersion version) {
  if (!co_await sync()) co_return io_error(std::errc::io_error);
  disk_.bundle = std::max(disk_.bundle, version);
  co_return IoResult<void>{};
}

}  // namespace space::sim
