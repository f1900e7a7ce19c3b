#include "adapters/config/credentials.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace space::config {

std::expected<Credentials, ConfigError> parse_credentials(std::string_view text,
                                                          const std::filesystem::path& file) {
  const auto failure = [&](const std::string& what) {
    return std::unexpected(ConfigError{file.string() + ": " + what});
  };
  const toml::parse_result parsed = toml::parse(text, file.string());
  if (!parsed) {
    return failure("line " + std::to_string(parsed.error().source().begin.line) + ": " +
                   std::string(parsed.error().description()));
  }
  Credentials credentials;
  for (const auto& [key, node] : parsed.table()) {
    if ((key != "url" && key != "api_key") || !node.is_string()) {
      return failure("'" + std::string(key.str()) +
                     "': only the strings url and api_key belong here");
    }
    (key == "url" ? credentials.url : credentials.api_key) = node.as_string()->get();
  }
  for (const std::string& value : {credentials.url, credentials.api_key}) {
    if (value.find_first_of(std::string_view("\0\r\n \t", 5)) != std::string::npos) {
      return failure("url and api_key have no white space");
    }
  }
  if (!credentials.url.starts_with("http://")) return failure("url must begin with http://");
  if (credentials.api_key.empty()) return failure("api_key is missing");
  return credentials;
}

std::string credentials_text(const Credentials& credentials) {
  return "# Written by `space up`. SPACE_URL and SPACE_API_KEY override it.\nurl = \"" +
         credentials.url + "\"\napi_key = \"" + credentials.api_key + "\"\n";
}

}  // namespace space::config
