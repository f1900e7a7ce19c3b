#pragma once
#include <cstdint>
#include <expected>
#include <filesystem>
#include <string>
#include <vector>

#include "core/identity/ids.h"

namespace space::config {

// One space.toml, a table per part (DESIGN 9). Every key is optional but the ids; an unknown key is
// an error.
struct Worker {
  identity::WorkerId id;
  std::uint32_t first_uid = 0;  // uid range of its sandboxes: 65,536 per sandbox
  std::uint32_t max_sandboxes = 64;
};
struct Config {
  std::filesystem::path data;  // absolute; [platform] data, else SPACE_DATA, else the file's folder
  // [platform] templates, absolute: a folder that several platforms use; empty: our own.
  std::filesystem::path shared_templates;
  std::string issuer = "space";           // [control_plane] issuer
  std::string listen = "127.0.0.1:3000";  // [node_api] listen
  // [node_api] domain: `<port>-<sandbox>.<domain>` names a sandbox's port, `<domain>` and
  // `api.<domain>` the platform. Empty: no such names; lower-case, without a port.
  std::string domain;
  // [node_api] hosts: further names of the platform, besides localhost and IP addresses.
  std::vector<std::string> hosts;
  std::uint32_t node_api_uid = 64'001;  // [node_api] uid; the process runs as it
  identity::HolderId node_api_holder;   // [node_api] holder; the key bound to that uid (P-1)
  std::uint32_t control_uid = 0;        // [control_plane] uid
  std::uint32_t bridge_uid =
      64'100;  // [workers] bridge_uid; spaced-host of worker i runs as bridge_uid + i
  std::string runtime = "auto";               // [workers] runtime: auto | crun | runc | a path
  std::uint32_t clock_tolerance_ms = 15'000;  // [workers] clock_tolerance_ms, at most 15000 (P-2)
  std::vector<Worker> workers;                // [[worker]]

  std::filesystem::path run() const { return data / "run"; }
  std::filesystem::path control_folder() const { return data / "control"; }
  std::filesystem::path worker_folder(const identity::WorkerId& id) const {
    return data / "workers" / id.text();
  }
  std::filesystem::path templates() const {
    return shared_templates.empty() ? data / "templates" : shared_templates;
  }
  std::filesystem::path artifacts() const { return data / "artifacts"; }
  std::filesystem::path logs() const { return data / "log"; }
  // Addresses for Dialer and Listener, relative to `run()`, which is every part's working
  // directory, so that a part needs no right to search the folders above it.
  static std::string control_address() { return "unix:control/hop.sock"; }
  static std::string worker_address(const identity::WorkerId& id) {
    return "unix:" + id.text() + "/hop/hop.sock";
  }
  static std::string worker_control_address(const identity::WorkerId& id) {
    return "unix:" + id.text() + "/control/control.sock";
  }
};

struct ConfigError {
  std::string message;  // with file, line and what to do
};
// Reads and checks `file`. Never partial: any problem refuses the whole file.
std::expected<Config, ConfigError> load(const std::filesystem::path& file);
// Pure: `text` as if read from `file`.
std::expected<Config, ConfigError> parse(std::string_view text, const std::filesystem::path& file);
// The text of a new space.toml with two workers w1, w2 and the given holder.
std::string default_text(const identity::HolderId& holder);

}  // namespace space::config
