// A hostile peer of the guest agent. Input: one byte, how far the peer gets honestly (0: not at
// all, 1: CONNECT, 2: both HELLOs, 3: the proof), then what it sends from there on. Without the
// proof nothing is touched.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "services/spaced_guest/guest_agent.h"
#include "services/spaced_guest/testing/bridge.h"
#include "services/spaced_guest/testing/fake_guest.h"
#include "sim/network.h"

using namespace space;
using guest::testing::Bridge;

namespace {

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

// The peer's end, kept while a Bridge that speaks through it comes and goes.
class Through final : public Stream {
 public:
  explicit Through(Stream& stream) : stream_(stream) {}
  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    return stream_.read_some(buffer);
  }
  Task<IoResult<void>> write_all(ByteView data) override { return stream_.write_all(data); }
  void close() override { stream_.close(); }

 private:
  Stream& stream_;
};

// Accepts the one connection there is.
class OneStream final : public Listener {
 public:
  explicit OneStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    if (!stream_) co_return io_error(std::errc::operation_canceled);
    co_return std::move(stream_);
  }
  void close() override {}

 private:
  std::unique_ptr<Stream> stream_;
};

Task<void> behave(Stream& stream, Bridge& bridge, unsigned honest) {
  if (honest == 1) {
    const std::string line = "CONNECT 1024\n";
    co_await stream.write_all(as_bytes(line));
    std::array<std::byte, 64> answer;
    co_await stream.read_some(answer);
  }
  if (honest >= 2) SPACE_ASSERT(co_await bridge.greet(std::make_unique<Through>(stream)));
  if (honest >= 3) {
    SPACE_ASSERT(co_await bridge.challenge());
    bridge.acknowledge();
    bridge.start();
  }
}

Task<void> send(Stream& stream, ByteView bytes) { co_await stream.write_all(bytes); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned honest = data[0] % 4;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);

  sim::World world(1);
  sim::SimNetwork network(world);
  sim::SimEntropy entropy(1);
  NoLog log;
  guest::testing::FakeFiles files;
  guest::testing::FakeProcesses processes(world);
  guest::testing::FakeClock clock;
  guest::GuestAgent::Options options;
  options.sandbox = *identity::SandboxId::parse("abc");
  guest::GuestAgent agent(options, guest::testing::secret_of('s'),
                          {world, entropy, log, files, processes, clock});
  auto [peer, own] = network.pair();
  OneStream listener(std::move(own));
  Bridge bridge(world);
  SPACE_ASSERT(world.run(agent.serve(listener)));
  SPACE_ASSERT(world.run(behave(*peer, bridge, honest)));
  world.run_for(std::chrono::milliseconds(1));
  // Frame by frame, where the bytes look like frames, so that the agent answers in between.
  for (auto rest = bytes; !rest.empty();) {
    const std::size_t length = ByteReader(rest).u32();
    const auto part = rest.first(std::min(rest.size(), wire::hop::kHeaderBytes + length));
    SPACE_ASSERT(world.run(send(*peer, part)));
    world.run_for(std::chrono::milliseconds(1));
    rest = rest.subspan(part.size());
  }
  world.run_for(std::chrono::seconds(1));
  if (honest < 3) {
    SPACE_ASSERT(!agent.route() && files.calls == 0 && processes.started == 0 && !clock.set_to);
  }
  SPACE_ASSERT(world.run(bridge.stop()));
  world.run_for(guest::kProofDeadline + std::chrono::seconds(1));
  peer->close();
  SPACE_ASSERT(world.run(agent.stop()));
  SPACE_ASSERT(agent.connections() == 0);
  return 0;
}
