#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace space::http {

// The framing of one message body (C075, P-33). Pure, and holds no bytes. Chunked bodies are read
// strictly: a size is 1 to 15 hexadecimal digits and CR LF, without extension; trailers are
// refused.
class BodyFraming {
 public:
  static BodyFraming sized(std::uint64_t length);
  static BodyFraming chunked();

  bool done() const { return state_ == State::kDone; }
  // The next so many bytes of the connection are bytes of the body. 0: framing, or its end.
  std::uint64_t payload() const { return state_ == State::kData ? left_ : 0; }
  // `count` of them were taken, at most `payload()`.
  void took(std::uint64_t count);
  // Reads framing from the front of `bytes`, until payload or the end of the body. How many bytes
  // it was; nullopt: malformed.
  std::optional<std::size_t> read(std::string_view bytes);

 private:
  enum class State : std::uint8_t {
    kSize,    // of a chunk
    kSizeLf,  // the line feed after it
    kData,
    kDataCr,  // the line end after a chunk's bytes
    kDataLf,
    kEndCr,  // the empty line after the last chunk
    kEndLf,
    kDone,
    kBad
  };
  State step(char c);

  State state_ = State::kDone;
  bool chunked_ = false;
  unsigned digits_ = 0;
  std::uint64_t left_ = 0;  // of the body or the chunk
};

}  // namespace space::http
