#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/secret.h"
#include "core/identity/runtime_record.h"
#include "ports/task.h"

namespace space {

// What a receiver remembers of one served execution (RCV-6).
struct StoredRecord {
  identity::RuntimeRecord record;
  GuestSecret secret;   // of this incarnation's guest
  std::string boot_id;  // of the machine the guest proved itself on
};

// The durable state of one sbx-manager. A write that completed survives a crash, one that failed
// left the old state. The caller serialises writes for one sandbox; different sandboxes may
// overlap. Errors: those of the file system; bad_message for content that is damaged.
class RecordStore {
 public:
  struct Contents {
    std::vector<StoredRecord> records;
    // Highest generation ever installed, also of sandboxes without a record.
    std::map<identity::SandboxId, identity::Generation> floors;
    identity::BundleVersion bundle;  // highest key bundle ever installed, 0 if none
  };
  virtual ~RecordStore() = default;
  virtual Task<IoResult<Contents>> load_all() = 0;
  // Replaces the record of its sandbox; its generation becomes the floor.
  virtual Task<IoResult<void>> put(StoredRecord stored) = 0;
  virtual Task<IoResult<std::optional<identity::RuntimeRecord>>> read(
      identity::SandboxId sandbox) = 0;
  // Removes the record; the floor stays.
  virtual Task<IoResult<void>> erase(identity::SandboxId sandbox, identity::Generation floor) = 0;
  virtual Task<IoResult<void>> put_bundle_version(identity::BundleVersion version) = 0;
};

}  // namespace space
