#include "platform.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "adapters/crypto/system_entropy.h"
#include "adapters/supervisor/lock_file.h"
#include "adapters/supervisor/supervisor.h"
#include "adapters/telemetry/json_log.h"
#include "doctor.h"
#include "machine.h"
#include "services/cli/text.h"
#include "templates.h"

namespace space::app {
namespace {

constexpr auto kReadyTime = std::chrono::seconds(60);
constexpr auto kStopTime = std::chrono::seconds(90);
constexpr auto kPoll = std::chrono::milliseconds(50);
const std::string kConfigCopy = "space.toml";  // in run/, where the parts find it whatever is above

using Problem = std::optional<std::string>;

cli::Failure failure(std::string code, std::string message) {
  return {.exit_code = cli::kFailed, .code = std::move(code), .message = std::move(message)};
}

std::vector<std::string> part_environment(const config::Config& config) {
  return {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
          "SPACE_DATA=" + config.data.string()};
}

Problem make_folder(const std::filesystem::path& path, mode_t mode, std::uint32_t uid,
                    std::uint32_t gid) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return path.string() + ": " + std::strerror(errno);
  }
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return path.string() + ": " + std::strerror(errno);
  Problem problem;
  if (::fchown(folder, uid, gid) != 0 || ::fchmod(folder, mode) != 0) {
    problem = path.string() + ": " + std::strerror(errno);
  }
  ::close(folder);
  return problem;
}

// The data folder: others may pass through where a part that is not root must reach its own place,
// and list nothing.
Problem make_folders(const config::Config& config) {
  const std::uint32_t control = config.control_uid;
  const std::uint32_t front = config.node_api_uid;
  struct Folder {
    std::filesystem::path path;
    mode_t mode;
    std::uint32_t uid;
    std::uint32_t gid;
  };
  std::vector<Folder> folders{{config.data, 0711, 0, 0},
                              {config.control_folder(), 0700, control, control},
                              {config.data / "workers", 0711, 0, 0},
                              {config.artifacts(), 0700, 0, 0},
                              {config.logs(), 0700, 0, 0},
                              {config.run(), 0711, 0, 0},
                              {config.run() / "control", 02750, control, front}};
  for (const auto& worker : config.workers) {
    folders.push_back({config.worker_folder(worker.id), 0711, 0, 0});
    folders.push_back({config.run() / worker.id.text(), 0711, 0, 0});
    folders.push_back({config.run() / worker.id.text() / "hop", 02750, 0, front});
    folders.push_back({config.run() / worker.id.text() / "control", 0700, control, control});
  }
  // A shared one is as its owner made it.
  if (config.shared_templates.empty()) folders.push_back({config.templates(), 0755, 0, 0});
  for (const Folder& folder : folders) {
    if (auto problem = make_folder(folder.path, folder.mode, folder.uid, folder.gid)) {
      return problem;
    }
  }
  return std::nullopt;
}

// Runs a program to its end; its stdout. stderr is ours.
std::expected<std::string, std::string> run_program(const std::filesystem::path& program,
                                                    std::vector<std::string> arguments,
                                                    const config::Config& config) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::unexpected(std::strerror(errno));
  auto environment = part_environment(config);
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& s : strings) list.push_back(s.data());
    list.push_back(nullptr);
    return list;
  };
  arguments.insert(arguments.begin(), program.filename());
  const auto argv = pointers(arguments);
  const auto envp = pointers(environment);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::chdir(config.run().c_str()) != 0 || ::dup2(ends[1], 1) < 0) ::_exit(126);
    ::execve(program.c_str(), argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string output;
  std::array<char, 1024> buffer{};
  for (ssize_t count = 0; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    output.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  if (pid < 0 || ::waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0) {
    return std::unexpected(program.string() + " failed");
  }
  return output;
}

std::expected<std::string, std::string> create_api_key(const config::Config& config) {
  const auto program = find_program("space-control");
  if (!program) return std::unexpected(program.error());
  auto output = run_program(*program, {"--config", kConfigCopy, "--create-key", "default"}, config);
  if (!output) return output;
  const std::size_t begin = output->find("e2b_");
  if (begin == std::string::npos) return std::unexpected("space-control printed no API key");
  return output->substr(begin, output->find_first_of(" \r\n\"", begin) - begin);
}

Problem write_credentials(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (!error) error = supervisor::write_atomically(file, text, 0600);
  return error ? Problem(file.string() + ": " + error.message()) : std::nullopt;
}

// The first API key, kept where the command line looks for it; the URL is kept true.
std::expected<cli::Endpoint, std::string> make_credentials(const config::Config& config) {
  const auto file = config.data / "cli.toml";
  config::Credentials credentials;
  std::error_code ignored;
  const bool has_store = std::filesystem::exists(config.control_folder() / "space.db", ignored);
  if (const auto text = supervisor::read_small_file(file); text && has_store) {
    auto parsed = config::parse_credentials(*text, file);
    if (!parsed) return std::unexpected(parsed.error().message);
    credentials = std::move(*parsed);
  } else {
    auto key = create_api_key(config);
    if (!key) return std::unexpected(key.error());
    credentials.api_key = std::move(*key);
  }
  credentials.url = own_url(config);
  const std::string text = config::credentials_text(credentials);
  if (auto problem = write_credentials(file, text)) return std::unexpected(*problem);
  if (!data_folder_is_chosen()) {
    if (auto problem = write_credentials(home_credentials(), text)) {
      return std::unexpected(*problem);
    }
  }
  return cli::Endpoint{.url = credentials.url, .api_key = credentials.api_key};
}

// Starts `space supervise` in a session of its own, away from our terminal and descriptors.
std::expected<pid_t, std::string> launch_supervise(const config::Config& config) {
  const std::string log = config.logs() / "supervise.log";
  const std::string data = "SPACE_DATA=" + config.data.string();
  const pid_t pid = ::fork();
  if (pid < 0) return std::unexpected(std::strerror(errno));
  if (pid > 0) return pid;
  ::setsid();
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int in = ::open("/dev/null", O_RDONLY);
  if (in < 0 || out < 0 || ::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0 ||
      ::chdir("/") != 0) {
    ::_exit(126);
  }
  ::close_range(3, ~0U, 0);
  std::string name = "space";
  std::string verb = "supervise";
  std::string path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  std::string folder = data;
  const std::array<char*, 3> argv{name.data(), verb.data(), nullptr};
  const std::array<char*, 3> envp{path.data(), folder.data(), nullptr};
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

std::string last_lines(const std::filesystem::path& file, std::size_t count) {
  std::ifstream in(file, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back("  " + cli::printable(line) + "\n");
    if (lines.size() > count) lines.erase(lines.begin());
  }
  std::string text;
  for (const auto& line : lines) text += line;
  return text.empty() ? "" : file.string() + ":\n" + text;
}

std::string last_log_lines(const config::Config& config) {
  std::string text;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(config.logs(), ignored)) {
    if (entry.path().extension() == ".log") text += last_lines(entry.path(), 4);
  }
  return text;
}

bool is_ready(const boost::json::value& document) {
  const auto& workers = cli::member(document, "workers");
  if (!workers.is_array() || workers.get_array().empty()) return false;
  for (const auto& worker : workers.get_array()) {
    const auto& bundle = cli::member(worker, "bundle_version");
    if (cli::member(worker, "reachable") != boost::json::value(true) || !bundle.is_int64() ||
        bundle.get_int64() == 0) {
      return false;
    }
  }
  return true;
}

// Polls until every worker serves. `launched`: the supervisor just started, absent when it ran
// already.
Task<cli::Outcome<boost::json::value>> wait_ready(cli::Context& context,
                                                  const config::Config& config,
                                                  std::optional<pid_t> launched) {
  const MonoTime deadline = context.timer.now() + kReadyTime;
  std::string last = "no answer yet";
  while (context.timer.now() < deadline) {
    auto answer = co_await cli::call(context, "GET", "/space/v1/status", nullptr);
    if (answer && is_ready(answer->body)) co_return std::move(answer->body);
    last = answer ? boost::json::serialize(answer->body) : answer.error().message;
    int status = 0;
    if (launched && ::waitpid(*launched, &status, WNOHANG) == *launched) {
      last = "the supervisor ended";
      break;
    }
    if (!co_await sleep_for(context.timer, kPoll)) break;
  }
  context.terminal.err(last_log_lines(config));
  co_return std::unexpected(
      failure("not_ready", "the platform did not become ready (" + last +
                               "); the last log lines are above, `space doctor` looks for causes, "
                               "`space down` stops what runs"));
}

std::expected<config::Config, cli::Failure> load_config() {
  auto loaded = config::load(config_file());
  if (!loaded) return std::unexpected(failure("config", loaded.error().message));
  return std::move(*loaded);
}

std::expected<config::Config, cli::Failure> load_or_write_config() {
  std::error_code error;
  const auto file = config_file();
  if (!std::filesystem::exists(file, error)) {
    std::filesystem::create_directories(file.parent_path(), error);
    crypto::SystemEntropy entropy;
    const auto holder = random_id<identity::HolderId>(entropy);
    if (!error) error = supervisor::write_atomically(file, config::default_text(holder), 0644);
    if (error)
      return std::unexpected(failure("data_folder", file.string() + ": " + error.message()));
  }
  return load_config();
}

std::string config_hash() {
  return hash_text(supervisor::read_small_file(config_file()).value_or(""));
}

struct Started {
  config::Config config;
  std::optional<pid_t> launched;
};

// Everything of `up` before the waiting.
std::expected<Started, cli::Failure> start(cli::Context& context) {
  if (::geteuid() != 0) {
    return std::unexpected(failure(
        "not_root", "`space up` makes namespaces, mounts and users of its own: run it with sudo"));
  }
  auto loaded = load_or_write_config();
  if (!loaded) return std::unexpected(loaded.error());
  const config::Config& config = *loaded;
  const auto build = build_hash();
  if (!build) return std::unexpected(failure("programs", build.error()));

  if (supervisor::LockFile::held(lock_file(config))) {
    const auto state = read_state(config);
    const bool same_build = state && state->build == *build;
    if (!same_build || state->config != config_hash()) {
      return std::unexpected(failure(
          "already_up", "the platform of " + config.data.string() + " is up with another " +
                            (same_build ? "configuration" : "build") +
                            "; `space down --keep`, then `space up`, renews it and keeps the "
                            "sandboxes"));
    }
    const auto text = supervisor::read_small_file(config.data / "cli.toml");
    const auto credentials = config::parse_credentials(text.value_or(""), config.data / "cli.toml");
    if (!credentials) return std::unexpected(failure("config", credentials.error().message));
    context.endpoint = {.url = credentials->url, .api_key = credentials->api_key};
    return Started{.config = config, .launched = std::nullopt};
  }

  const auto address = listen_address(config);
  if (address.port == 0) {
    return std::unexpected(
        failure("config", "[node_api] listen needs a port in " + config_file().string()));
  }
  context.terminal.err("space: looking at this machine\n");
  for (const Check& check : examine(config, false)) {
    if (check.ok || !check.required) continue;
    return std::unexpected(failure("machine", check.name + ": " + check.detail));
  }
  if (auto problem = make_folders(config)) {
    return std::unexpected(failure("data_folder", *problem));
  }
  const auto text = supervisor::read_small_file(config_file());
  if (!text || supervisor::write_atomically(config.run() / kConfigCopy, *text, 0644)) {
    return std::unexpected(
        failure("data_folder", (config.run() / kConfigCopy).string() + " cannot be written"));
  }
  auto endpoint = make_credentials(config);
  if (!endpoint) return std::unexpected(failure("api_key", endpoint.error()));
  context.endpoint = std::move(*endpoint);
  auto launched = launch_supervise(config);
  if (!launched) return std::unexpected(failure("supervise", launched.error()));
  context.terminal.err("space: starting the parts in " + config.data.string() + "\n");
  return Started{.config = config, .launched = *launched};
}

// Kills every sandbox the API lists; the number that is left.
Task<std::size_t> kill_all(cli::Context& context) {
  auto answer = co_await cli::call(context, "GET", "/space/v1/sandboxes", nullptr);
  if (!answer) {
    context.terminal.err("space: " + answer.error().message + "\n");
    co_return 1;
  }
  std::size_t left = 0;
  const auto& sandboxes = cli::member(answer->body, "sandboxes");
  if (!sandboxes.is_array()) co_return 0;
  for (const auto& sandbox : sandboxes.get_array()) {
    const std::string id = cli::text_of(sandbox, "id");
    auto killed = co_await cli::call(context, "DELETE", cli::sandbox_target(id, ""), nullptr);
    if (killed || killed.error().exit_code == cli::kNoSandbox) {
      context.terminal.err("space: " + id + " killed\n");
    } else {
      context.terminal.err("space: " + id + ": " + killed.error().message + "\n");
      ++left;
    }
  }
  co_return left;
}

supervisor::Part part(const config::Config& config, const std::string& name,
                      const std::filesystem::path& program, std::vector<std::string> arguments,
                      std::optional<std::uint32_t> uid) {
  arguments.insert(arguments.begin(), {"--config", kConfigCopy});
  return {.name = name,
          .program = program,
          .arguments = std::move(arguments),
          .uid = uid,
          .log = config.logs() / (name + ".log")};
}

// What sandboxes can be made of. Builds the default template first unless `build` says no.
boost::json::array usable_templates(cli::Context& context, const config::Config& config,
                                    bool build) {
  if (build) {
    const auto built = ensure_template(context, config, kDefaultTemplate);
    if (!built) {
      context.terminal.err(
          "space: warning: template base could not be built: " + built.error().message +
          "\nspace: `space create --template host` works without it; `space "
          "template build base` tries again\n");
    }
  }
  boost::json::array names{"host"};
  if (templates::TemplateStore(config.templates()).newest(kDefaultTemplate)) {
    names.emplace_back(kDefaultTemplate);
  }
  return names;
}

}  // namespace

Task<int> up(cli::Context& context, bool with_template) {
  const MonoTime begin = context.timer.now();
  const auto started = start(context);
  if (!started) co_return cli::report(context, started.error());
  const auto ready = co_await wait_ready(context, started->config, started->launched);
  if (!ready) co_return cli::report(context, ready.error());
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(context.timer.now() - begin);
  const bool fresh = started->launched.has_value();
  const auto templates = usable_templates(context, started->config, with_template);
  if (context.json) {
    const boost::json::value document = {{"up", true},
                                         {"already", !fresh},
                                         {"url", context.endpoint.url},
                                         {"data", started->config.data.string()},
                                         {"took_ms", took.count()},
                                         {"templates", templates},
                                         {"workers", cli::member(*ready, "workers")}};
    co_return cli::print_json(context, document);
  }
  const std::string took_text = " in " + std::to_string(took.count()) + " ms";
  co_return cli::print(
      context, std::string(fresh ? "up" : "already up") + ": " + context.endpoint.url + ", " +
                   std::to_string(started->config.workers.size()) + " workers" +
                   (fresh ? took_text : "") + ", data in " + started->config.data.string() + "\n");
}

Task<int> down(cli::Context& context, bool keep) {
  std::error_code ignored;
  const auto say_down = [&](const std::string& text) {
    if (context.json) return cli::print_json(context, boost::json::object{{"up", false}});
    return cli::print(context, text + "\n");
  };
  if (!std::filesystem::exists(config_file(), ignored)) {
    co_return say_down("not running: there is no " + config_file().string());
  }
  const auto loaded = load_config();
  if (!loaded) co_return cli::report(context, loaded.error());
  const config::Config& config = *loaded;
  if (!supervisor::LockFile::held(lock_file(config))) co_return say_down("not running");
  if (::geteuid() != 0) {
    co_return cli::report(context, failure("not_root", "`space down` needs sudo, as `up` did"));
  }
  std::size_t left = 0;
  if (!keep) {
    const auto text = supervisor::read_small_file(config.data / "cli.toml");
    const auto credentials = config::parse_credentials(text.value_or(""), config.data / "cli.toml");
    if (credentials) {
      context.endpoint = {.url = credentials->url, .api_key = credentials->api_key};
      left = co_await kill_all(context);
    }
  }
  const auto state = read_state(config);
  if (!state || state->pid <= 1 || ::kill(state->pid, SIGTERM) != 0) {
    co_return cli::report(
        context, failure("supervise", "the supervisor named in " + state_file(config).string() +
                                          " cannot be signalled"));
  }
  const MonoTime deadline = context.timer.now() + kStopTime;
  while (supervisor::LockFile::held(lock_file(config))) {
    if (context.timer.now() > deadline) {
      co_return cli::report(
          context, failure("supervise", "the supervisor, process " + std::to_string(state->pid) +
                                            ", does not end"));
    }
    co_await sleep_for(context.timer, kPoll);
  }
  std::filesystem::remove(state_file(config), ignored);
  if (left > 0) {
    co_return cli::report(context, failure("sandboxes_left",
                                           "stopped, but sandboxes could not be killed and may "
                                           "still run; `space up`, then `space down` again"));
  }
  co_return say_down(keep ? "down; the sandboxes keep running" : "down");
}

Task<int> status(cli::Context& context) {
  std::error_code ignored;
  boost::json::object document{{"data", data_folder().string()}, {"up", false}};
  std::optional<config::Config> config;
  if (std::filesystem::exists(config_file(), ignored)) {
    auto loaded = load_config();
    if (!loaded) co_return cli::report(context, loaded.error());
    config = std::move(*loaded);
  }
  if (!config || !supervisor::LockFile::held(lock_file(*config))) {
    const int printed = context.json
                            ? cli::print_json(context, document)
                            : cli::print(context, "down; `space up` starts the platform in " +
                                                      data_folder().string() + "\n");
    co_return printed == cli::kOk ? cli::kPlatformDown : printed;
  }
  document["up"] = true;
  const auto state = read_state(*config);
  document["parts"] = state ? state->parts : boost::json::value(boost::json::array());
  auto endpoint = find_endpoint();
  cli::Outcome<cli::Answer> answer = std::unexpected(cli::Failure{});
  if (endpoint) {
    context.endpoint = std::move(*endpoint);
    answer = co_await cli::call(context, "GET", "/space/v1/status", nullptr);
  } else {
    answer = std::unexpected(endpoint.error());
  }
  const bool healthy = answer && is_ready(answer->body);
  if (answer) {
    document["platform"] = answer->body;
  } else {
    document["problem"] = answer.error().message;
    context.terminal.err("space: " + answer.error().message + "\n");
  }
  const int code = healthy ? cli::kOk : cli::kFailed;
  if (context.json) {
    const int printed = cli::print_json(context, document);
    co_return printed == cli::kOk ? code : printed;
  }
  std::vector<std::vector<std::string>> rows{{"PART", "PID", "STARTS", "LAST END"}};
  if (const auto* parts = document["parts"].if_array()) {
    for (const auto& p : *parts) {
      rows.push_back({cli::shown(p, "name"), cli::shown(p, "pid"), cli::shown(p, "starts"),
                      cli::shown(p, "last_end")});
    }
  }
  std::string text = "up, data in " + config->data.string() + "\n\n" + cli::columns(rows);
  if (answer) {
    rows = {{"WORKER", "REACHABLE", "SANDBOXES", "RUNTIME", "EVIDENCE", "KEYS", "REASON"}};
    if (const auto& workers = cli::member(answer->body, "workers"); workers.is_array()) {
      for (const auto& w : workers.get_array()) {
        rows.push_back({cli::shown(w, "id"), cli::shown(w, "reachable"), cli::shown(w, "sandboxes"),
                        cli::shown(w, "runtime"), cli::shown(w, "evidence"),
                        cli::shown(w, "bundle_version"), cli::shown(w, "reason")});
      }
    }
    text += "\n" + cli::columns(rows) + "\nsandboxes: " + cli::shown(answer->body, "running") +
            " running, " + cli::shown(answer->body, "paused") + " paused\n";
  }
  const int printed = cli::print(context, text);
  co_return printed == cli::kOk ? code : printed;
}

int supervise() {
  telemetry::JsonLog log("supervise");
  const auto refuse = [&](const std::string& why) {
    log.event(Level::kError, "supervise.refused", {{"reason", why}});
    return cli::kFailed;
  };
  const auto loaded = config::load(config_file());
  if (!loaded) return refuse(loaded.error().message);
  const config::Config& config = *loaded;
  auto lock = supervisor::LockFile::acquire(lock_file(config));
  if (!lock) return refuse(lock_file(config).string() + ": " + lock.error().message());
  if (!*lock) return refuse("another supervisor runs");
  const auto build = build_hash();
  if (!build) return refuse(build.error());
  const auto control = find_program("space-control");
  const auto manager = find_program("sbx-manager");
  const auto front = find_program("space-node-api");

  std::vector<supervisor::Part> parts;
  std::optional<std::uint32_t> control_uid;
  if (config.control_uid != 0) control_uid = config.control_uid;
  parts.push_back(part(config, "space-control", *control, {}, control_uid));
  for (const auto& worker : config.workers) {
    parts.push_back(part(config, "sbx-manager-" + worker.id.text(), *manager,
                         {"--worker", worker.id.text()}, std::nullopt));
  }
  parts.push_back(part(config, "space-node-api", *front, {}, config.node_api_uid));

  const std::string config_text_hash = config_hash();
  const auto changed = [&](const std::vector<supervisor::PartState>& states) {
    boost::json::array list;
    for (const auto& state : states) {
      list.push_back({{"name", state.name},
                      {"pid", state.pid},
                      {"starts", state.starts},
                      {"last_end", state.last_end}});
    }
    const boost::json::value document = {{"pid", ::getpid()},
                                         {"build", *build},
                                         {"config", config_text_hash},
                                         {"parts", std::move(list)}};
    const auto error = supervisor::write_atomically(state_file(config),
                                                    boost::json::serialize(document) + "\n", 0644);
    if (error) log.event(Level::kError, "supervise.state", {{"reason", error.message()}});
  };
  const supervisor::Setting setting{.working_directory = config.run(),
                                    .environment = part_environment(config)};
  log.event(Level::kInfo, "supervise.start",
            {{"build", *build}, {"pid", static_cast<std::uint64_t>(::getpid())}});
  supervisor::run(parts, setting, log, changed);
  log.event(Level::kInfo, "supervise.end", {});
  return cli::kOk;
}

}  // namespace space::app
