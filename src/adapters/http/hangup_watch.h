#pragma once
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <system_error>

#include "adapters/asio/loop.h"
#include "ports/task.h"

namespace space::http {

// Sees that the peers of sockets have closed or reset them, also while bytes of theirs are unread.
// A TCP peer's close stays unseen as long as bytes before it do not fit in the receive buffer.
class HangupWatch {
 public:
  // One watched socket.
  class Peer {
   public:
    ~Peer();
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    // Calls `action` once, in a later turn, when the peer has gone. Replaces an earlier action; an
    // empty one takes it back.
    void on_gone(std::move_only_function<void()> action);

   private:
    friend class HangupWatch;
    Peer(HangupWatch& watch, std::uint64_t id) : watch_(watch), id_(id) {}
    void hang_up();

    HangupWatch& watch_;
    std::uint64_t id_;
    bool gone_ = false;
    std::move_only_function<void()> action_;
    std::unique_ptr<Timer::Alarm> soon_;
  };

  explicit HangupWatch(asio::Loop& loop) : loop_(loop), epoll_(loop.context()) {}
  // Before anything else.
  std::error_code open();
  // Watches until cancelled.
  Task<void> run();
  // Null when the system has no room. The peer ends before the watch, and before or soon after the
  // socket is closed.
  std::unique_ptr<Peer> watch(int socket);

 private:
  asio::Loop& loop_;
  boost::asio::posix::stream_descriptor epoll_;
  std::map<std::uint64_t, Peer*> peers_;
  std::uint64_t last_id_ = 0;
};

}  // namespace space::http
