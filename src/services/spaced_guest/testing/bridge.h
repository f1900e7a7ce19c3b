#pragma once
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/secret.h"
#include "core/wire/messages.h"
#include "services/hop/guest_proof.h"
#include "services/hop/mux.h"

// The bridge's end of the guest leg, for tests.
namespace space::guest::testing {

namespace frame = hop::frame;

inline GuestSecret secret_of(char c) {
  std::array<std::byte, 32> bytes;
  bytes.fill(static_cast<std::byte>(c));
  return GuestSecret(std::span<const std::byte, 32>(bytes));
}

inline identity::RouteIdentity route_of(std::uint64_t generation,
                                        std::string_view sandbox = "abc") {
  identity::RouteIdentity route;
  route.sandbox = *identity::SandboxId::parse(sandbox);
  route.generation = {generation};
  route.worker = *identity::WorkerId::parse("w1");
  return route;
}

class Bridge {
 public:
  explicit Bridge(Timer& timer, identity::RouteIdentity route = route_of(7), char secret = 's')
      : timer_(timer), route_(std::move(route)), secret_(secret_of(secret)), tasks_(timer) {}

  // CONNECT, HELLO and the proof both ways; then serves the connection in the background. False
  // when the guest closed or proved wrongly.
  Task<bool> connect(std::unique_ptr<Stream> stream) {
    if (!co_await greet(std::move(stream))) co_return false;
    if (!co_await challenge()) co_return false;
    acknowledge();
    start();
    co_return true;
  }
  Task<bool> greet(std::unique_ptr<Stream> stream) {
    const std::string line = "CONNECT 1024\n";
    if (!co_await stream->write_all(as_bytes(line))) co_return false;
    std::string answer;
    while (!answer.ends_with('\n')) {
      std::array<std::byte, 1> byte;
      const auto count = co_await stream->read_some(byte);
      if (!count || *count == 0) co_return false;
      answer += as_text(byte);
    }
    ok_line = answer;
    hop::Connection::Options options{
        frame::Role::kBridge, frame::Role::kGuest, true, "host", {}, true};
    connection_ = std::make_unique<hop::Connection>(std::move(stream), timer_, std::move(options));
    const auto hello = co_await connection_->handshake(deadline());
    co_return hello.has_value();
  }
  // Sends CHALLENGE and judges the PROOF.
  Task<bool> challenge() {
    frame::Challenge challenge{*frame::Nonce::from(Bytes(32, std::byte{9})), route_};
    input_ = {connection_->own_hello(), connection_->peer(), challenge, {}, {}};
    connection_->send(frame::Frame{0, std::move(challenge)});
    const auto received = co_await connection_->read_frame(deadline());
    if (!received) co_return false;
    const auto* proof = std::get_if<frame::Proof>(&received->payload);
    if (proof == nullptr) co_return false;
    input_.guest_nonce = proof->nonce;
    input_.boot_id = proof->boot_id;
    co_return proof->mac == hop::guest_proof(secret_, input_);
  }
  void acknowledge() { acknowledge(hop::bridge_proof(secret_, input_)); }
  void acknowledge(frame::Mac mac) {
    last_ack = mac;
    connection_->send(frame::Frame{0, frame::ProofAck{mac}});
  }
  void start() {
    mux_ = std::make_unique<hop::Mux>(*connection_, timer_);
    mux_->on_request([this](frame::StreamId, const frame::Payload& payload) {
      rekeyed = rekeyed || std::holds_alternative<frame::Rekeyed>(payload);
    });
    tasks_.spawn("bridge", mux_->run());
  }
  void send(frame::Frame to_send) { connection_->send(std::move(to_send)); }

  frame::Open request(policy::Operation operation, Bytes metadata) const {
    frame::Open open;
    open.operation = operation;
    open.sandbox = route_.sandbox;
    open.authority = frame::AdmittedOp{route_, 1, {1}};
    open.metadata = std::move(metadata);
    return open;
  }
  template <class T>
  std::shared_ptr<hop::Channel> open(policy::Operation operation, const T& metadata) {
    return mux_->open(request(operation, wire::encode(metadata)));
  }
  template <class T>
  Task<frame::End> call(policy::Operation operation, T metadata) {
    auto to_open = request(operation, wire::encode(metadata));
    co_return co_await hop::call(*mux_, std::move(to_open), deadline());
  }
  Task<void> stop() {
    if (connection_) connection_->close();
    co_await tasks_.stop();
  }
  hop::Mux& mux() { return *mux_; }
  bool closed() const { return !connection_ || connection_->closed(); }
  MonoTime deadline() const { return timer_.now() + std::chrono::seconds(60); }

  std::string ok_line;
  frame::Mac last_ack;
  bool rekeyed = false;

 private:
  Timer& timer_;
  identity::RouteIdentity route_;
  GuestSecret secret_;
  hop::ProofInput input_;
  std::unique_ptr<hop::Connection> connection_;
  std::unique_ptr<hop::Mux> mux_;
  TaskScope tasks_;
};

// What process.start streamed.
struct Exec {
  std::uint32_t pid = 0;
  std::string out;
  std::string err;
  std::optional<wire::ProcessExited> exited;
  bool output_after_exit = false;
  std::optional<frame::End> end;  // absent: the stream was cut
};

// Takes events as they come; `take` feeds it bytes of DATA.
class ExecReader {
 public:
  explicit ExecReader(Exec& exec) : exec_(exec) {}
  void take(ByteView bytes) {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    for (;;) {
      ByteReader reader(pending_);
      const auto record = reader.bytes32();
      if (reader.failed()) return;
      const auto event = wire::decode<wire::ProcessEvent>(record);
      if (event) apply(*event);
      pending_.erase(pending_.begin(),
                     pending_.begin() + static_cast<std::ptrdiff_t>(4 + record.size()));
    }
  }

 private:
  void apply(const wire::ProcessEvent& event) {
    if (const auto* started = std::get_if<wire::ProcessStarted>(&event.event))
      exec_.pid = started->pid;
    if (const auto* exited = std::get_if<wire::ProcessExited>(&event.event)) exec_.exited = *exited;
    if (const auto* output = std::get_if<wire::ProcessOutput>(&event.event)) {
      exec_.output_after_exit = exec_.output_after_exit || exec_.exited.has_value();
      auto& to = output->channel == wire::OutputChannel::kStdout ? exec_.out : exec_.err;
      to += as_text(output->bytes);
    }
  }
  Exec& exec_;
  Bytes pending_;
};

inline Task<Exec> collect(std::shared_ptr<hop::Channel> channel) {
  Exec exec;
  ExecReader reader(exec);
  for (;;) {
    const auto event = co_await channel->next();
    if (const auto* data = std::get_if<frame::Data>(&event)) {
      reader.take(data->bytes);
    } else if (const auto* end = std::get_if<frame::End>(&event)) {
      exec.end = *end;
      co_return exec;
    } else if (!std::holds_alternative<frame::Opened>(event) &&
               !std::holds_alternative<frame::Consumed>(event)) {
      co_return exec;
    }
  }
}

// Sends bytes on an open channel and, if `whole`, the END behind them.
inline Task<void> send_upload(std::shared_ptr<hop::Channel> channel, std::string bytes,
                              bool whole) {
  co_await channel->write(as_bytes(bytes));
  if (whole) channel->end({});
}

}  // namespace space::guest::testing
