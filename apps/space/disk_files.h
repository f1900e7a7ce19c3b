#pragma once
#include "services/cli/terminal.h"

namespace space::app {

// Writes all of `bytes`, also to a descriptor that others made non-blocking.
IoResult<void> write_fully(int descriptor, std::string_view bytes);

// The real files of this machine, with the rights of this process.
class DiskFiles final : public cli::LocalFiles {
 public:
  IoResult<std::unique_ptr<HttpBodySource>> open(const std::string& path) override;
  IoResult<std::unique_ptr<cli::FileSink>> create(const std::string& path,
                                                  const std::string& name) override;
  IoResult<std::vector<cli::LocalEntry>> walk(const std::string& path) override;
  IoResult<std::unique_ptr<cli::FolderSink>> create_folder(const std::string& path,
                                                           const std::string& name) override;
};

}  // namespace space::app
