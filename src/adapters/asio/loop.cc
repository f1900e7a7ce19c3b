#include "adapters/asio/loop.h"

#include <time.h>

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <map>

namespace space::asio {
namespace net = boost::asio;

namespace {

MonoTime boot_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return MonoTime{std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec)};
}

}  // namespace

// One Asio timer for the whole loop, armed for the earliest alarm: an alarm costs a map entry, and
// CLOCK_BOOTTIME decides when it is due, so that time spent suspended counts.
struct Loop::Alarms {
  explicit Alarms(net::io_context& context) : timer(context) {}
  using Key = std::pair<MonoTime, std::uint64_t>;

  void arm() {
    if (due.empty()) return;
    const auto first = due.begin()->first.first;
    if (armed && *armed <= first) return;
    armed = first;
    const auto wait = std::max(first - boot_now(), BootClock::duration::zero());
    timer.expires_after(wait);
    timer.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      armed.reset();
      fire();
    });
  }
  void fire() {
    const auto now = boot_now();
    while (!due.empty() && due.begin()->first.first <= now) {
      auto entry = due.extract(due.begin());
      entry.mapped()();
    }
    arm();
  }

  net::steady_timer timer;
  std::map<Key, std::move_only_function<void()>> due;
  std::optional<MonoTime> armed;
  std::uint64_t sequence = 0;
};

namespace {
template <class Alarms>
class MapAlarm final : public Timer::Alarm {
 public:
  MapAlarm(std::shared_ptr<Alarms> alarms, typename Alarms::Key key)
      : alarms_(std::move(alarms)), key_(key) {}
  ~MapAlarm() override { alarms_->due.erase(key_); }

 private:
  std::shared_ptr<Alarms> alarms_;
  typename Alarms::Key key_;
};
}  // namespace

Loop::Loop() : alarms_(std::make_shared<Alarms>(context_)) {}
Loop::~Loop() {
  // Tasks still suspended go with the context; their alarms must not outlive the timer's service.
  alarms_->timer.cancel();
}

MonoTime Loop::now() const { return boot_now(); }

std::unique_ptr<Timer::Alarm> Loop::at(MonoTime deadline, std::move_only_function<void()> action) {
  const Alarms::Key key{deadline, alarms_->sequence++};
  alarms_->due.emplace(key, std::move(action));
  alarms_->arm();
  return std::make_unique<MapAlarm<Alarms>>(alarms_, key);
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
