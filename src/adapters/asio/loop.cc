#include "adapters/asio/loop.h"

#include <time.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/intrusive/set.hpp>
#include <exception>

namespace space::asio {
namespace net = boost::asio;

namespace {

MonoTime boot_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return MonoTime{std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)};
}

}  // namespace

namespace intrusive = boost::intrusive;

// An alarm costs one allocation and a place in the order of deadlines, and is nothing to the
// kernel. CLOCK_BOOTTIME decides when it is due, so that time spent suspended counts.
class Loop::DueAlarm final
    : public Alarm,
      public intrusive::set_base_hook<intrusive::link_mode<intrusive::auto_unlink>> {
 public:
  DueAlarm(MonoTime deadline, std::move_only_function<void()> action)
      : deadline_(deadline), action_(std::move(action)) {}
  MonoTime deadline() const { return deadline_; }
  // The action, which may end this object.
  std::move_only_function<void()> take() {
    unlink();
    return std::move(action_);
  }
  friend bool operator<(const DueAlarm& a, const DueAlarm& b) { return a.deadline_ < b.deadline_; }

 private:
  MonoTime deadline_;
  std::move_only_function<void()> action_;
};

// By deadline; equal ones in the order they came.
struct Loop::Alarms : intrusive::multiset<DueAlarm, intrusive::constant_time_size<false>> {};

Loop::Loop() : alarms_(std::make_unique<Alarms>()) {}
Loop::~Loop() = default;

MonoTime Loop::now() const { return boot_now(); }

std::unique_ptr<Timer::Alarm> Loop::at(MonoTime deadline, std::move_only_function<void()> action) {
  auto alarm = std::make_unique<DueAlarm>(deadline, std::move(action));
  alarms_->insert(*alarm);
  arm();
  return alarm;
}

void Loop::arm() {
  if (alarms_->empty()) return;
  const auto first = alarms_->begin()->deadline();
  if (armed_ && *armed_ <= first) return;
  armed_ = first;
  timer_.expires_after(std::max(first - boot_now(), BootClock::duration::zero()));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    armed_.reset();
    fire();
  });
}

void Loop::fire() {
  const auto now = boot_now();
  while (!alarms_->empty() && alarms_->begin()->deadline() <= now) {
    auto action = alarms_->begin()->take();
    action();
  }
  arm();
}

int Loop::run(Task<int> main, std::move_only_function<void()> on_stop) {
  int status = 1;
  bool done = false;
  net::signal_set signals(context_, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code& error, int) {
    if (!error && on_stop) on_stop();
  });
  auto wrapped = [](Task<int> inner) -> Task<int> {
    co_await net::this_coro::throw_if_cancelled(false);
    co_return co_await std::move(inner);
  };
  net::co_spawn(context_, wrapped(std::move(main)),
                [&](const std::exception_ptr& error, int result) {
                  if (error) std::rethrow_exception(error);
                  status = result;
                  done = true;
                  context_.stop();
                });
  context_.restart();  // an earlier run() stopped it
  while (!done && !context_.stopped()) context_.run();
  return status;
}

WallTime SystemClock::now() const {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

}  // namespace space::asio
