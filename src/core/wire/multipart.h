#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/bytes.h"

// multipart/form-data as HTML's forms and the SDKs send it (RFC 7578), read as a stream and
// strictly: what is not exactly that form is refused, so that a cut or garbled upload is never
// taken for a shorter one (C058). No socket inside.
namespace space::wire {

inline constexpr std::size_t kMaxBoundaryBytes = 70;           // RFC 2046
inline constexpr std::size_t kMaxPartHeaderBytes = 16 * 1024;  // of one part, all lines together
inline constexpr std::string_view kMultipartType = "multipart/form-data";

// The boundary named by a Content-Type header; nullopt when it is not multipart/form-data with
// exactly one legal boundary.
std::optional<std::string> multipart_boundary(std::string_view content_type);

// Takes a body apart at any split. Holds at most kMaxPartHeaderBytes and what was fed last.
class MultipartReader {
 public:
  struct NeedMore {};
  struct PartBegin {
    std::string name;
    // As it was before the form encoding: %22, %0D and %0A stand for '"', CR and LF (HTML). What
    // senders encode in more than one way is refused: other escaped control characters, "\\" and
    // a backslash before a quote.
    std::optional<std::string> filename;
  };
  struct PartData {
    ByteView bytes;  // never empty; valid until the next call
  };
  struct PartEnd {};   // seen only once the delimiter behind the part is whole
  struct Finished {};  // the closing delimiter was there; nothing but one line end may follow
  struct Malformed {
    std::string_view problem;  // for people
  };
  using Event = std::variant<NeedMore, PartBegin, PartData, PartEnd, Finished, Malformed>;

  // `boundary` as multipart_boundary() gives it.
  explicit MultipartReader(std::string_view boundary);

  void feed(ByteView bytes);
  // Stays Malformed, or Finished, once it was.
  Event next();

 private:
  enum class State { kOpening, kHeader, kData, kAfterDelimiter, kFinished, kMalformed };
  Event header();
  Event data();
  Event after_delimiter();
  Event malformed(std::string_view problem);
  std::string_view rest() const { return std::string_view(buffer_).substr(read_); }

  std::string delimiter_;  // CR LF, "--", boundary
  std::string buffer_;
  std::size_t read_ = 0;
  State state_ = State::kOpening;
  bool in_part_ = false;
  std::string_view problem_;
};

}  // namespace space::wire
