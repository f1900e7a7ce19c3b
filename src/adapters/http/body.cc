#include "adapters/http/body.h"

#include "base/check.h"

namespace space::http {
namespace {

constexpr unsigned kMaxSizeDigits = 15;

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

}  // namespace

BodyFraming BodyFraming::sized(std::uint64_t length) {
  BodyFraming framing;
  framing.left_ = length;
  framing.state_ = length > 0 ? State::kData : State::kDone;
  return framing;
}

BodyFraming BodyFraming::chunked() {
  BodyFraming framing;
  framing.chunked_ = true;
  framing.state_ = State::kSize;
  return framing;
}

void BodyFraming::took(std::uint64_t count) {
  SPACE_ASSERT(count <= payload());
  left_ -= count;
  if (left_ == 0 && count > 0) state_ = chunked_ ? State::kDataCr : State::kDone;
}

std::optional<std::size_t> BodyFraming::read(std::string_view bytes) {
  std::size_t count = 0;
  if (state_ == State::kBad) return std::nullopt;
  while (count < bytes.size() && state_ != State::kData && state_ != State::kDone) {
    state_ = step(bytes[count++]);
    if (state_ == State::kBad) return std::nullopt;
  }
  return count;
}

BodyFraming::State BodyFraming::step(char c) {
  switch (state_) {
    case State::kSize:
      if (const auto digit = hex_digit(c); digit && digits_ < kMaxSizeDigits) {
        left_ = left_ * 16 + *digit;
        ++digits_;
        return State::kSize;
      }
      return c == '\r' && digits_ > 0 ? State::kSizeLf : State::kBad;
    case State::kSizeLf:
      if (c != '\n') return State::kBad;
      digits_ = 0;
      return left_ > 0 ? State::kData : State::kEndCr;
    case State::kDataCr:
      return c == '\r' ? State::kDataLf : State::kBad;
    case State::kDataLf:
      return c == '\n' ? State::kSize : State::kBad;
    case State::kEndCr:
      return c == '\r' ? State::kEndLf : State::kBad;
    case State::kEndLf:
      return c == '\n' ? State::kDone : State::kBad;
    case State::kData:
    case State::kDone:
    case State::kBad:
      break;
  }
  return State::kBad;
}

}  // namespace space::http
