#include "sim/sim_guest.h"

#include <algorithm>

#include "base/text.h"

namespace space::sim {

using wire::hop::Outcome;

// ---- files ----

class SimGuest::Files final : public GuestFiles {
 public:
  explicit Files(SimGuest& guest) : guest_(guest) {}

  GuestResult<std::unique_ptr<GuestFileReader>> open(std::string path, std::string user,
                                                     std::uint64_t offset) override {
    guest_.executed(user, false);
    const auto at = guest_.disk_.find(path);
    if (at == guest_.disk_.end()) return guest_failure(Outcome::kNotFound, "no such file");
    return std::make_unique<Reader>(at->second, static_cast<std::size_t>(offset));
  }
  GuestResult<std::unique_ptr<GuestFileWriter>> create(std::string path, std::string user,
                                                       std::optional<std::uint32_t>) override {
    return std::make_unique<Writer>(guest_, std::move(path), std::move(user));
  }
  GuestResult<wire::FileEntry> stat(std::string path, std::string user) override {
    guest_.executed(user, false);
    return entry(path);
  }
  GuestResult<wire::FileListResult> list(std::string path, std::string user,
                                         std::uint32_t) override {
    guest_.executed(user, false);
    wire::FileListResult result;
    for (auto at = guest_.disk_.lower_bound(path);
         at != guest_.disk_.end() && at->first.starts_with(path); ++at) {
      result.entries.push_back(*entry(at->first));
    }
    return result;
  }
  Task<GuestResult<void>> remove(std::string path, std::string user,
                                 std::function<bool()>) override {
    guest_.executed(user, true);
    if (guest_.disk_.erase(path) == 0) co_return guest_failure(Outcome::kNotFound, "no such file");
    co_return GuestResult<void>{};
  }
  GuestResult<wire::FileEntry> make_dir(std::string path, std::string user) override {
    guest_.executed(user, true);
    if (!guest_.disk_.emplace(path, Bytes{}).second) {
      return guest_failure(Outcome::kAlreadyExists, "it is there");
    }
    return entry(path);
  }
  GuestResult<wire::FileEntry> move(std::string source, std::string destination,
                                    std::string user) override {
    guest_.executed(user, true);
    auto node = guest_.disk_.extract(source);
    if (node.empty()) return guest_failure(Outcome::kNotFound, "no such file");
    guest_.disk_.insert_or_assign(destination, std::move(node.mapped()));
    return entry(destination);
  }

 private:
  class Reader final : public GuestFileReader {
   public:
    Reader(Bytes bytes, std::size_t at)
        : bytes_(std::move(bytes)), at_(std::min(at, bytes_.size())) {}
    std::uint64_t size() const override { return bytes_.size(); }
    GuestResult<std::size_t> read(std::span<std::byte> buffer) override {
      const auto count = std::min(buffer.size(), bytes_.size() - at_);
      std::ranges::copy(std::span(bytes_).subspan(at_, count), buffer.begin());
      at_ += count;
      return count;
    }

   private:
    Bytes bytes_;
    std::size_t at_;
  };
  class Writer final : public GuestFileWriter {
   public:
    Writer(SimGuest& guest, std::string path, std::string user)
        : guest_(guest), path_(std::move(path)), user_(std::move(user)) {}
    GuestResult<void> write(ByteView bytes) override {
      content_.insert(content_.end(), bytes.begin(), bytes.end());
      return {};
    }
    GuestResult<wire::FileEntry> commit() override {
      guest_.executed(user_, true);
      guest_.disk_[path_] = std::move(content_);
      return guest_.files_->entry(path_);
    }

   private:
    SimGuest& guest_;
    std::string path_;
    std::string user_;
    Bytes content_;
  };

  GuestResult<wire::FileEntry> entry(const std::string& path) {
    const auto at = guest_.disk_.find(path);
    if (at == guest_.disk_.end()) return guest_failure(Outcome::kNotFound, "no such file");
    wire::FileEntry entry;
    entry.name = path.substr(path.rfind('/') + 1);
    entry.path = path;
    entry.size = at->second.size();
    return entry;
  }

  SimGuest& guest_;
};

// ---- processes ----

// Writes `count` numbered lines, one each interval, then exits with 0.
class SimGuest::Process final : public GuestProcess {
 public:
  Process(SimGuest& guest, std::uint64_t count, BootClock::duration interval)
      : guest_(guest),
        count_(count),
        interval_(interval),
        due_(guest.world_.world.now() + interval) {}

  Task<std::optional<Event>> next() override {
    auto& timer = guest_.world_.world;
    while (!killed_ && (timer.now() < due_ || guest_.frozen_)) {
      if (guest_.frozen_) {
        if (!co_await guest_.running()) co_return std::nullopt;
        continue;
      }
      if (co_await changed_.wait(timer, due_) == Notifier::Wake::kCancelled) co_return std::nullopt;
    }
    due_ = timer.now() + interval_;
    if (killed_ || written_ == count_) {
      exited_ = true;
      wire::ProcessExited exited;
      if (killed_) exited.signal = *killed_;
      exited.exit_code = killed_ ? 128 + *killed_ : 0;
      co_return exited;
    }
    co_return wire::ProcessOutput{wire::OutputChannel::kStdout,
                                  to_bytes(std::to_string(written_++) + "\n")};
  }
  Task<GuestResult<void>> write_input(ByteView) override {
    co_return guest_failure(Outcome::kConflict, "stdin is closed");
  }
  void close_input() override {}
  bool running() const override { return !exited_; }
  void signal(int signal) override { signal_tree(signal); }
  void signal_tree(int signal) override {
    killed_ = signal;
    changed_.notify();
  }

 private:
  SimGuest& guest_;
  std::uint64_t count_;
  BootClock::duration interval_;
  MonoTime due_;
  std::uint64_t written_ = 0;
  std::optional<int> killed_;
  bool exited_ = false;
  Notifier changed_;
};

// The one command: "count <lines> <milliseconds between them>".
class SimGuest::Processes final : public GuestProcesses {
 public:
  explicit Processes(SimGuest& guest) : guest_(guest) {}
  GuestResult<std::unique_ptr<GuestProcess>> start(wire::ProcessSpec spec) override {
    if (spec.command != "count" || spec.arguments.size() != 2) {
      return guest_failure(Outcome::kNotFound, "no such command");
    }
    guest_.executed(spec.user, true);
    return std::make_unique<Process>(
        guest_, parse_decimal(spec.arguments[0]).value_or(0),
        std::chrono::milliseconds(parse_decimal(spec.arguments[1]).value_or(1)));
  }

 private:
  SimGuest& guest_;
};

class SimGuest::Clock final : public GuestClock {
 public:
  void set(WallTime) override {}
};

// ---- freezing: whatever would wake the agent waits ----

class SimGuest::FrozenStream final : public Stream {
 public:
  FrozenStream(SimGuest& guest, std::unique_ptr<Stream> inner)
      : guest_(guest), inner_(std::move(inner)) {}
  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    auto count = co_await inner_->read_some(buffer);
    while (guest_.frozen_) {
      if (!co_await guest_.running()) co_return io_error(std::errc::operation_canceled);
    }
    co_return count;
  }
  Task<IoResult<void>> write_all(ByteView data) override {
    while (guest_.frozen_) {
      if (!co_await guest_.running()) co_return io_error(std::errc::operation_canceled);
    }
    co_return co_await inner_->write_all(data);
  }
  void close() override { inner_->close(); }
  std::optional<PeerCredentials> peer() const override { return inner_->peer(); }

 private:
  SimGuest& guest_;
  std::unique_ptr<Stream> inner_;
};

class SimGuest::FrozenListener final : public Listener {
 public:
  FrozenListener(SimGuest& guest, std::unique_ptr<Listener> inner)
      : guest_(guest), inner_(std::move(inner)) {}
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    auto accepted = co_await inner_->accept();
    if (!accepted) co_return std::unexpected(accepted.error());
    while (guest_.frozen_) {
      if (!co_await guest_.running()) co_return io_error(std::errc::operation_canceled);
    }
    co_return std::make_unique<FrozenStream>(guest_, *std::move(accepted));
  }
  void close() override { inner_->close(); }

 private:
  SimGuest& guest_;
  std::unique_ptr<Listener> inner_;
};

SimGuest::SimGuest(World world, std::string node, std::string handle, identity::SandboxId sandbox,
                   Disk disk, GuestSecret secret, std::map<std::string, std::string> envs)
    : world_(world),
      handle_(std::move(handle)),
      disk_(std::move(disk)),
      files_(std::make_unique<Files>(*this)),
      processes_(std::make_unique<Processes>(*this)),
      clock_(std::make_unique<Clock>()),
      listener_(std::make_unique<FrozenListener>(*this, world.network.listen(node, handle_))),
      tasks_(world.world) {
  guest::GuestAgent::Options options;
  options.sandbox = std::move(sandbox);
  options.envs = std::move(envs);
  options.boot_id = "boot-of-" + node;
  agent_ = std::make_unique<guest::GuestAgent>(
      std::move(options), std::move(secret),
      guest::GuestAgent::World{world.world, world.entropy, world.log, *files_, *processes_,
                               *clock_});
  tasks_.spawn("guest.serve", agent_->serve(*listener_));
}

SimGuest::~SimGuest() = default;

Task<void> SimGuest::stop() {
  listener_->close();
  thaw();  // so that its tasks can end
  co_await agent_->stop();
  co_await tasks_.stop();
}

void SimGuest::thaw() {
  frozen_ = false;
  thawed_.notify();
}

Task<bool> SimGuest::running() {
  while (frozen_) {
    if (co_await thawed_.wait(world_.world) == Notifier::Wake::kCancelled) co_return false;
  }
  co_return true;
}

void SimGuest::executed(const Tag& tag, bool side_effect) {
  world_.oracle.executed(handle_, tag, side_effect, frozen_);
}

}  // namespace space::sim
