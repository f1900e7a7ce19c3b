// A chunked body from a hostile peer (C075): how it is read does not depend on how the bytes
// arrive, and what was read, written out again in the plainest way, is read the same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "adapters/http/body.h"
#include "base/check.h"
#include "base/text.h"

using namespace space;

namespace {

struct Read {
  std::string body;
  std::size_t used = 0;
  bool done = false;
  bool bad = false;
};

Read read(std::string_view bytes, std::size_t step) {
  Read out;
  auto framing = http::BodyFraming::chunked();
  std::size_t arrived = 0;
  while (!framing.done()) {
    const auto here = bytes.substr(out.used, arrived - out.used);
    const auto framed = framing.read(here);
    if (!framed) {
      out.bad = true;
      return out;
    }
    const auto count = std::min<std::uint64_t>(framing.payload(), here.size() - *framed);
    out.body += here.substr(*framed, count);
    framing.took(count);
    out.used += *framed + count;
    if (out.used < arrived) continue;
    if (arrived == bytes.size()) break;
    arrived = std::min(arrived + step, bytes.size());
  }
  out.done = framing.done();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = as_text(std::as_bytes(std::span(data, size)));
  const auto whole = read(bytes, size + 1);
  SPACE_ASSERT(!(whole.done && whole.bad) && whole.used <= size);
  const auto slow = read(bytes, 1);
  SPACE_ASSERT(slow.body == whole.body && slow.done == whole.done && slow.bad == whole.bad);
  if (!whole.done) return 0;
  SPACE_ASSERT(slow.used == whole.used && bytes.substr(0, whole.used).ends_with("\r\n\r\n"));
  std::string again;
  for (const char c : whole.body) again += std::string("1\r\n") + c + "\r\n";
  again += "0\r\n\r\n";
  const auto same = read(again, 7);
  SPACE_ASSERT(same.done && same.body == whole.body && same.used == again.size());
  return 0;
}
