// Requests of the E2B control API: what is read of one keeps its bounds, a filter means the same
// however it is encoded, and what is not read names a reason.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/text.h"
#include "core/wire/path.h"
#include "services/node_api/e2b.h"
#include "services/node_api/records_json.h"

using namespace space;
using namespace space::node_api;

namespace {

template <class T>
const Result<T>& check(const Result<T>& result) {
  if (!result) {
    SPACE_ASSERT(!result.error().message.empty());
    SPACE_ASSERT(result.error().outcome == frame::Outcome::kInvalidArgument ||
                 result.error().outcome == frame::Outcome::kUnsupported);
  }
  return result;
}
void check_timeout(std::uint32_t seconds) {
  SPACE_ASSERT(seconds >= 1 && seconds <= e2b::kMaxTimeoutSeconds);
}

std::string encoded(const std::string& text) { return percent_encode(percent_encode(text)); }

void check_metadata(std::string_view text) {
  const auto pairs = e2b::read_metadata(text);
  if (!pairs) return SPACE_ASSERT(!pairs.error().empty());
  std::string again;
  for (const auto& [key, value] : *pairs) {
    SPACE_ASSERT(!key.empty());
    again += (again.empty() ? "" : "&") + encoded(key) + "=" + encoded(value);
  }
  const auto same = e2b::read_metadata(again);
  SPACE_ASSERT(same.has_value() && *same == *pairs);
}

void check_query(std::string_view text) {
  const auto pairs = wire::parse_query(text);
  if (!pairs) return;
  Query running(*pairs);
  static_cast<void>(check(e2b::read_running_list(running)));
  Query query(*pairs);
  const auto list = e2b::read_list(query);
  if (!check(list)) return;
  SPACE_ASSERT(list->limit >= 1 && list->limit <= 100 && !list->states.empty());
  for (const auto state : list->states) SPACE_ASSERT(e2b::state_text(state).has_value());
}

void check_body(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return;
  if (const auto create = e2b::read_create(*json, 15); check(create)) {
    check_timeout(create->timeout_s);
    SPACE_ASSERT(!create->template_name.empty());
    for (const auto& [name, value] : create->envs) {
      SPACE_ASSERT(!name.empty() && !name.contains('=') && !value.contains('\0'));
    }
  }
  if (const auto timeout = e2b::read_timeout(*json); check(timeout)) check_timeout(*timeout);
  if (const auto refresh = e2b::read_refresh(*json); check(refresh)) check_timeout(*refresh);
  if (const auto connect = e2b::read_connect(*json); check(connect) && connect->timeout_s) {
    check_timeout(*connect->timeout_s);
  }
  if (const auto resume = e2b::read_resume(*json); check(resume)) check_timeout(*resume->timeout_s);
  static_cast<void>(check(e2b::read_pause(*json)));
  static_cast<void>(check(e2b::read_nothing(*json)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(std::as_bytes(std::span(data, size)));
  check_metadata(text);
  check_query(text);
  check_body(text);
  if (const auto time = parse_time(text)) SPACE_ASSERT(parse_time(time_text(*time)) == time);
  return 0;
}
