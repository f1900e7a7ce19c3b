// The real guest agent behind a listener that counts the operations and data frames reaching it, in
// the file `count` beside its socket. For tests of what a refused request leaves behind: nothing.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "adapters/asio/loop.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/guest_linux/files.h"
#include "adapters/guest_linux/machine.h"
#include "adapters/guest_linux/processes.h"
#include "adapters/telemetry/json_log.h"
#include "services/spaced_guest/guest_agent.h"

namespace {

using namespace space;
namespace frame = wire::hop;

constexpr int kListenFolder = 3;
constexpr int kSecret = 4;

class Counter {
 public:
  Counter() : fd_(::openat(kListenFolder, "count", O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) {
    store();
  }
  void add() {
    ++count_;
    store();
  }

 private:
  void store() {
    const auto text = std::to_string(count_) + "\n";
    if (::pwrite(fd_, text.data(), text.size(), 0) < 0) ::_exit(3);
  }
  int fd_;
  std::uint64_t count_ = 0;
};

class CountingStream final : public Stream {
 public:
  CountingStream(std::unique_ptr<Stream> inner, Counter& counter)
      : inner_(std::move(inner)), counter_(counter) {}
  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    auto count = co_await inner_->read_some(buffer);
    if (count) observe(ByteView(buffer).first(*count));
    co_return count;
  }
  Task<IoResult<void>> write_all(ByteView data) override { return inner_->write_all(data); }
  void close() override { inner_->close(); }
  std::optional<PeerCredentials> peer() const override { return inner_->peer(); }

 private:
  void observe(ByteView bytes) {
    // The CONNECT line comes first; frames follow.
    while (!framed_ && !bytes.empty()) {
      framed_ = bytes.front() == std::byte{'\n'};
      bytes = bytes.subspan(1);
    }
    decoder_.feed(bytes);
    for (;;) {
      const auto next = decoder_.next();
      if (!next || !*next) return;
      const auto type = frame::type_of((*next)->payload);
      if (type == frame::FrameType::kOpen || type == frame::FrameType::kData) counter_.add();
    }
  }
  std::unique_ptr<Stream> inner_;
  Counter& counter_;
  frame::Decoder decoder_;
  bool framed_ = false;
};

class CountingListener final : public Listener {
 public:
  CountingListener(Listener& inner, Counter& counter) : inner_(inner), counter_(counter) {}
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    auto accepted = co_await inner_.accept();
    if (!accepted) co_return accepted;
    co_return std::make_unique<CountingStream>(std::move(*accepted), counter_);
  }
  void close() override { inner_.close(); }

 private:
  Listener& inner_;
  Counter& counter_;
};

Task<int> serve(guest::GuestAgent& agent, Listener& listener) {
  co_await agent.serve(listener);
  co_await agent.stop();
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  guest::GuestAgent::Options options;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--sandbox") {
      const auto sandbox = identity::SandboxId::parse(argv[i + 1]);
      if (!sandbox) return 2;
      options.sandbox = *sandbox;
    }
  }
  std::array<std::byte, 32> bytes{};
  if (::read(kSecret, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return 2;
  ::close(kSecret);
  telemetry::JsonLog log("counting-guest");
  Counter counter;  // before the folder's descriptor goes to the listener
  asio::Loop loop;
  auto listener = guest_linux::listen_in(loop, kListenFolder, "v.sock");
  if (!listener) return 1;
  crypto::SystemEntropy entropy;
  guest_linux::LinuxFiles files(loop, entropy);
  guest_linux::LinuxProcesses processes(loop);
  guest_linux::LinuxClock clock;
  options.boot_id = guest_linux::boot_id();
  guest::GuestAgent agent(std::move(options), GuestSecret(std::span<const std::byte, 32>(bytes)),
                          {loop, entropy, log, files, processes, clock});
  CountingListener counting(**listener, counter);
  return loop.run(serve(agent, counting), [&listener] { (*listener)->close(); });
}
