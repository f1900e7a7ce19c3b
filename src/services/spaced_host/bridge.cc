#include "services/spaced_host/bridge.h"

#include <array>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "core/identity/sha256.h"
#include "services/hop/guest_proof.h"

namespace space::spaced_host {
namespace frame = hop::frame;
namespace {

constexpr std::string_view kConnect = "CONNECT 1024\n";

hop::Connection::Options leg(frame::Role peer, identity::BootNonce boot) {
  hop::Connection::Options options;
  options.self = frame::Role::kBridge;
  options.peer = peer;
  options.dialled = true;
  options.id = "spaced-host";
  options.boot = boot;
  return options;
}

}  // namespace

// The manager's frames, to the guest.
class Bridge::FromManager final : public hop::FrameSink {
 public:
  explicit FromManager(Bridge& bridge) : bridge_(bridge) {}
  void on_frame(frame::Frame received) override {
    auto& guest = *bridge_.guest_;
    const auto stream = received.stream - 1;
    std::visit(Overload{
                   [&](frame::Open& open) { this->open(received.stream, std::move(open)); },
                   [&](frame::Credit& credit) { guest.send(frame::Frame{stream, credit}); },
                   [&](frame::Consumed& consumed) { guest.send(frame::Frame{stream, consumed}); },
                   [&](frame::End& end) { guest.send(frame::Frame{stream, std::move(end)}); },
                   [&](frame::Reset& reset) {
                     guest.discard(stream);
                     guest.send(frame::Frame{stream, reset});
                   },
                   [&](frame::Fence&) { bridge_.tasks_.spawn("bridge.fence", bridge_.fence()); },
                   [&](auto&) { bridge_.close(); },
               },
               received.payload);
  }
  void on_data(frame::StreamId stream, frame::DataView data) override {
    bridge_.guest_->send_data(stream - 1, data.bytes);
  }
  void on_close(hop::CloseCause) override { bridge_.close(); }

 private:
  void open(frame::StreamId stream, frame::Open open) {
    const auto& admitted = std::get<frame::AdmittedOp>(open.authority);
    if (admitted.route != bridge_.activation_.route ||
        admitted.epoch != bridge_.activation_.epoch) {
      bridge_.world_.log.event(Level::kAlarm, "bridge.wrong_execution",
                               {{"sandbox", admitted.route.sandbox.text()},
                                {"generation", admitted.route.generation.value}});
      bridge_.close();
      return;
    }
    if (!bridge_.guest_->rules().may_open()) {
      frame::Refused refused{frame::Unavailable{frame::UnavailableReason::kOverloaded, 0}};
      bridge_.manager_.send(frame::Frame{stream, std::move(refused)});
      return;
    }
    bridge_.guest_->send(frame::Frame{stream - 1, std::move(open)});
  }

  Bridge& bridge_;
};

// The guest's frames, to the manager. Only what is named here passes (P-20).
class Bridge::FromGuest final : public hop::FrameSink {
 public:
  explicit FromGuest(Bridge& bridge) : bridge_(bridge) {}
  void on_frame(frame::Frame received) override {
    auto& manager = bridge_.manager_;
    const auto stream = received.stream + 1;
    std::visit(Overload{
                   [&](frame::Opened& opened) { manager.send(frame::Frame{stream, opened}); },
                   [&](frame::Credit& credit) { manager.send(frame::Frame{stream, credit}); },
                   [&](frame::Consumed& consumed) { manager.send(frame::Frame{stream, consumed}); },
                   [&](frame::End& end) { manager.send(frame::Frame{stream, std::move(end)}); },
                   [&](frame::Reset& reset) {
                     // What was forwarded is ours to say: the guest had the OPEN (P-19).
                     reset.forwarded = frame::Forwarded::kSome;
                     manager.send(frame::Frame{stream, reset});
                   },
                   [&](auto&) { bridge_.close(); },
               },
               received.payload);
  }
  void on_data(frame::StreamId stream, frame::DataView data) override {
    bridge_.manager_.send_data(stream + 1, data.bytes);
  }
  void on_close(hop::CloseCause cause) override {
    if (cause != hop::CloseCause::kLocal) {
      bridge_.world_.log.event(
          Level::kInfo, "bridge.guest_ended",
          {{"sandbox", bridge_.activation_.route.sandbox.text()}, {"reason", to_string(cause)}});
    }
    bridge_.close();
  }

 private:
  Bridge& bridge_;
};

Bridge::Bridge(std::unique_ptr<Stream> manager, std::unique_ptr<Stream> guest, World world)
    : world_(world),
      boot_(random_id<identity::BootNonce>(world.entropy)),
      manager_(std::move(manager), world.timer, leg(frame::Role::kManager, boot_)),
      guest_stream_(std::move(guest)),
      tasks_(world.timer) {}

Bridge::~Bridge() = default;

void Bridge::close() {
  manager_.close();
  if (guest_) guest_->close();
  if (guest_stream_) guest_stream_->close();
}

Task<void> Bridge::run() {
  auto activation = co_await await_activation();
  if (!activation) {
    close();
    co_return;
  }
  activation_ = *std::move(activation);
  auto outcome = co_await connect_guest();
  if (outcome == Outcome::kReady) outcome = co_await prove();
  if (outcome == Outcome::kReady && activation_.rekey) {
    outcome = co_await rekey(*activation_.rekey);
  }
  if (outcome != Outcome::kReady || activation_.rekey) {
    co_await answer(outcome);
    close();
    co_return;
  }
  co_await relay();
}

Task<std::optional<frame::Activate>> Bridge::await_activation() {
  const auto deadline = world_.timer.now() + kHandshakeDeadline;
  const auto hello = co_await manager_.handshake(deadline);
  if (!hello) co_return std::nullopt;
  auto received = co_await manager_.read_frame(deadline);
  if (!received) co_return std::nullopt;
  auto* activate = std::get_if<frame::Activate>(&received->payload);
  if (activate == nullptr) co_return std::nullopt;
  co_return std::move(*activate);
}

// One write, for it must arrive in one segment; the answer byte by byte, since HELLO may follow it
// at once (VM.md 1.2).
Task<frame::ActivateOutcome> Bridge::connect_guest() {
  bool late = false;
  const auto alarm = world_.timer.at(world_.timer.now() + kConnectDeadline, [this, &late] {
    late = true;
    guest_stream_->close();
  });
  std::string line;
  const auto written = co_await guest_stream_->write_all(as_bytes(kConnect));
  bool ended = !written;
  while (!ended && !line.ends_with('\n') && line.size() < kMaxConnectAnswer) {
    std::array<std::byte, 1> byte{};
    const auto count = co_await guest_stream_->read_some(byte);
    ended = !count || *count == 0;
    if (!ended) line.push_back(std::to_integer<char>(byte[0]));
  }
  if (late) co_return Outcome::kConnectTimedOut;
  if (ended) co_return Outcome::kConnectRefused;
  if (!line.starts_with("OK ") || !line.ends_with('\n') ||
      !parse_decimal(std::string_view(line).substr(3, line.size() - 4))) {
    co_return Outcome::kProtocol;
  }
  guest_ = std::make_unique<hop::Connection>(std::move(guest_stream_), world_.timer,
                                             leg(frame::Role::kGuest, boot_));
  co_return Outcome::kReady;
}

Task<frame::ActivateOutcome> Bridge::prove() {
  const GuestSecret secret(std::span(activation_.secret).first<32>());
  ::explicit_bzero(activation_.secret.data(), activation_.secret.size());
  const auto deadline = world_.timer.now() + kHandshakeDeadline;
  const auto failed = [](const std::error_code& error) {
    // A guest that is slow or closes proves nothing, neither that it is another one.
    if (error == std::errc::protocol_error) return Outcome::kProtocol;
    return error == std::errc::timed_out ? Outcome::kConnectTimedOut : Outcome::kConnectRefused;
  };
  const auto hello = co_await guest_->handshake(deadline);
  if (!hello) co_return failed(hello.error());
  hop::ProofInput input;
  input.bridge = guest_->own_hello();
  input.guest = *hello;
  input.challenge = frame::Challenge{random_id<frame::Nonce>(world_.entropy), activation_.route};
  guest_->send(frame::Frame{0, input.challenge});
  const auto received = co_await guest_->read_frame(deadline);
  if (!received) co_return failed(received.error());
  const auto* proof = std::get_if<frame::Proof>(&received->payload);
  if (proof == nullptr) co_return Outcome::kProtocol;
  input.guest_nonce = proof->nonce;
  input.boot_id = proof->boot_id;
  const auto expected = hop::guest_proof(secret, input);
  if (!identity::constant_time_equal(expected.view(), proof->mac.view())) {
    co_return Outcome::kProofFailed;
  }
  boot_id_ = proof->boot_id;
  guest_->send(frame::Frame{0, frame::ProofAck{hop::bridge_proof(secret, input)}});
  co_return Outcome::kReady;
}

Task<frame::ActivateOutcome> Bridge::rekey(frame::Rekey rekey) {
  guest_->send(frame::Frame{0, std::move(rekey)});
  const auto received = co_await guest_->read_frame(world_.timer.now() + kHandshakeDeadline);
  if (!received || !std::holds_alternative<frame::Rekeyed>(received->payload)) {
    co_return Outcome::kRekeyFailed;
  }
  co_return Outcome::kReady;
}

// Tells the manager and waits until it has left, since nothing else happens on this connection.
Task<void> Bridge::answer(Outcome outcome) {
  frame::ActivateAck ack{outcome, outcome == Outcome::kReady ? boot_id_ : std::string()};
  manager_.send(frame::Frame{0, std::move(ack)});
  co_await manager_.read_frame(world_.timer.now() + kHandshakeDeadline);
}

Task<void> Bridge::relay() {
  frame::ActivateAck ack{Outcome::kReady, boot_id_};
  manager_.send(frame::Frame{0, std::move(ack)});
  FromManager from_manager(*this);
  FromGuest from_guest(*this);
  tasks_.spawn("bridge.manager", manager_.run(from_manager));
  tasks_.spawn("bridge.guest", guest_->run(from_guest));
  co_await tasks_.join();
}

Task<void> Bridge::fence() {
  if (co_await guest_->round_trip(world_.timer.now() + kFenceDeadline)) {
    manager_.send(frame::Frame{0, frame::Fenced{}});
  } else {
    close();
  }
}

}  // namespace space::spaced_host
