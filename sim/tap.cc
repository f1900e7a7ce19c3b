#include "sim/tap.h"

namespace space::sim {
namespace {

namespace frame = wire::hop;

class TappedStream final : public Stream {
 public:
  TappedStream(std::unique_ptr<Stream> inner, LifePtr life, std::shared_ptr<FrameObserver> observer)
      : inner_(std::move(inner)), life_(std::move(life)), observer_(std::move(observer)) {}

  Task<IoResult<std::size_t>> read_some(std::span<std::byte> buffer) override {
    const auto life = life_;
    auto count = co_await inner_->read_some(buffer);
    if (life->ended) co_return io_error(std::errc::operation_canceled);
    if (count && observer_) {
      read_.feed(ByteView(buffer).first(*count));
      for (auto next = read_.next(); next && *next; next = read_.next()) observer_->on_read(**next);
    }
    co_return count;
  }
  Task<IoResult<void>> write_all(ByteView data) override {
    if (life_->ended) co_return io_error(std::errc::operation_canceled);
    if (observer_) {
      written_.feed(data);
      for (auto next = written_.next(); next && *next; next = written_.next()) {
        observer_->on_written(**next);
      }
    }
    co_return co_await inner_->write_all(data);
  }
  void close() override { inner_->close(); }
  void reset() override { inner_->reset(); }
  std::optional<PeerCredentials> peer() const override { return inner_->peer(); }

 private:
  std::unique_ptr<Stream> inner_;
  LifePtr life_;
  std::shared_ptr<FrameObserver> observer_;
  frame::Decoder read_;
  frame::Decoder written_;
};

class TappedListener final : public Listener {
 public:
  TappedListener(std::unique_ptr<Listener> inner, LifePtr life, MakeObserver make)
      : inner_(std::move(inner)), life_(std::move(life)), make_(std::move(make)) {}
  Task<IoResult<std::unique_ptr<Stream>>> accept() override {
    auto accepted = co_await inner_->accept();
    if (!accepted) co_return std::unexpected(accepted.error());
    if (life_->ended) co_return io_error(std::errc::operation_canceled);
    co_return tapped(*std::move(accepted), life_, make_({}));
  }
  void close() override { inner_->close(); }

 private:
  std::unique_ptr<Listener> inner_;
  LifePtr life_;
  MakeObserver make_;
};

class TappedDialer final : public Dialer {
 public:
  TappedDialer(std::unique_ptr<Dialer> inner, LifePtr life, MakeObserver make)
      : inner_(std::move(inner)), life_(std::move(life)), make_(std::move(make)) {}
  Task<IoResult<std::unique_ptr<Stream>>> dial(std::string address, MonoTime deadline) override {
    auto dialled = co_await inner_->dial(address, deadline);
    if (!dialled) co_return std::unexpected(dialled.error());
    if (life_->ended) co_return io_error(std::errc::operation_canceled);
    co_return tapped(*std::move(dialled), life_, make_(address));
  }

 private:
  std::unique_ptr<Dialer> inner_;
  LifePtr life_;
  MakeObserver make_;
};

}  // namespace

std::unique_ptr<Stream> tapped(std::unique_ptr<Stream> stream, LifePtr life,
                               std::shared_ptr<FrameObserver> observer) {
  return std::make_unique<TappedStream>(std::move(stream), std::move(life), std::move(observer));
}
std::unique_ptr<Listener> tapped(std::unique_ptr<Listener> listener, LifePtr life,
                                 MakeObserver make) {
  return std::make_unique<TappedListener>(std::move(listener), std::move(life), std::move(make));
}
std::unique_ptr<Dialer> tapped(std::unique_ptr<Dialer> dialer, LifePtr life, MakeObserver make) {
  return std::make_unique<TappedDialer>(std::move(dialer), std::move(life), std::move(make));
}

}  // namespace space::sim
