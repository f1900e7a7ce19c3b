#pragma once
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "ports/clock.h"
#include "ports/entropy.h"
#include "sim/random.h"

namespace space::sim {

// A discrete-event world with a virtual clock. Asio's loop is only the queue of ready handlers;
// time and the network are entries in `events_`, ties broken by insertion order, so that a seed
// fixes the whole run. No globals: several worlds may live in one process.
class World final : public Timer {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  MonoTime now() const override { return now_; }
  std::unique_ptr<Alarm> at(MonoTime deadline, std::move_only_function<void()> action) override;
  boost::asio::any_io_executor executor() override { return loop_.get_executor(); }

  Random& random() { return random_; }
  // Runs `action` at `when` (or in the next turn, if that is past). Cannot be cancelled.
  void schedule(MonoTime when, std::move_only_function<void()> action);

  // Runs ready handlers to quiescence, then jumps to the next event, until `end` or until nothing
  // is left.
  void run_until(MonoTime end);
  void run_for(BootClock::duration duration) { run_until(now_ + duration); }
  // Runs `task` to its end; false when it was not done by `limit`. What it left running stays.
  bool run(Task<void> task, BootClock::duration limit = std::chrono::hours(1));

  // Called before each event is carried out; a simulation checks its invariants here.
  void on_step(std::function<void()> check) { check_ = std::move(check); }

  // Folds a fact into the digest of the run: two runs of a seed must agree (STYLE 3.7).
  void note(std::string_view fact);
  std::uint64_t digest() const { return digest_ ^ random_peek(); }
  std::uint64_t steps() const { return steps_; }

 private:
  std::uint64_t random_peek() const {
    auto copy = random_;
    return copy.next();
  }
  Random random_;
  MonoTime now_{std::chrono::hours(1)};  // not 0, which often means "unset"
  std::uint64_t sequence_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t digest_ = 0xcbf29ce484222325ULL;
  std::map<std::pair<MonoTime, std::uint64_t>, std::move_only_function<void()>> events_;
  std::function<void()> check_;
  boost::asio::io_context loop_{1};
};

// A node's calendar clock: virtual time plus an offset that a test may move.
class SimClock final : public WallClock {
 public:
  explicit SimClock(World& world) : world_(world) {}
  WallTime now() const override;
  void set_offset(std::chrono::milliseconds offset) { offset_ = offset; }
  std::chrono::milliseconds offset() const { return offset_; }

 private:
  World& world_;
  std::chrono::milliseconds offset_{0};
};

// Seeded "entropy", a stream of its own so that draws do not disturb the schedule.
class SimEntropy final : public Entropy {
 public:
  explicit SimEntropy(std::uint64_t seed) : random_(seed) {}
  void fill(std::span<std::byte> out) override;

 private:
  Random random_;
};

}  // namespace space::sim
