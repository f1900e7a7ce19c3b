#include "sim/network.h"

#include <algorithm>
#include <deque>

#include "ports/notifier.h"

namespace space::sim {

// Two directions of bytes; side 0 dialled, side 1 accepted.
struct SimNetwork::Pipe {
  struct Direction {
    std::deque<std::byte> arrived;
    std::size_t in_flight = 0;
    MonoTime last_arrival{};
    bool ended = false;  // orderly end has arrived
    Notifier changed;
  };
  std::string nodes[2];
  PeerCredentials credentials[2];
  bool perfect = false;
  bool broken = false;
  bool closed[2] = {false, false};
  Direction to[2];  // to[i]: bytes towards side i

  void break_now() {
    broken = true;
    for (auto& direction : to) direction.changed.notify();
  }
};

struct SimNetwork::Door {
  std::string node;
  std::deque<std::unique_ptr<Stream>> waiting;
  bool open = true;
  Notifier changed;
};

class SimStream final : public Stream {
 public:
  SimStream(SimNetwork& network, std::shared_ptr<SimNetwork::Pipe> pipe, int side)
      : network_(network), pipe_(std::move(pipe)), side_(side) {}
  ~SimStream() override { SimStream::close(); }

  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    const auto pipe = pipe_;
    auto& in = pipe->to[side_];
    for (;;) {
      if (pipe->closed[side_]) co_return io_error(std::errc::operation_canceled);
      if (!in.arrived.empty()) {
        const auto count = std::min(buffer.size(), in.arrived.size());
        std::copy_n(in.arrived.begin(), count, buffer.begin());
        in.arrived.erase(in.arrived.begin(),
                         in.arrived.begin() + static_cast<std::ptrdiff_t>(count));
        in.changed.notify();
        co_return count;
      }
      if (pipe->broken) co_return io_error(std::errc::connection_reset);
      if (in.ended) co_return std::size_t{0};
      if (co_await in.changed.wait(network_.world_) == Notifier::Wake::kCancelled) {
        co_return io_error(std::errc::operation_canceled);
      }
    }
  }

  Task<IoResult<void>> write_all(ByteView data) override {
    const auto pipe = pipe_;
    auto& out = pipe->to[1 - side_];
    auto& world = network_.world_;
    const auto& faults = network_.faults_;
    while (!data.empty()) {
      if (pipe->closed[side_]) co_return io_error(std::errc::operation_canceled);
      if (pipe->broken || pipe->closed[1 - side_]) co_return io_error(std::errc::broken_pipe);
      // A bounded send buffer: a reader that stops makes the writer wait.
      if (out.in_flight + out.arrived.size() >= kBufferBytes) {
        if (co_await out.changed.wait(world) == Notifier::Wake::kCancelled) {
          co_return io_error(std::errc::operation_canceled);
        }
        continue;
      }
      std::size_t count = std::min(data.size(), kBufferBytes);
      BootClock::duration delay{};
      if (!pipe->perfect) {
        if (world.random().permille(faults.reset_permille)) {
          pipe->break_now();
          co_return io_error(std::errc::connection_reset);
        }
        if (world.random().permille(faults.split_permille)) {
          count = std::min<std::size_t>(count, 1 + world.random().below(7));
        }
        delay = faults.latency + BootClock::duration(static_cast<std::int64_t>(world.random().below(
                                     static_cast<std::uint64_t>(faults.jitter.count()) + 1)));
        if (world.random().permille(faults.slow_permille)) {
          delay += BootClock::duration(static_cast<std::int64_t>(
              world.random().below(static_cast<std::uint64_t>(faults.slow.count()) + 1)));
        }
      }
      send(pipe, 1 - side_, Bytes(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(count)),
           delay);
      data = data.subspan(count);
    }
    co_return IoResult<void>{};
  }

  void close() override {
    if (pipe_->closed[side_]) return;
    pipe_->closed[side_] = true;
    pipe_->to[side_].changed.notify();
    pipe_->to[1 - side_].changed.notify();
    auto& out = pipe_->to[1 - side_];
    auto& world = network_.world_;
    const auto when = std::max(out.last_arrival, world.now());
    world.schedule(when, [pipe = pipe_, side = 1 - side_] {
      pipe->to[side].ended = true;
      pipe->to[side].changed.notify();
    });
  }

  void reset() override {
    pipe_->to[1 - side_].arrived.clear();
    pipe_->break_now();
    close();
  }

  std::optional<PeerCredentials> peer() const override { return pipe_->credentials[1 - side_]; }

 private:
  static constexpr std::size_t kBufferBytes = 256 * 1024;

  void send(const std::shared_ptr<SimNetwork::Pipe>& pipe, int side, Bytes bytes,
            BootClock::duration delay) {
    auto& direction = pipe->to[side];
    auto& world = network_.world_;
    direction.in_flight += bytes.size();
    const auto when = std::max(direction.last_arrival, world.now() + delay);
    direction.last_arrival = when;
    deliver_at(network_, pipe, side, std::move(bytes), when);
  }

  static void deliver_at(SimNetwork& network, const std::shared_ptr<SimNetwork::Pipe>& pipe,
                         int side, Bytes bytes, MonoTime when) {
    network.world_.schedule(when, [&network, pipe, side, bytes = std::move(bytes)]() mutable {
      auto& direction = pipe->to[side];
      if (pipe->broken) return;
      if (network.is_cut(pipe->nodes[0], pipe->nodes[1])) {
        const auto later = network.world_.now() + std::chrono::milliseconds(100);
        direction.last_arrival = std::max(direction.last_arrival, later);
        deliver_at(network, pipe, side, std::move(bytes), later);
        return;
      }
      direction.in_flight -= bytes.size();
      direction.arrived.insert(direction.arrived.end(), bytes.begin(), bytes.end());
      direction.changed.notify();
    });
  }

  SimNetwork& network_;
  std::shared_ptr<SimNetwork::Pipe> pipe_;
  int side_;
};

class SimListener final : public Listener {
 public:
  SimListener(SimNetwork& network, std::shared_ptr<SimNetwork::Door> door)
      : network_(network), door_(std::move(door)) {}
  ~SimListener() override { SimListener::close(); }
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    const auto door = door_;
    for (;;) {
      if (!door->open) co_return io_error(std::errc::operation_canceled);
      if (!door->waiting.empty()) {
        auto stream = std::move(door->waiting.front());
        door->waiting.pop_front();
        co_return stream;
      }
      if (co_await door->changed.wait(network_.world_) == Notifier::Wake::kCancelled) {
        co_return io_error(std::errc::operation_canceled);
      }
    }
  }
  void close() override {
    door_->open = false;
    door_->waiting.clear();
    door_->changed.notify();
  }

 private:
  SimNetwork& network_;
  std::shared_ptr<SimNetwork::Door> door_;
};

class SimDialer final : public Dialer {
 public:
  SimDialer(SimNetwork& network, std::string node, PeerCredentials credentials, bool local)
      : network_(network), node_(std::move(node)), credentials_(credentials), local_(local) {}
  Task<IoResult<std::unique_ptr<Stream>>> dial(std::string address, MonoTime deadline) override {
    auto& world = network_.world_;
    const auto when = world.now() + network_.faults_.latency;
    co_await sleep_until(world, std::min(when, deadline));
    if (when > deadline) co_return io_error(std::errc::timed_out);
    const auto found = network_.doors_.find(address);
    const auto door = found == network_.doors_.end() ? nullptr : found->second.lock();
    if (!door || !door->open || network_.is_cut(node_, door->node) ||
        (!local_ && world.random().permille(network_.faults_.refuse_permille))) {
      co_return io_error(std::errc::connection_refused);
    }
    auto pipe = std::make_shared<SimNetwork::Pipe>();
    pipe->nodes[0] = node_;
    pipe->nodes[1] = door->node;
    pipe->credentials[0] = credentials_;
    pipe->perfect = local_;
    network_.pipes_.push_back(pipe);
    door->waiting.push_back(std::make_unique<SimStream>(network_, pipe, 1));
    door->changed.notify();
    co_return std::make_unique<SimStream>(network_, pipe, 0);
  }

 private:
  SimNetwork& network_;
  std::string node_;
  PeerCredentials credentials_;
  bool local_;
};

std::unique_ptr<Dialer> SimNetwork::dialer(std::string node, PeerCredentials credentials,
                                           bool local) {
  return std::make_unique<SimDialer>(*this, std::move(node), credentials, local);
}

std::unique_ptr<Listener> SimNetwork::listen(std::string node, std::string address) {
  auto door = std::make_shared<Door>();
  door->node = std::move(node);
  doors_[address] = door;
  return std::make_unique<SimListener>(*this, std::move(door));
}

std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> SimNetwork::pair() {
  auto pipe = std::make_shared<Pipe>();
  pipe->perfect = true;
  return {std::make_unique<SimStream>(*this, pipe, 0), std::make_unique<SimStream>(*this, pipe, 1)};
}

void SimNetwork::kill(const std::string& node) {
  std::erase_if(pipes_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : pipes_) {
    const auto pipe = weak.lock();
    if (pipe && (pipe->nodes[0] == node || pipe->nodes[1] == node)) pipe->break_now();
  }
}

void SimNetwork::partition(const std::string& a, const std::string& b, bool cut) {
  const auto key = a < b ? std::pair(a, b) : std::pair(b, a);
  if (cut) {
    cuts_.insert(key);
  } else {
    cuts_.erase(key);
  }
}

bool SimNetwork::is_cut(const std::string& a, const std::string& b) const {
  return cuts_.contains(a < b ? std::pair(a, b) : std::pair(b, a));
}

}  // namespace space::sim
