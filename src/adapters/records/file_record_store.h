#pragma once
#include <boost/asio/thread_pool.hpp>
#include <string>

#include "ports/record_store.h"

namespace space::records {

// One file per sandbox and one for the key bundle's version, in a folder of mode 0700. A file is
// replaced by a new one that was synced before (temporary file, fsync, rename, fsync of the
// folder), so that after a crash the old or the new content is there. Each holds a checksum.
//
// File: "SPACEREC", u8 1, u64 floor, u8 flag; if 1: u32 length + record, 32 secret, u8 length +
// boot id; then SHA-256 of all before. Named by the sandbox. The version: "SPACEBUN", u8 1, u64,
// SHA-256, in "bundle.version", which is no sandbox id.
//
// The file work is done by one thread, so that the loop goes on during a sync; work that was begun
// is completed, cancelled or not. The loop of the callers outlives the store.
class FileRecordStore final : public RecordStore {
 public:
  // `folder` is made if missing; its parent exists.
  explicit FileRecordStore(std::string folder) : folder_(std::move(folder)) {}
  Task<IoResult<Contents>> load_all() override;
  Task<IoResult<void>> put(StoredRecord stored) override;
  Task<IoResult<std::optional<identity::RuntimeRecord>>> read(identity::SandboxId sandbox) override;
  Task<IoResult<void>> erase(identity::SandboxId sandbox, identity::Generation floor) override;
  Task<IoResult<void>> put_bundle_version(identity::BundleVersion version) override;

 private:
  std::string folder_;
  boost::asio::thread_pool worker_{1};
};

}  // namespace space::records
