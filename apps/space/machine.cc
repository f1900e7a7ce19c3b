#include "machine.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "adapters/supervisor/lock_file.h"
#include "base/text.h"
#include "core/identity/sha256.h"
#include "services/cli/text.h"

namespace space::app {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

cli::Failure no_credentials(const std::string& message) {
  return {.exit_code = cli::kFailed, .code = "no_credentials", .message = message};
}

}  // namespace

bool data_folder_is_chosen() { return !environment("SPACE_DATA").empty(); }

std::filesystem::path data_folder() {
  if (!data_folder_is_chosen()) return "/var/lib/space";
  std::error_code ignored;
  return std::filesystem::absolute(environment("SPACE_DATA"), ignored).lexically_normal();
}

std::filesystem::path config_file() { return data_folder() / "space.toml"; }
std::filesystem::path state_file(const config::Config& config) {
  return config.run() / "supervise.json";
}
std::filesystem::path lock_file(const config::Config& config) {
  return config.run() / "supervise.lock";
}

std::expected<std::filesystem::path, std::string> find_program(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return std::unexpected("/proc/self/exe: " + error.message());
  auto program = self.parent_path() / name;
  if (::access(program.c_str(), X_OK) == 0) return program;
  return std::unexpected("the program " + name + " is missing beside " + self.string() +
                         "; `./dev build` makes all of them");
}

std::string hash_text(std::string_view text) { return to_hex(identity::sha256(as_bytes(text))); }

std::expected<std::string, std::string> build_hash() {
  std::string all;
  for (const char* name : {"space", "space-control", "space-node-api", "sbx-manager", "spaced-host",
                           "spaced-guest", "space-stage"}) {
    auto program = find_program(name);
    if (!program) return std::unexpected(program.error());
    std::ifstream file(*program, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), {});
    if (!file && !file.eof()) return std::unexpected(program->string() + " cannot be read");
    all += hash_text(content);
  }
  return hash_text(all);
}

std::filesystem::path home_credentials() {
  std::string home = environment("HOME");
  if (home.empty()) {
    const passwd* entry = ::getpwuid(::getuid());
    home = entry == nullptr ? "/root" : entry->pw_dir;
  }
  return std::filesystem::path(home) / ".config/space/cli.toml";
}

cli::Outcome<cli::Endpoint> find_endpoint() {
  cli::Endpoint endpoint{.url = environment("SPACE_URL"), .api_key = environment("SPACE_API_KEY")};
  if (endpoint.url.empty() || endpoint.api_key.empty()) {
    const auto of_data = data_folder() / "cli.toml";
    std::optional<std::string> text;
    std::filesystem::path used;
    std::vector<std::filesystem::path> candidates{home_credentials(), of_data};
    if (data_folder_is_chosen()) candidates = {of_data, home_credentials()};
    for (const auto& candidate : candidates) {
      text = supervisor::read_small_file(candidate);
      used = candidate;
      if (text) break;
    }
    if (!text) {
      return std::unexpected(no_credentials(
          "no credentials: set SPACE_URL and SPACE_API_KEY, or run `space up`, which writes " +
          candidates.front().string()));
    }
    const auto credentials = config::parse_credentials(*text, used);
    if (!credentials) return std::unexpected(no_credentials(credentials.error().message));
    if (endpoint.url.empty()) endpoint.url = credentials->url;
    if (endpoint.api_key.empty()) endpoint.api_key = credentials->api_key;
  }
  const std::string both = endpoint.url + endpoint.api_key;
  if (both.find_first_of("\r\n \t") != std::string::npos || !endpoint.url.starts_with("http://")) {
    return std::unexpected(
        no_credentials("SPACE_URL must be http://HOST:PORT, and neither it nor the API key may "
                       "contain white space"));
  }
  while (endpoint.url.ends_with('/')) endpoint.url.pop_back();
  return endpoint;
}

std::optional<SuperviseState> read_state(const config::Config& config) {
  const auto text = supervisor::read_small_file(state_file(config));
  if (!text) return std::nullopt;
  boost::system::error_code error;
  const boost::json::value document = boost::json::parse(*text, error);
  const auto& pid = cli::member(document, "pid");
  if (error || !pid.is_int64()) return std::nullopt;
  return SuperviseState{.pid = static_cast<int>(pid.get_int64()),
                        .build = cli::text_of(document, "build"),
                        .config = cli::text_of(document, "config"),
                        .parts = cli::member(document, "parts")};
}

ListenAddress listen_address(const config::Config& config) {
  const std::size_t colon = config.listen.rfind(':');
  std::string host = config.listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = parse_decimal(std::string_view(config.listen).substr(colon + 1));
  return {.host = std::move(host), .port = static_cast<std::uint16_t>(port.value_or(0))};
}

std::string own_url(const config::Config& config) {
  auto [host, port] = listen_address(config);
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return "http://" + host + ":" + std::to_string(port);
}

std::optional<std::string> address_problem(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found)) {
    return ::gai_strerror(error);
  }
  const int descriptor = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  std::optional<std::string> problem;
  if (::bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 || ::listen(descriptor, 1) != 0) {
    problem = std::strerror(errno);
  }
  ::close(descriptor);
  ::freeaddrinfo(found);
  return problem;
}

}  // namespace space::app
