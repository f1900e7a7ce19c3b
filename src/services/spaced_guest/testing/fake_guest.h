#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ports/guest.h"
#include "ports/notifier.h"

// An in-memory machine for the guest agent. Paths are plain keys; users are not told apart.
namespace space::guest::testing {

using wire::hop::Outcome;

class FakeFiles final : public GuestFiles {
 public:
  std::map<std::string, Bytes> files;
  std::size_t calls = 0;

  GuestResult<std::unique_ptr<GuestFileReader>> open(std::string path, std::string,
                                                     std::uint64_t offset) override {
    ++calls;
    const auto at = files.find(path);
    if (at == files.end()) return guest_failure(Outcome::kNotFound, path);
    return std::make_unique<Reader>(at->second, offset);
  }
  GuestResult<std::unique_ptr<GuestFileWriter>> create(std::string path, std::string,
                                                       std::optional<std::uint32_t>) override {
    ++calls;
    return std::make_unique<Writer>(files, std::move(path));
  }
  GuestResult<wire::FileEntry> stat(std::string path, std::string) override {
    ++calls;
    const auto at = files.find(path);
    if (at == files.end()) return guest_failure(Outcome::kNotFound, path);
    return entry(path, at->second.size());
  }
  GuestResult<wire::FileListResult> list(std::string, std::string, std::uint32_t) override {
    ++calls;
    wire::FileListResult result;
    for (const auto& [path, content] : files) result.entries.push_back(entry(path, content.size()));
    return result;
  }
  Task<GuestResult<void>> remove(std::string path, std::string, std::function<bool()>) override {
    ++calls;
    if (files.erase(path) == 0) co_return guest_failure(Outcome::kNotFound, path);
    co_return GuestResult<void>{};
  }
  GuestResult<wire::FileEntry> make_dir(std::string path, std::string) override {
    ++calls;
    return entry(path, 0);
  }
  GuestResult<wire::FileEntry> move(std::string, std::string destination, std::string) override {
    ++calls;
    return entry(destination, 0);
  }

 private:
  static wire::FileEntry entry(const std::string& path, std::size_t size) {
    wire::FileEntry entry;
    entry.name = entry.path = path;
    entry.size = size;
    return entry;
  }
  class Reader final : public GuestFileReader {
   public:
    Reader(Bytes content, std::uint64_t offset) : content_(std::move(content)), offset_(offset) {}
    std::uint64_t size() const override { return content_.size(); }
    GuestResult<std::size_t> read(std::span<std::byte> buffer) override {
      const auto at = static_cast<std::size_t>(std::min<std::uint64_t>(offset_, content_.size()));
      const auto part =
          std::span(content_).subspan(at).first(std::min(buffer.size(), content_.size() - at));
      std::ranges::copy(part, buffer.begin());
      offset_ += part.size();
      return part.size();
    }

   private:
    Bytes content_;
    std::uint64_t offset_;
  };
  class Writer final : public GuestFileWriter {
   public:
    Writer(std::map<std::string, Bytes>& files, std::string path)
        : files_(files), path_(std::move(path)) {}
    GuestResult<void> write(ByteView bytes) override {
      content_.insert(content_.end(), bytes.begin(), bytes.end());
      return {};
    }
    GuestResult<wire::FileEntry> commit() override {
      const auto size = content_.size();
      files_.insert_or_assign(path_, std::move(content_));
      return entry(path_, size);
    }

   private:
    std::map<std::string, Bytes>& files_;
    std::string path_;
    Bytes content_;
  };
};

// `echo`-like processes: they print their arguments and end; "wait" ends when killed; "cat" copies
// its stdin.
class FakeProcesses final : public GuestProcesses {
 public:
  explicit FakeProcesses(Timer& timer) : timer_(timer) {}
  std::size_t started = 0;
  wire::ProcessSpec last;
  GuestResult<std::unique_ptr<GuestProcess>> start(wire::ProcessSpec spec) override {
    if (spec.command == "missing") return guest_failure(Outcome::kNotFound, spec.command);
    ++started;
    last = spec;
    return std::make_unique<Process>(timer_, std::move(spec));
  }

 private:
  class Process final : public GuestProcess {
   public:
    Process(Timer& timer, wire::ProcessSpec spec) : timer_(timer), input_open_(spec.stdin_open) {
      for (const auto& argument : spec.arguments) print(as_bytes(argument));
      if (spec.command == "echo" || (spec.command == "cat" && !input_open_)) end(0, 0);
    }
    Task<std::optional<Event>> next() override {
      while (events_.empty()) {
        if (co_await changed_.wait(timer_) == Notifier::Wake::kCancelled) co_return std::nullopt;
      }
      auto event = std::move(events_.front());
      events_.pop_front();
      co_return event;
    }
    Task<GuestResult<void>> write_input(ByteView bytes) override {
      if (!input_open_) co_return guest_failure(Outcome::kConflict, "closed");
      print(bytes);
      co_return GuestResult<void>{};
    }
    void close_input() override {
      if (std::exchange(input_open_, false)) end(0, 0);
    }
    bool running() const override { return running_; }
    void signal(int number) override { end(128 + number, number); }
    void signal_tree(int number) override { end(128 + number, number); }

   private:
    void print(ByteView bytes) {
      wire::ProcessOutput output{wire::OutputChannel::kStdout, Bytes(bytes.begin(), bytes.end())};
      events_.emplace_back(std::move(output));
      changed_.notify();
    }
    void end(int code, int signal) {
      if (!std::exchange(running_, false)) return;
      wire::ProcessExited exited;
      exited.exit_code = code;
      exited.signal = signal;
      events_.emplace_back(exited);
      changed_.notify();
    }
    Timer& timer_;
    bool input_open_;
    bool running_ = true;
    std::deque<Event> events_;
    Notifier changed_;
  };
  Timer& timer_;
};

class FakeClock final : public GuestClock {
 public:
  std::optional<WallTime> set_to;
  void set(WallTime now) override { set_to = now; }
};

}  // namespace space::guest::testing
