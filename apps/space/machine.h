#pragma once
#include <boost/json/value.hpp>
#include <expected>
#include <filesystem>
#include <optional>
#include <string>

#include "adapters/config/config.h"
#include "adapters/config/credentials.h"
#include "services/cli/api.h"

namespace space::app {

// SPACE_DATA, else /var/lib/space. Absolute.
std::filesystem::path data_folder();
bool data_folder_is_chosen();  // by SPACE_DATA

// A program of ours, which is beside this one.
std::expected<std::filesystem::path, std::string> find_program(const std::string& name);
// SHA-256 over all programs of the platform.
std::expected<std::string, std::string> build_hash();

// Where credentials come from, first match: SPACE_URL with SPACE_API_KEY; cli.toml of the data
// folder when SPACE_DATA chooses one; ~/.config/space/cli.toml; cli.toml of the data folder. The
// two variables also override one by one.
cli::Outcome<cli::Endpoint> find_endpoint();
std::filesystem::path home_credentials();

// What `supervise` says about itself in run/supervise.json.
struct SuperviseState {
  int pid = 0;
  std::string build;
  std::string config;  // hash of space.toml as it was when started
  boost::json::value parts;
};
std::optional<SuperviseState> read_state(const config::Config& config);
std::filesystem::path state_file(const config::Config& config);
std::filesystem::path lock_file(const config::Config& config);
std::filesystem::path config_file();
std::string hash_text(std::string_view text);

struct ListenAddress {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};
ListenAddress listen_address(const config::Config& config);
// The URL under which this machine reaches the platform of `config`.
std::string own_url(const config::Config& config);
// Whether something listens there, or the address cannot be used: the reason; nullopt when it is
// free.
std::optional<std::string> address_problem(const ListenAddress& address);

}  // namespace space::app
