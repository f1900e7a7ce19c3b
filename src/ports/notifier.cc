#include "ports/notifier.h"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space {
namespace net = boost::asio;

struct Notifier::Waiter {
  std::move_only_function<void(Wake)> complete;
  std::unique_ptr<Timer::Alarm> alarm;
  std::list<Waiter*>::iterator at;
};

void Notifier::finish(Waiter& waiter, Wake wake) {
  waiters_.erase(waiter.at);
  // The waiter is owned by `complete`'s frame: take what is needed before it may go.
  auto alarm = std::move(waiter.alarm);
  auto complete = std::move(waiter.complete);
  complete(wake);
}

Notifier::~Notifier() {
  while (!waiters_.empty()) finish(*waiters_.front(), Wake::kCancelled);
}

void Notifier::notify() {
  const auto count = waiters_.size();
  for (std::size_t i = 0; i < count && !waiters_.empty(); ++i) {
    finish(*waiters_.front(), Wake::kNotified);
  }
}

Task<Notifier::Wake> Notifier::wait(Timer& timer, std::optional<MonoTime> deadline) {
  auto initiate = [this, &timer, deadline](auto handler) {
    auto executor = net::get_associated_executor(handler, timer.executor());
    auto slot = net::get_associated_cancellation_slot(handler);
    auto waiter = std::make_unique<Waiter>();
    auto* raw = waiter.get();
    raw->at = waiters_.insert(waiters_.end(), raw);
    // The completion owns the waiter and posts, so that a wake-up never runs inside the waker's
    // turn.
    raw->complete = [owned = std::move(waiter), handler = std::move(handler), executor,
                     slot](Wake wake) mutable {
      if (slot.is_connected()) slot.clear();
      net::post(executor,
                [handler = std::move(handler), wake]() mutable { std::move(handler)(wake); });
    };
    if (slot.is_connected()) {
      slot.assign([this, raw](net::cancellation_type) { finish(*raw, Wake::kCancelled); });
    }
    if (deadline) {
      raw->alarm = timer.at(*deadline, [this, raw] { finish(*raw, Wake::kTimedOut); });
    }
  };
  co_return co_await net::async_initiate<const net::use_awaitable_t<>, void(Wake)>(
      std::move(initiate), net::use_awaitable);
}

Task<bool> sleep_until(Timer& timer, MonoTime deadline) {
  Notifier alarm;
  co_return co_await alarm.wait(timer, deadline) == Notifier::Wake::kTimedOut;
}

}  // namespace space
