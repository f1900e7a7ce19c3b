// What a form says does not depend on how it is split; and a reader never holds more than a head
// and what it was fed. Input: the size of the pieces, then the body, whose boundary is "b".
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "base/result.h"
#include "core/wire/multipart.h"

using namespace space;
using namespace space::wire;

namespace {

// The events of a body in one text; data of a part runs together.
std::string told(ByteView body, std::size_t piece) {
  MultipartReader reader("b");
  std::string out;
  for (;;) {
    const auto event = reader.next();
    const bool over =
        std::visit(Overload{
                       [&](const MultipartReader::NeedMore&) { return body.empty(); },
                       [&](const MultipartReader::PartBegin& begin) {
                         out += "\n[" + begin.name + "|" + begin.filename.value_or("-") + "]";
                         return false;
                       },
                       [&](const MultipartReader::PartData& data) {
                         SPACE_ASSERT(!data.bytes.empty());
                         out += as_text(data.bytes);
                         return false;
                       },
                       [&](const MultipartReader::PartEnd&) {
                         out += "[end]";
                         return false;
                       },
                       [&](const MultipartReader::Finished&) {
                         if (body.empty()) out += "[finished]";
                         return body.empty();
                       },
                       [&](const MultipartReader::Malformed& malformed) {
                         SPACE_ASSERT(!malformed.problem.empty());
                         out += "[malformed]";
                         return true;
                       },
                   },
                   event);
    if (over) return out;
    if (std::holds_alternative<MultipartReader::NeedMore>(event) ||
        std::holds_alternative<MultipartReader::Finished>(event)) {
      const auto part = body.first(std::min(piece, body.size()));
      reader.feed(part);
      body = body.subspan(part.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto body = std::as_bytes(std::span(data + 1, size - 1));
  const auto whole = told(body, std::max<std::size_t>(body.size(), 1));
  const auto pieces = told(body, data[0] % 23 + std::size_t{1});
  // A malformed body is noticed at the same place; how much of its data was given out before
  // depends on the pieces.
  const bool bad = whole.ends_with("[malformed]");
  SPACE_ASSERT(bad == pieces.ends_with("[malformed]"));
  SPACE_ASSERT(bad || whole == pieces);
  static_cast<void>(multipart_boundary(as_text(body)));
  return 0;
}
