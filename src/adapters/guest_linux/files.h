#pragma once
#include "adapters/guest_linux/users.h"
#include "ports/clock.h"
#include "ports/entropy.h"
#include "ports/guest.h"

namespace space::guest_linux {

// The files of this machine, with its accounts as they are at each call, since processes may change
// them.
// The process must be root, with its file-system rights, to act for others. New content has no name
// until its commit, so that neither a crash nor a pause leaves litter (C058); other hard links and
// extended attributes of a replaced file are lost.
class LinuxFiles final : public GuestFiles {
 public:
  LinuxFiles(Timer& timer, Entropy& entropy) : timer_(timer), entropy_(entropy) {}

  GuestResult<std::unique_ptr<GuestFileReader>> open(std::string path, std::string user,
                                                     std::uint64_t offset) override;
  GuestResult<std::unique_ptr<GuestFileWriter>> create(std::string path, std::string user,
                                                       std::optional<std::uint32_t> mode) override;
  GuestResult<wire::FileEntry> stat(std::string path, std::string user) override;
  GuestResult<wire::FileListResult> list(std::string path, std::string user,
                                         std::uint32_t depth) override;
  Task<GuestResult<void>> remove(std::string path, std::string user,
                                 std::function<bool()> wanted) override;
  GuestResult<wire::FileEntry> make_dir(std::string path, std::string user) override;
  GuestResult<wire::FileEntry> move(std::string source, std::string destination,
                                    std::string user) override;

 private:
  Timer& timer_;
  Entropy& entropy_;
  CurrentAccounts accounts_;
};

}  // namespace space::guest_linux
