#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "ports/clock.h"
#include "ports/entropy.h"
#include "ports/stream.h"

namespace space::asio {

// The real world of one thread: an io_context with the boot-time clock, Unix sockets and signals.
class Loop final : public Timer {
 public:
  Loop();
  ~Loop() override;
  MonoTime now() const override;
  std::unique_ptr<Alarm> at(MonoTime deadline, std::move_only_function<void()> action) override;
  boost::asio::any_io_executor executor() override { return context_.get_executor(); }
  boost::asio::io_context& context() { return context_; }
  // Runs `main` as the loop's main task until it returns; SIGTERM and SIGINT call `on_stop` once.
  // Returns main's result, to be the exit status.
  int run(Task<int> main, std::move_only_function<void()> on_stop);

 private:
  class DueAlarm;
  struct Alarms;
  void arm();
  void fire();

  // Before the context: tasks still suspended go with it, and so do their alarms.
  std::unique_ptr<Alarms> alarms_;
  boost::asio::io_context context_{1};
  // One for the whole loop, for the earliest alarm or earlier.
  boost::asio::steady_timer timer_{context_};
  std::optional<MonoTime> armed_;
};

class SystemClock final : public WallClock {
 public:
  WallTime now() const override;
};

// Connects to `unix:PATH` through an O_PATH descriptor: any path length, no symlink followed at its
// end, and the inode that was opened is the one connected to.
class UnixDialer final : public Dialer {
 public:
  explicit UnixDialer(Loop& loop) : loop_(loop) {}
  Task<IoResult<std::unique_ptr<Stream>>> dial(std::string address, MonoTime deadline) override;

 private:
  Loop& loop_;
};

// Listens at `unix:PATH`. A leftover socket without a listener is replaced, under a lock file
// beside it; a live one, a regular file or a symlink refuses and is not touched (C033). The socket
// is made with mode `mode` from the start (C030: its folder must not be writable by others; umask
// covers the rest). Errors: address_in_use (live), file_exists (not a socket), others of the OS.
IoResult<std::unique_ptr<Listener>> listen_unix(Loop& loop, const std::string& address,
                                                unsigned mode);

// A stream over a connected descriptor, which it takes over.
std::unique_ptr<Stream> adopt_stream(Loop& loop, int descriptor);

// Completes when the process of `pidfd` has ended; false at the deadline. Does not reap it.
Task<bool> process_ended(Loop& loop, int pidfd, MonoTime deadline);

}  // namespace space::asio
