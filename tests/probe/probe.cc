#include "probe/probe.h"

#include "base/result.h"

namespace space::probe {

Leg::Leg(asio::Loop& loop, std::unique_ptr<Stream> stream, frame::Role self, frame::Role peer)
    : loop_(loop),
      connection_(std::move(stream), loop,
                  hop::Connection::Options{self, peer, true, "probe", {}, true}),
      scope_(loop) {}
Leg::~Leg() = default;

Task<bool> Leg::start() {
  const auto hello = co_await connection_.handshake(loop_.now() + std::chrono::seconds(10));
  if (!hello) co_return false;
  mux_ = std::make_unique<hop::Mux>(connection_, loop_);
  scope_.spawn("probe.leg", mux_->run());
  co_return true;
}

Task<void> Leg::stop() {
  connection_.close();
  co_await scope_.join();
}

Task<std::unique_ptr<Leg>> connect(asio::Loop& loop, std::string address, frame::Role self,
                                   frame::Role peer) {
  asio::UnixDialer dialer(loop);
  auto stream = co_await dialer.dial(std::move(address), loop.now() + std::chrono::seconds(10));
  if (!stream) co_return nullptr;
  auto leg = std::make_unique<Leg>(loop, std::move(*stream), self, peer);
  const bool shaken = co_await leg->start();
  if (!shaken) co_return nullptr;
  co_return leg;
}

namespace {
std::string text_of(const frame::Refused& refused) {
  return std::visit(
      Overload{
          [](const frame::Refresh& r) { return "refresh " + std::string(to_string(r.reason)); },
          [](const frame::Denied& d) { return "denied " + std::string(to_string(d.reason)); },
          [](const frame::Unavailable& u) {
            return "unavailable " + std::string(to_string(u.reason));
          },
      },
      refused.verdict);
}
}  // namespace

Task<Verdict> present(Leg& leg, Bytes sealed, identity::SandboxId addressed,
                      policy::Operation operation, Bytes metadata) {
  frame::Open open;
  open.operation = operation;
  open.sandbox = std::move(addressed);
  open.authority = frame::Capability{std::move(sealed)};
  open.metadata = std::move(metadata);
  const auto channel = leg.mux().open(std::move(open));
  Verdict verdict;
  verdict.text = "lost";
  for (;;) {
    auto event = co_await channel->next(leg.mux().timer().now() + std::chrono::seconds(60));
    if (auto* admitted = std::get_if<frame::Admitted>(&event)) {
      verdict.admitted = std::move(*admitted);
      verdict.text = "admitted";
      const auto* info = policy::find_operation(static_cast<std::uint16_t>(operation));
      if (info->kind == policy::Kind::kUpload || info->kind == policy::Kind::kStream) {
        channel->end({});
      }
    } else if (auto* data = std::get_if<frame::Data>(&event)) {
      verdict.data.insert(verdict.data.end(), data->bytes.begin(), data->bytes.end());
    } else if (auto* end = std::get_if<frame::End>(&event)) {
      verdict.end = std::move(*end);
      co_return verdict;
    } else if (auto* refused = std::get_if<frame::Refused>(&event)) {
      verdict.text = text_of(*refused);
      verdict.refused = std::move(*refused);
      co_return verdict;
    } else {
      co_return verdict;
    }
  }
}

}  // namespace space::probe
