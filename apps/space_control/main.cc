// space-control: the control plane of one installation. See `usage`.
#include <fcntl.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "adapters/asio/loop.h"
#include "adapters/config/config.h"
#include "adapters/crypto/ed25519_signer.h"
#include "adapters/crypto/key_file.h"
#include "adapters/crypto/system_entropy.h"
#include "adapters/sqlite/control_store.h"
#include "adapters/telemetry/json_log.h"
#include "services/control_plane/control_plane.h"

namespace {

using namespace space;

constexpr int kUsageError = 2;
constexpr uid_t kSameUser = static_cast<uid_t>(-1);  // of chown(2)
constexpr const char* kUsage =
    "usage: space-control --config FILE [--create-key TEAM | --revoke-key HASHPREFIX]\n"
    "  Without a command: serves until SIGTERM.\n"
    "  --create-key TEAM        makes an API key and prints it, once\n"
    "  --revoke-key HASHPREFIX  revokes the key whose SHA-256 begins so (8 hex digits or more)\n";

struct Arguments {
  std::string config;
  std::optional<identity::TeamId> create_key;
  std::optional<std::string> revoke_key;
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--config" && !value.empty()) {
      arguments.config = value;
    } else if (name == "--create-key") {
      arguments.create_key = identity::TeamId::parse(value);
      if (!arguments.create_key) return std::nullopt;
    } else if (name == "--revoke-key" && value.size() >= 8) {
      arguments.revoke_key = value;
    } else {
      return std::nullopt;
    }
  }
  if (argc % 2 == 0 || arguments.config.empty()) return std::nullopt;
  if (arguments.create_key && arguments.revoke_key) return std::nullopt;
  return arguments;
}

int fail(const std::string& message) {
  std::fprintf(stderr, "space-control: %s\n", message.c_str());
  return EXIT_FAILURE;
}

// The control plane needs no capability: everything it opens belongs to its own user.
bool drop_privileges() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return false;
  for (int capability = 0; capability <= CAP_LAST_CAP; ++capability) {
    // Fails for those this kernel does not know and, without CAP_SETPCAP, for all: then there is
    // none.
    ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  const cap_t none = ::cap_init();
  if (none == nullptr) return false;
  const bool dropped = ::cap_set_proc(none) == 0;
  ::cap_free(none);
  return dropped;
}

bool make_folder(const std::filesystem::path& folder, mode_t mode) {
  return ::mkdir(folder.c_str(), mode) == 0 || errno == EEXIST;
}

std::expected<crypto::Ed25519Signer, std::string> signer_of(const config::Config& config,
                                                            Entropy& entropy) {
  const auto folder = config.control_folder() / "keys";
  if (!make_folder(config.control_folder(), 0700) || !make_folder(folder, 0700)) {
    return std::unexpected(folder.string() + ": " + std::strerror(errno));
  }
  const auto path = (folder / "signing-1.key").string();
  auto signer = crypto::Ed25519Signer::load(path);
  if (!signer && signer.error().kind == crypto::KeyFileError::Kind::kNotFound) {
    signer = crypto::Ed25519Signer::create(path, identity::KeyId{1}, entropy);
  }
  if (signer) return *std::move(signer);
  return std::unexpected(crypto::describe(path, signer.error()));
}

std::expected<control_plane::AccessKey, std::string> access_key_of(const config::Config& config,
                                                                   Entropy& entropy) {
  const auto path = (config.control_folder() / "keys" / "access.key").string();
  std::array<std::byte, control_plane::kAccessKeyBytes> bytes{};
  auto size = crypto::read_key_file(path, bytes);
  if (!size && size.error().kind == crypto::KeyFileError::Kind::kNotFound) {
    entropy.fill(bytes);
    const auto created = crypto::create_key_file(path, bytes, entropy);
    if (!created) return std::unexpected(crypto::describe(path, created.error()));
    size = bytes.size();
  }
  control_plane::AccessKey key{bytes};
  ::explicit_bzero(bytes.data(), bytes.size());
  if (!size) return std::unexpected(crypto::describe(path, size.error()));
  if (*size != bytes.size()) return std::unexpected(path + ": is not a key of 32 bytes");
  return std::expected<control_plane::AccessKey, std::string>(std::move(key));
}

Task<int> create_key(ControlStore& store, Entropy& entropy, const WallClock& clock,
                     identity::TeamId team) {
  const auto key = co_await control_plane::ControlPlane::create_api_key(
      store, entropy, std::move(team), clock.now());
  if (!key) co_return fail(key.error().detail);
  std::printf("%s\n", key->c_str());
  co_return EXIT_SUCCESS;
}

Task<int> revoke_key(ControlStore& store, const WallClock& clock, std::string prefix) {
  const auto keys = co_await store.list_api_keys();
  if (!keys) co_return fail(keys.error().detail);
  std::optional<CredentialHash> found;
  for (const auto& row : *keys) {
    if (!row.hash.text().starts_with(prefix)) continue;
    if (found) co_return fail("more than one key begins with " + prefix);
    found = row.hash;
  }
  if (!found) co_return fail("no key begins with " + prefix);
  const auto revoked = co_await store.revoke_api_key(*found, clock.now());
  if (!revoked) co_return fail(revoked.error().detail);
  std::printf("revoked %s\n", found->text().c_str());
  co_return EXIT_SUCCESS;
}

Task<int> serve(control_plane::ControlPlane& plane, Listener& listener) {
  const auto started = co_await plane.start();
  if (!started) {
    co_await plane.stop();
    co_return fail(started.error());
  }
  co_await plane.serve(listener);
  co_await plane.stop();
  co_return EXIT_SUCCESS;
}

// The listener, in a folder that the node-api's group may search and connect in, and nobody else.
IoResult<std::unique_ptr<Listener>> listen(asio::Loop& loop, const config::Config& config) {
  constexpr std::string_view kScheme = "unix:";
  const auto address = config::Config::control_address();
  const std::filesystem::path socket = address.substr(kScheme.size());
  const auto group = static_cast<gid_t>(config.node_api_uid);
  const bool may_give = ::geteuid() == 0;
  const auto os_error = [] {
    return std::unexpected(std::error_code(errno, std::generic_category()));
  };
  if (::mkdir(socket.parent_path().c_str(), 0700) == 0) {
    if (may_give && ::chown(socket.parent_path().c_str(), kSameUser, group) != 0) return os_error();
    if (::chmod(socket.parent_path().c_str(), 0710) != 0) return os_error();
  } else if (errno != EEXIST) {
    return os_error();
  }
  ::umask(0007);
  auto listening = asio::listen_unix(loop, address, 0660);
  ::umask(0077);
  if (listening && may_give && ::chown(socket.c_str(), kSameUser, group) != 0) return os_error();
  return listening;
}

control_plane::Options options_of(const config::Config& config, const identity::Issuer& issuer,
                                  control_plane::AccessKey access_key) {
  control_plane::Options options;
  options.access_key = std::move(access_key);
  options.issuer = issuer;
  options.owner = *identity::OwnerId::parse("control-1");
  options.holders.emplace(config.node_api_uid, config.node_api_holder);
  for (const auto& worker : config.workers) {
    control_plane::WorkerOptions entry;
    entry.id = worker.id;
    entry.control_address = config::Config::worker_control_address(worker.id);
    entry.endpoint = config::Config::worker_address(worker.id);
    entry.max_sandboxes = worker.max_sandboxes;
    options.workers.push_back(std::move(entry));
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fputs(kUsage, stderr);
    return kUsageError;
  }
  ::umask(0077);
  const auto config = config::load(arguments->config);
  if (!config) return fail(config.error().message);
  const auto issuer = identity::Issuer::parse(config->issuer);
  if (!issuer) return fail("the issuer in the configuration is not a name");
  if (::chdir(config->run().c_str()) != 0) {
    return fail(config->run().string() + ": " + std::strerror(errno));
  }

  crypto::SystemEntropy entropy;
  asio::SystemClock clock;
  asio::Loop loop;
  if (!make_folder(config->control_folder(), 0700)) {
    return fail(config->control_folder().string() + ": " + std::strerror(errno));
  }
  auto store = sqlite::SqliteControlStore::open(config->control_folder() / "space.db");
  if (!store) return fail(store.error());
  if (arguments->create_key) {
    return loop.run(create_key(**store, entropy, clock, *arguments->create_key), [] {});
  }
  if (arguments->revoke_key) {
    return loop.run(revoke_key(**store, clock, *arguments->revoke_key), [] {});
  }

  const auto signer = signer_of(*config, entropy);
  if (!signer) return fail(signer.error());
  auto access_key = access_key_of(*config, entropy);
  if (!access_key) return fail(access_key.error());
  const auto listening = listen(loop, *config);
  if (!listening) {
    return fail(config::Config::control_address() + ": " + listening.error().message());
  }
  if (!drop_privileges())
    return fail(std::string("cannot drop privileges: ") + std::strerror(errno));

  telemetry::JsonLog log("space-control");
  asio::UnixDialer dialer(loop);
  control_plane::ControlPlane plane(**store, dialer, loop, clock, entropy, *signer, log,
                                    options_of(*config, *issuer, *std::move(access_key)));
  auto& listener = **listening;
  return loop.run(serve(plane, listener), [&listener] { listener.close(); });
}
