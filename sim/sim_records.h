#pragma once
#include <map>

#include "ports/notifier.h"
#include "ports/record_store.h"
#include "sim/life.h"
#include "sim/oracle.h"

namespace space::sim {

// What is on one manager's disk: survives its runs.
struct RecordDisk {
  struct Entry {
    identity::RuntimeRecord record;
    Bytes secret;
    std::string boot_id;
  };
  std::map<identity::SandboxId, Entry> records;
  std::map<identity::SandboxId, identity::Generation> floors;
  identity::BundleVersion bundle;
};

// The record store of one run. A write takes time; a run that ends meanwhile, or an injected
// failure, leaves the old content.
class SimRecords final : public RecordStore {
 public:
  SimRecords(World& world, Oracle& oracle, RecordDisk& disk, identity::WorkerId worker,
             LifePtr life)
      : world_(world),
        oracle_(oracle),
        disk_(disk),
        worker_(std::move(worker)),
        life_(std::move(life)) {}
  void set_fail_permille(unsigned permille) { fail_permille_ = permille; }
  // Holds back writes of records until it is opened; the turn that opens it is the turn of the
  // write.
  struct Gate {
    bool closed = false;
    bool reached = false;  // a write waits, or went through
    Notifier opened;
  };
  void set_gate(Gate* gate) { gate_ = gate; }

  Task<IoResult<Contents>> load_all() override;
  Task<IoResult<void>> put(StoredRecord stored) override;
  Task<IoResult<std::optional<identity::RuntimeRecord>>> read(identity::SandboxId sandbox) override;
  Task<IoResult<void>> erase(identity::SandboxId sandbox, identity::Generation floor) override;
  Task<IoResult<void>> put_bundle_version(identity::BundleVersion version) override;

 private:
  Task<bool> sync();  // false: failed, nothing may be written

  World& world_;
  Oracle& oracle_;
  RecordDisk& disk_;
  identity::WorkerId worker_;
  LifePtr life_;
  unsigned fail_permille_ = 0;
  Gate* gate_ = nullptr;
};

}  // namespace space::sim
