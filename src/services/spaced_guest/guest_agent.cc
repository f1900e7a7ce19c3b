#include "services/spaced_guest/guest_agent.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "core/identity/sha256.h"
#include "services/hop/guest_proof.h"
#include "services/spaced_guest/process.h"

namespace space::guest {

namespace frame = hop::frame;

// One connection; lives in its serve_link task.
struct GuestAgent::Link {
  Stream* stream = nullptr;
  std::unique_ptr<hop::Connection> connection;  // owns the stream once CONNECT was answered
  bool proven = false;
  std::unique_ptr<Timer::Alarm> farewell;

  void close() {
    if (connection) {
      connection->close();
    } else {
      stream->close();
    }
  }
};

GuestAgent::GuestAgent(Options options, GuestSecret secret, World world)
    : options_(std::move(options)),
      secret_(std::move(secret)),
      world_(world),
      boot_(random_id<identity::BootNonce>(world.entropy)),
      next_public_pid_(options_.first_public_pid),
      public_pids_left_(identity::kPublicPidBlock),
      tasks_(world.timer) {}

GuestAgent::~GuestAgent() = default;

Task<void> GuestAgent::serve(Listener& listener) {
  for (;;) {
    auto accepted = co_await listener.accept();
    if (accepted) {
      tasks_.spawn("guest.link", serve_link(*std::move(accepted)));
      continue;
    }
    // Out of descriptors or memory for now: the peer waits in the backlog meanwhile.
    constexpr std::array kPassing{std::errc::too_many_files_open,
                                  std::errc::too_many_files_open_in_system,
                                  std::errc::no_buffer_space, std::errc::not_enough_memory};
    const auto passes = [&](std::errc code) { return accepted.error() == code; };
    if (!std::ranges::any_of(kPassing, passes)) co_return;
    if (!co_await sleep_for(world_.timer, std::chrono::milliseconds(100))) co_return;
  }
}

Task<void> GuestAgent::stop() {
  for (auto* link : links_) link->close();
  co_await tasks_.stop();
  processes_.clear();
}

Task<void> GuestAgent::serve_link(std::unique_ptr<Stream> stream) {
  Link link;
  link.stream = stream.get();
  links_.push_back(&link);
  const auto unproven = [](const Link* other) { return !other->proven; };
  if (static_cast<std::size_t>(std::ranges::count_if(links_, unproven)) > kMaxUnproven) {
    (*std::ranges::find_if(links_, unproven))->close();
  }
  {
    const auto late =
        world_.timer.at(world_.timer.now() + kProofDeadline, [&link] { link.close(); });
    if (co_await answer_connect(*stream)) {
      hop::Connection::Options options{
          frame::Role::kGuest, frame::Role::kBridge, false, "spaced-guest", boot_, false};
      link.connection =
          std::make_unique<hop::Connection>(std::move(stream), world_.timer, std::move(options));
      link.proven = co_await prove(link);
    }
  }
  if (link.proven) {
    close_others(link, false);
    hop::Mux mux(*link.connection, world_.timer);
    mux.on_open([this](ChannelPtr channel, frame::Open open) { opened(channel, std::move(open)); });
    mux.on_request([this, &link](frame::StreamId, const frame::Payload& payload) {
      if (const auto* request = std::get_if<frame::Rekey>(&payload)) rekey(link, *request);
    });
    co_await mux.run();
  }
  links_.remove(&link);
}

// "CONNECT <port>\n" and nothing behind it, answered by "OK <number>\n" (VM.md 1.2).
Task<bool> GuestAgent::answer_connect(Stream& stream) {
  std::array<std::byte, kMaxConnectLine> buffer{};
  std::size_t size = 0;
  while (size == 0 || buffer[size - 1] != std::byte{'\n'}) {
    if (size == buffer.size()) co_return false;
    const auto count = co_await stream.read_some(std::span(buffer).subspan(size));
    if (!count || *count == 0) co_return false;
    const auto received = ByteView(buffer).subspan(size, *count);
    const auto newline = std::ranges::find(received, std::byte{'\n'});
    if (newline != received.end() && newline + 1 != received.end()) co_return false;
    size += *count;
  }
  const auto line = as_text(ByteView(buffer).first(size - 1));
  constexpr std::string_view kKeyword = "connect ";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  if (line.size() < kKeyword.size() ||
      !std::ranges::equal(line.substr(0, kKeyword.size()), kKeyword, same) ||
      parse_decimal(line.substr(kKeyword.size())) != options_.port) {
    co_return false;
  }
  const auto answer = "OK " + std::to_string(next_host_port_++) + "\n";
  co_return (co_await stream.write_all(as_bytes(answer))).has_value();
}

// The identity may be served here: our sandbox, and no step back behind what was proven already.
bool GuestAgent::may_be(const identity::RouteIdentity& route) const {
  return route.sandbox == options_.sandbox &&
         (!route_ || route.generation > route_->generation || route == *route_);
}

const GuestSecret* GuestAgent::secret_of(const identity::RouteIdentity& route) const {
  if (may_be(route)) return &secret_;
  return replaced_ && replaced_->route == route ? &replaced_->secret : nullptr;
}

Task<bool> GuestAgent::prove(Link& link) {
  auto& connection = *link.connection;
  const auto deadline = world_.timer.now() + kProofDeadline;
  const auto hello = co_await connection.handshake(deadline);
  if (!hello) co_return false;
  auto received = co_await connection.read_frame(deadline);
  if (!received) co_return false;
  const auto* challenge = std::get_if<frame::Challenge>(&received->payload);
  const auto* secret = challenge == nullptr ? nullptr : secret_of(challenge->route);
  if (secret == nullptr) {
    world_.log.event(Level::kWarning, "guest.challenge_refused", {});
    co_return false;
  }
  const auto nonce = random_id<frame::Nonce>(world_.entropy);
  const hop::ProofInput input{*hello, connection.own_hello(), *challenge, nonce, options_.boot_id};
  frame::Proof proof{nonce, options_.boot_id, hop::guest_proof(*secret, input)};
  const auto expected = hop::bridge_proof(*secret, input);
  connection.send(frame::Frame{0, std::move(proof)});
  const auto answer = co_await connection.read_frame(deadline);
  if (!answer) co_return false;
  const auto* ack = std::get_if<frame::ProofAck>(&answer->payload);
  // The secret and the identity may have changed while we waited.
  if (ack == nullptr || !identity::constant_time_equal(ack->mac.view(), expected.view()) ||
      secret_of(challenge->route) == nullptr) {
    world_.log.event(Level::kWarning, "guest.proof_refused", {});
    co_return false;
  }
  if (may_be(challenge->route)) {
    route_ = challenge->route;
    replaced_.reset();
  }
  co_return true;
}

void GuestAgent::close_others(const Link& keep, bool unproven_too) {
  for (auto* other : links_) {
    if (other != &keep && (other->proven || unproven_too)) other->close();
  }
}

void GuestAgent::rekey(Link& link, const frame::Rekey& rekey) {
  const auto secret = std::span(rekey.secret);
  constexpr auto kLastBlock = UINT32_MAX - identity::kPublicPidBlock;
  if (!may_be(rekey.route) || secret.size() != 32 || rekey.first_public_pid == 0 ||
      rekey.first_public_pid > kLastBlock) {
    world_.log.event(Level::kWarning, "guest.rekey_refused", {});
    link.close();
    return;
  }
  close_others(link, true);
  if (!replaced_ && route_) replaced_ = Replaced{*route_, secret_.duplicate()};
  route_ = rekey.route;
  secret_ = GuestSecret(secret.first<32>());
  next_public_pid_ = rekey.first_public_pid;
  public_pids_left_ = identity::kPublicPidBlock;
  world_.clock.set(rekey.now);
  world_.log.event(Level::kInfo, "guest.rekeyed", {{"generation", route_->generation.value}});
  link.connection->send(frame::Frame{0, frame::Rekeyed{}});
  // The bridge reads the answer and leaves; nothing else is legal on this connection any more.
  link.farewell =
      world_.timer.at(world_.timer.now() + std::chrono::seconds(1), [&link] { link.close(); });
}

}  // namespace space::guest
