// Where a request goes (P-31). Input: lines "h VALUE", "i VALUE", "p VALUE" for Host,
// E2b-Sandbox-Id and E2b-Sandbox-Port. Whatever passes was said once, in one voice, and says the
// same when it is said again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "core/wire/edge.h"

using namespace space;

namespace {

using Views = std::vector<std::string_view>;

std::expected<wire::EdgeTarget, std::string_view> target(const Views& hosts, const Views& ids = {},
                                                         const Views& ports = {}) {
  static const wire::EdgeNames kNames{"space.test", {"gate.example"}};
  return wire::edge_target({hosts, ids, ports}, kNames);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto text = as_text(std::as_bytes(std::span(data, size)));
  Views hosts;
  Views ids;
  Views ports;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with("h ")) hosts.push_back(line.substr(2));
    if (line.starts_with("i ")) ids.push_back(line.substr(2));
    if (line.starts_with("p ")) ports.push_back(line.substr(2));
  }
  const auto found = target(hosts, ids, ports);
  if (!found) {
    SPACE_ASSERT(!found.error().empty());
    return 0;
  }
  SPACE_ASSERT(hosts.size() == 1 && ids.size() <= 1 && ids.size() == ports.size());
  if (!found->sandbox) {
    SPACE_ASSERT(ids.empty());
    return 0;
  }
  SPACE_ASSERT(found->port != 0);
  const auto& id = found->sandbox->text();
  const auto port = std::to_string(found->port);
  if (!ids.empty()) SPACE_ASSERT(ids[0] == id && ports[0] == port);
  const auto name = port + "-" + id + ".space.test";
  SPACE_ASSERT(target({name}) == *found);
  SPACE_ASSERT(target({name}, {id}, {port}) == *found);
  SPACE_ASSERT(target({"localhost"}, {id}, {port}) == *found);
  return 0;
}
