#pragma once
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <optional>

#include "adapters/asio/loop.h"
#include "services/cli/terminal.h"

namespace space::app {

// The real stdin, stdout, stderr and signals of this process.
class Shell final : public cli::Terminal {
 public:
  explicit Shell(asio::Loop& loop) : loop_(loop) {}
  bool out(std::string_view bytes) override;
  void err(std::string_view bytes) override;
  bool out_is_terminal() const override;
  Task<IoResult<std::size_t>> in(std::span<std::byte> buffer) override;
  Task<int> interrupted() override;
  void leave(int exit_code) override;

 private:
  void open_stdin();
  asio::Loop& loop_;
  bool reader_left_ = false;
  bool stdin_opened_ = false;
  // Absent for files, whose reads never wait.
  std::optional<boost::asio::posix::stream_descriptor> stdin_;
  std::optional<boost::asio::signal_set> signals_;
};

}  // namespace space::app
