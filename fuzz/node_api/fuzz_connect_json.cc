// Requests of the sandbox API: whatever is read of one keeps the bounds the records have, and what
// is not read names a reason.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "core/wire/path.h"
#include "services/node_api/connect_json.h"

using namespace space;
using namespace space::node_api;

namespace {

template <class T>
void check_error(const Result<T>& result) {
  if (!result) SPACE_ASSERT(!result.error().message.empty());
}
void check(const ProcessSelector& selector) {
  SPACE_ASSERT((selector.pid != 0) == selector.tag.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json(as_text(std::as_bytes(std::span(data, size))));
  if (!json) return 0;
  const auto start = read_start(*json);
  check_error(start);
  if (start) {
    SPACE_ASSERT(!start->spec.command.empty());
    SPACE_ASSERT(wire::decode<wire::ProcessStartRequest>(wire::encode(*start)).has_value());
    static_cast<void>(process_info({1, start->spec}).text());
  }
  const auto selector = read_selector(*json);
  check_error(selector);
  if (selector) check(*selector);
  const auto input = read_input(*json);
  check_error(input);
  if (input) check(input->process);
  const auto signal = read_signal(*json);
  check_error(signal);
  if (signal) {
    check(signal->process);
    SPACE_ASSERT(signal->signal == 9 || signal->signal == 15);
  }
  const auto path = read_path(*json);
  check_error(path);
  if (path) SPACE_ASSERT(wire::is_guest_path(*path));
  const auto move = read_move(*json);
  check_error(move);
  if (move) {
    SPACE_ASSERT(wire::is_guest_path(move->source) && wire::is_guest_path(move->destination));
  }
  const auto list = read_list_dir(*json);
  check_error(list);
  if (list) SPACE_ASSERT(wire::is_guest_path(list->path) && list->depth >= 1 && list->depth <= 64);
  return 0;
}
