#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapters/config/config.h"
#include "adapters/config/credentials.h"
#include "base/bytes.h"
#include "base/check.h"

// Any bytes as space.toml and cli.toml: an error with the file's name, or a configuration that
// holds together.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = space::as_text(std::as_bytes(std::span(data, size)));
  const auto config = space::config::parse(text, "/data/space.toml");
  if (config) {
    SPACE_ASSERT(config->data.is_absolute());
    SPACE_ASSERT(!config->workers.empty());
    SPACE_ASSERT(config->node_api_uid != config->control_uid);
  } else {
    SPACE_ASSERT(config.error().message.starts_with("/data/space.toml"));
  }
  const auto credentials = space::config::parse_credentials(text, "cli.toml");
  if (credentials) SPACE_ASSERT(credentials->api_key.find('\n') == std::string::npos);
  return 0;
}
