#include "adapters/http/hangup_watch.h"

#include <sys/epoll.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

namespace space::http {

HangupWatch::Peer::~Peer() { watch_.peers_.erase(id_); }

void HangupWatch::Peer::on_gone(std::move_only_function<void()> action) {
  action_ = std::move(action);
  soon_.reset();
  if (gone_ && action_) {
    soon_ = watch_.loop_.at(watch_.loop_.now(), [this] { hang_up(); });
  }
}

void HangupWatch::Peer::hang_up() {
  gone_ = true;
  if (auto once = std::exchange(action_, {})) once();
}

std::error_code HangupWatch::open() {
  const int descriptor = ::epoll_create1(EPOLL_CLOEXEC);
  if (descriptor < 0) return {errno, std::generic_category()};
  boost::system::error_code error;
  epoll_.assign(descriptor, error);
  return error;
}

std::unique_ptr<HangupWatch::Peer> HangupWatch::watch(int socket) {
  const auto id = ++last_id_;
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;  // errors and hang-ups are always told
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, socket, &event) != 0) return nullptr;
  std::unique_ptr<Peer> peer(new Peer(*this, id));
  peers_.emplace(id, peer.get());
  return peer;
}

Task<void> HangupWatch::run() {
  constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);
  for (;;) {
    const auto [error] = co_await epoll_.async_wait(epoll_.wait_read, kAwait);
    if (error) co_return;
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.native_handle(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      // A socket that was closed meanwhile may still have an event in this batch.
      const auto at = peers_.find(events[static_cast<std::size_t>(i)].data.u64);
      if (at != peers_.end()) at->second->hang_up();
    }
  }
}

}  // namespace space::http
