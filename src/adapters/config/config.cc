#include "adapters/config/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>

#include "base/text.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace space::config {
namespace {

constexpr std::size_t kMaxFileBytes = 1U << 20;
constexpr std::uint64_t kUidsPerSandbox = 65'536;
constexpr std::uint32_t kMaxSandboxes = 4'096;
constexpr std::size_t kMaxWorkers = 14;
// Leaves room for the "<port>-<sandbox>." in front, within the 253 bytes of a DNS name.
constexpr std::size_t kMaxHostNameBytes = 180;
constexpr std::size_t kMaxHosts = 64;
// Default uid range of worker i starts at (i + 1) of these, so ranges of full workers do not meet.
constexpr std::uint64_t kUidStride = kUidsPerSandbox * kMaxSandboxes;
constexpr std::uint64_t kUidEnd = 0xFFFF'0000;

// Reads values out of one table and remembers the first problem.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}
  bool failed() const { return !error_.empty(); }
  ConfigError error() const { return ConfigError{error_}; }

  void fail(const toml::source_region& where, const std::string& what) {
    if (failed()) return;
    error_ = file_;
    if (where.begin.line != 0) {
      error_ += ":" + std::to_string(where.begin.line) + ":" + std::to_string(where.begin.column);
    }
    error_ += ": " + what;
  }

  void only(const toml::table& table, const std::string& name,
            std::initializer_list<std::string_view> known) {
    for (const auto& [key, node] : table) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      std::string list;
      for (const auto& k : known) list += (list.empty() ? "" : ", ") + std::string(k);
      fail(key.source(), "unknown key '" + std::string(key.str()) + "' in " + name +
                             "; remove it or use one of: " + list);
    }
  }

  const toml::table* table(const toml::table& root, std::string_view name) {
    const toml::node* node = root.get(name);
    if (node == nullptr) return nullptr;
    if (node->as_table() == nullptr) {
      fail(node->source(),
           "'" + std::string(name) + "' must be a table: [" + std::string(name) + "]");
    }
    return node->as_table();
  }

  std::optional<std::string> text(const toml::table* table, std::string_view key) {
    const toml::node* node = table == nullptr ? nullptr : table->get(key);
    if (node == nullptr) return std::nullopt;
    if (!node->is_string()) {
      fail(node->source(), "'" + std::string(key) + "' must be a string in quotes");
      return std::nullopt;
    }
    return node->as_string()->get();
  }

  std::vector<std::string> texts(const toml::table* table, std::string_view key) {
    std::vector<std::string> list;
    const toml::node* node = table == nullptr ? nullptr : table->get(key);
    if (node == nullptr) return list;
    const auto* array = node->as_array();
    const std::string what = "'" + std::string(key) + "' must be a list of strings in quotes";
    if (array == nullptr) {
      fail(node->source(), what);
      return list;
    }
    for (const auto& item : *array) {
      if (item.is_string()) {
        list.push_back(item.as_string()->get());
      } else {
        fail(item.source(), what);
      }
    }
    return list;
  }

  void number(const toml::table* table, std::string_view key, std::uint64_t low, std::uint64_t high,
              std::uint32_t& out) {
    const toml::node* node = table == nullptr ? nullptr : table->get(key);
    if (node == nullptr) return;
    const auto* integer = node->as_integer();
    if (integer == nullptr || integer->get() < 0 ||
        static_cast<std::uint64_t>(integer->get()) < low ||
        static_cast<std::uint64_t>(integer->get()) > high) {
      fail(node->source(), "'" + std::string(key) + "' must be a whole number from " +
                               std::to_string(low) + " to " + std::to_string(high));
      return;
    }
    out = static_cast<std::uint32_t>(integer->get());
  }

 private:
  std::string file_;
  std::string error_;
};

toml::source_region region(const toml::table* table, std::string_view key) {
  if (table == nullptr) return {};
  const toml::node* node = table->get(key);
  return node == nullptr ? table->source() : node->source();
}

bool valid_listen(const std::string& listen) {
  const std::size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const auto port = parse_decimal(std::string_view(listen).substr(colon + 1));
  if (!port || *port > 65'535) return false;
  const std::string_view host = std::string_view(listen).substr(0, colon);
  constexpr std::string_view kHostCharacters = "0123456789abcdefABCDEF:.[]";
  return host.find_first_not_of(kHostCharacters) == std::string_view::npos;
}

// A host name in lower case, of labels such as DNS has them.
bool valid_host_name(std::string_view name) {
  if (name.size() > kMaxHostNameBytes) return false;
  for (;;) {
    const auto dot = name.find('.');
    const auto label = name.substr(0, dot);
    const bool shaped =
        !label.empty() && label.size() <= 63 && !label.starts_with('-') && !label.ends_with('-') &&
        label.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz-") == std::string_view::npos;
    if (!shaped) return false;
    if (dot == std::string_view::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

bool valid_runtime(const std::string& runtime) {
  return runtime == "auto" || runtime == "crun" || runtime == "runc" ||
         (runtime.starts_with('/') && runtime.find('\0') == std::string::npos);
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
  std::string what;
};

// No two parts, and no part and sandbox, may share a uid: peer credentials and file ownership rest
// on it.
void check_uids(const Config& config, Reader& in) {
  std::vector<Range> ranges;
  const auto one = [&](std::uint64_t uid, std::string what) {
    ranges.push_back({uid, uid + 1, std::move(what)});
  };
  one(config.control_uid, "[control_plane] uid");
  one(config.node_api_uid, "[node_api] uid");
  for (std::size_t i = 0; i < config.workers.size(); ++i) {
    const Worker& worker = config.workers[i];
    one(config.bridge_uid + i, "[workers] bridge_uid of worker " + worker.id.text());
    ranges.push_back({worker.first_uid, worker.first_uid + kUidsPerSandbox * worker.max_sandboxes,
                      "the uid range of worker " + worker.id.text()});
    if (ranges.back().end > kUidEnd) {
      in.fail({}, ranges.back().what + " ends above " + std::to_string(kUidEnd) +
                      "; lower first_uid or max_sandboxes");
    }
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    for (std::size_t j = i + 1; j < ranges.size(); ++j) {
      if (ranges[i].begin < ranges[j].end && ranges[j].begin < ranges[i].end) {
        in.fail({}, ranges[j].what + " overlaps " + ranges[i].what + "; give each its own uids");
      }
    }
  }
}

std::expected<Config, ConfigError> parse_with(std::string_view text,
                                              const std::filesystem::path& file,
                                              const std::filesystem::path& data_if_absent) {
  Reader in(file.string());
  const toml::parse_result parsed = toml::parse(text, file.string());
  if (!parsed) {
    in.fail(parsed.error().source(), std::string(parsed.error().description()));
    return std::unexpected(in.error());
  }
  const toml::table& root = parsed.table();
  in.only(root, "the file", {"platform", "control_plane", "node_api", "workers", "worker"});

  Config config;
  const toml::table* platform = in.table(root, "platform");
  if (platform != nullptr) in.only(*platform, "[platform]", {"data", "templates"});
  config.data = data_if_absent;
  if (auto data = in.text(platform, "data")) config.data = *data;
  if (!config.data.is_absolute() || config.data.string().find('\0') != std::string::npos) {
    in.fail(region(platform, "data"),
            "the data folder '" + config.data.string() + "' must be an absolute path");
  }

  if (auto templates = in.text(platform, "templates")) {
    config.shared_templates = *templates;
    if (!config.shared_templates.is_absolute() || templates->find('\0') != std::string::npos) {
      in.fail(region(platform, "templates"),
              "the templates folder '" + *templates + "' must be an absolute path");
    }
  }

  const toml::table* control = in.table(root, "control_plane");
  if (control != nullptr) in.only(*control, "[control_plane]", {"issuer", "uid"});
  if (auto issuer = in.text(control, "issuer")) {
    config.issuer = *issuer;
    if (!identity::Issuer::parse(*issuer)) {
      in.fail(region(control, "issuer"), "'issuer' must be 1 to 40 of a-z, 0-9 and '-'");
    }
  }
  in.number(control, "uid", 0, kUidEnd, config.control_uid);

  const toml::table* node_api = in.table(root, "node_api");
  if (node_api != nullptr)
    in.only(*node_api, "[node_api]", {"listen", "domain", "hosts", "uid", "holder"});
  if (auto listen = in.text(node_api, "listen")) config.listen = *listen;
  if (!valid_listen(config.listen)) {
    in.fail(region(node_api, "listen"), "'listen' must be ADDRESS:PORT, such as 127.0.0.1:3000");
  }
  if (auto domain = in.text(node_api, "domain")) {
    config.domain = *domain;
    if (!valid_host_name(config.domain)) {
      in.fail(region(node_api, "domain"),
              "'domain' must be a host name in lower case without a port, such as space.test");
    }
  }
  config.hosts = in.texts(node_api, "hosts");
  if (config.hosts.size() > kMaxHosts) {
    in.fail(region(node_api, "hosts"), "more than " + std::to_string(kMaxHosts) + " hosts");
  }
  for (const auto& host : config.hosts) {
    if (!valid_host_name(host)) {
      in.fail(region(node_api, "hosts"),
              "'hosts' must be host names in lower case without a port, such as space.internal");
    } else if (!config.domain.empty() &&
               (host == config.domain || host.ends_with("." + config.domain))) {
      in.fail(region(node_api, "hosts"), "host '" + host + "' lies in the domain '" +
                                             config.domain + "', whose names have their meaning");
    }
  }
  in.number(node_api, "uid", 1, kUidEnd, config.node_api_uid);
  const auto holder_text = in.text(node_api, "holder");
  const auto holder = identity::HolderId::parse(holder_text.value_or(""));
  if (!holder || *holder == identity::HolderId{}) {
    in.fail(region(node_api, "holder"),
            "[node_api] holder must be 64 lower-case hexadecimal digits, not all zero; "
            "`openssl rand -hex 32` makes one");
  } else {
    config.node_api_holder = *holder;
  }

  const toml::table* workers = in.table(root, "workers");
  if (workers != nullptr) {
    in.only(*workers, "[workers]", {"bridge_uid", "runtime", "clock_tolerance_ms"});
  }
  in.number(workers, "bridge_uid", 1, kUidEnd, config.bridge_uid);
  in.number(workers, "clock_tolerance_ms", 1, 15'000, config.clock_tolerance_ms);
  if (auto runtime = in.text(workers, "runtime")) config.runtime = *runtime;
  if (!valid_runtime(config.runtime)) {
    in.fail(region(workers, "runtime"),
            "'runtime' must be auto, crun, runc or the absolute path of an OCI runtime");
  }

  const toml::node* list = root.get("worker");
  if (list == nullptr || !list->is_array_of_tables()) {
    in.fail(list == nullptr ? toml::source_region{} : list->source(),
            "at least one [[worker]] table with an id is needed");
    return std::unexpected(in.error());
  }
  std::set<identity::WorkerId> seen;
  for (const toml::node& node : *list->as_array()) {
    const toml::table* table = node.as_table();
    in.only(*table, "[[worker]]", {"id", "first_uid", "max_sandboxes"});
    if (config.workers.size() == kMaxWorkers) {
      in.fail(node.source(), "more than " + std::to_string(kMaxWorkers) + " workers");
      break;
    }
    Worker worker;
    const auto id = identity::WorkerId::parse(in.text(table, "id").value_or(""));
    // The worker's sockets are in run/<id>, beside the control plane's folder run/control.
    if (!id || id->text() == "control") {
      in.fail(region(table, "id"), "'id' must be 1 to 40 of a-z, 0-9 and '-', and not 'control'");
      break;
    }
    worker.id = *id;
    if (!seen.insert(worker.id).second) {
      in.fail(region(table, "id"), "worker '" + worker.id.text() + "' is there twice");
    }
    worker.first_uid = static_cast<std::uint32_t>(kUidStride * (config.workers.size() + 1));
    in.number(table, "first_uid", kUidsPerSandbox, kUidEnd, worker.first_uid);
    in.number(table, "max_sandboxes", 1, kMaxSandboxes, worker.max_sandboxes);
    config.workers.push_back(std::move(worker));
  }
  check_uids(config, in);
  if (in.failed()) return std::unexpected(in.error());
  return config;
}

std::expected<std::string, ConfigError> read_file(const std::filesystem::path& file) {
  const auto failure = [&](const std::string& what) {
    return std::unexpected(ConfigError{file.string() + ": " + what});
  };
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return failure(std::strerror(errno));
  std::string text;
  std::array<char, 16'384> buffer{};
  // Read by position, since a descriptor shared with another process has one file offset for both.
  for (;;) {
    const auto count =
        ::pread(descriptor, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (count == 0) break;
    if (count < 0 || text.size() + static_cast<std::size_t>(count) > kMaxFileBytes) {
      const std::string why = count < 0 ? std::strerror(errno) : "larger than 1 MiB";
      ::close(descriptor);
      return failure(why);
    }
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(descriptor);
  return text;
}

}  // namespace

std::expected<Config, ConfigError> parse(std::string_view text, const std::filesystem::path& file) {
  return parse_with(text, file, file.parent_path());
}

std::expected<Config, ConfigError> load(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (!text) return std::unexpected(text.error());
  const char* environment = std::getenv("SPACE_DATA");
  std::error_code ignored;
  const std::filesystem::path data = environment != nullptr && *environment != '\0'
                                         ? std::filesystem::path(environment)
                                         : std::filesystem::absolute(file, ignored).parent_path();
  return parse_with(*text, file, data);
}

std::string default_text(const identity::HolderId& holder) {
  const auto first_uid = [](std::uint64_t index) { return std::to_string(kUidStride * index); };
  return R"(# SPACE, all parts of one machine. An unknown key is an error. After a change: space down, space up.

[platform]
# data = "/var/lib/space"    # default: SPACE_DATA, else the folder of this file
# templates = "/srv/templates"    # shared with other platforms; default: in the data folder

[control_plane]
issuer = "space"

[node_api]
listen = "127.0.0.1:3000"    # HTTP API
# domain = "space.test"      # its names <port>-<sandbox>.<domain> lead into sandboxes
# hosts = ["space.internal"] # more names of the API, besides localhost and IP addresses
uid = 64001                  # runs as this user
holder = ")" +
         holder.text() + R"("

[workers]
bridge_uid = 64100           # bridges of the first worker run as this user, of the second as the next
runtime = "auto"             # auto, crun, runc, or the path of an OCI runtime
clock_tolerance_ms = 15000

[[worker]]
id = "w1"
first_uid = )" +
         first_uid(1) + R"(        # 65536 uids for each of its sandboxes
max_sandboxes = 64

[[worker]]
id = "w2"
first_uid = )" +
         first_uid(2) + R"(
max_sandboxes = 64
)";
}

}  // namespace space::config
