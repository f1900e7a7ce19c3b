#include "sim/world.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>

namespace space::sim {
namespace net = boost::asio;

namespace {
// Takes its event out of the queue when destroyed.
class EventAlarm final : public Timer::Alarm {
 public:
  explicit EventAlarm(std::shared_ptr<bool> live) : live_(std::move(live)) {}
  ~EventAlarm() override { *live_ = false; }

 private:
  std::shared_ptr<bool> live_;
};
}  // namespace

std::unique_ptr<Timer::Alarm> World::at(MonoTime deadline, std::move_only_function<void()> action) {
  auto live = std::make_shared<bool>(true);
  schedule(deadline, [live, action = std::move(action)]() mutable {
    if (*live) action();
  });
  return std::make_unique<EventAlarm>(std::move(live));
}

void World::schedule(MonoTime when, std::move_only_function<void()> action) {
  events_.emplace(std::pair(std::max(when, now_), sequence_++), std::move(action));
}

void World::run_until(MonoTime end) {
  for (;;) {
    loop_.restart();
    loop_.poll();
    if (events_.empty() || events_.begin()->first.first > end) {
      now_ = std::max(now_, std::min(end, MonoTime::max()));
      return;
    }
    auto next = events_.extract(events_.begin());
    now_ = next.key().first;
    ++steps_;
    if (check_) check_();
    next.mapped()();
  }
}

bool World::run(Task<void> task, BootClock::duration limit) {
  bool done = false;
  auto wrapped = [](Task<void> inner) -> Task<void> {
    co_await net::this_coro::throw_if_cancelled(false);
    co_await std::move(inner);
  };
  net::co_spawn(loop_, wrapped(std::move(task)), [&done](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
    done = true;
  });
  const auto end = now_ + limit;
  while (!done) {
    loop_.restart();
    loop_.poll();
    if (done || events_.empty() || events_.begin()->first.first > end) break;
    run_until(events_.begin()->first.first);
  }
  return done;
}

void World::note(std::string_view fact) {
  for (const char c : fact) {
    digest_ = (digest_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  digest_ =
      (digest_ ^ static_cast<std::uint64_t>(now_.time_since_epoch().count())) * 0x100000001b3ULL;
}

WallTime SimClock::now() const {
  constexpr WallTime kStart{std::chrono::milliseconds{1'800'000'000'000}};
  return kStart +
         std::chrono::duration_cast<std::chrono::milliseconds>(world_.now().time_since_epoch()) +
         offset_;
}

void SimEntropy::fill(std::span<std::byte> out) {
  for (auto& b : out) b = static_cast<std::byte>(random_.next() & 0xff);
}

}  // namespace space::sim
