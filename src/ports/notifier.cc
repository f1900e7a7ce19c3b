#include "ports/notifier.h"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space {
namespace net = boost::asio;

template <class Handler>
class Notifier::TaskWaiter final : public Waiter {
 public:
  using Executor = net::associated_executor_t<Handler, net::any_io_executor>;

  TaskWaiter(Handler handler, Timer& timer)
      : handler_(std::move(handler)),
        executor_(net::get_associated_executor(handler_, timer.executor())) {
    auto slot = net::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) {
      slot.assign([this](net::cancellation_type) { wake(Wake::kCancelled); });
    }
  }
  void wake(Wake wake) override {
    const std::unique_ptr<TaskWaiter> self(this);
    auto slot = net::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) slot.clear();
    // Posts, so that a wake-up never runs inside the waker's turn.
    net::post(executor_,
              [handler = std::move(handler_), wake]() mutable { std::move(handler)(wake); });
  }

 private:
  Handler handler_;
  Executor executor_;
};

Notifier::~Notifier() {
  while (!waiters_.empty()) waiters_.front().wake(Wake::kCancelled);
}

void Notifier::notify() {
  while (!waiters_.empty()) waiters_.front().wake(Wake::kNotified);
}

Task<Notifier::Wake> Notifier::wait(Timer& timer, std::optional<MonoTime> deadline) {
  auto initiate = [this, &timer, deadline](auto handler) {
    auto* waiter = new TaskWaiter<decltype(handler)>(std::move(handler), timer);
    waiters_.push_back(*waiter);
    if (deadline) {
      waiter->alarm = timer.at(*deadline, [waiter] { waiter->wake(Wake::kTimedOut); });
    }
  };
  return net::async_initiate<const net::use_awaitable_t<>, void(Wake)>(std::move(initiate),
                                                                       net::use_awaitable);
}

Task<void> next_turn(Timer& timer) { return net::post(timer.executor(), net::use_awaitable); }

Task<bool> sleep_until(Timer& timer, MonoTime deadline) {
  Notifier alarm;
  co_return co_await alarm.wait(timer, deadline) == Notifier::Wake::kTimedOut;
}

}  // namespace space
