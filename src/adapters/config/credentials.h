#pragma once
#include <expected>
#include <filesystem>
#include <string>

#include "adapters/config/config.h"

namespace space::config {

// How the command line reaches the API: the content of a cli.toml.
struct Credentials {
  std::string url;      // "http://127.0.0.1:3000"
  std::string api_key;  // "e2b_<hex>"
};
std::expected<Credentials, ConfigError> parse_credentials(std::string_view text,
                                                          const std::filesystem::path& file);
std::string credentials_text(const Credentials& credentials);

}  // namespace space::config
