#include <boost/asio/co_spawn.hpp>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>

#include <CLI/CLI.hpp>

#include "adapters/asio/loop.h"
#include "adapters/http/client.h"
#include "disk_files.h"
#include "doctor.h"
#include "logs.h"
#include "machine.h"
#include "platform.h"
#include "services/cli/commands.h"
#include "shell.h"
#include "templates.h"

namespace space::app {
namespace {

using Command = std::function<Task<int>(cli::Context&)>;

struct Arguments {
  bool json = false;
  bool needs_endpoint = true;
  bool supervise = false;
  Command command;
};

const char* const kExitCodes =
    "Exit codes: 0 done; 2 bad arguments; 3 (status) the platform is down; 1 (doctor) something "
    "is\n"
    "missing; 240 failed; 241 no such sandbox; 242 outcome unknown. `exec` passes on the code of "
    "the\n"
    "remote command, 128+n when signal n ended it.\n";

std::optional<std::map<std::string, std::string>> pairs(const std::vector<std::string>& list) {
  std::map<std::string, std::string> map;
  for (const std::string& item : list) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) return std::nullopt;
    map[item.substr(0, equals)] = item.substr(equals + 1);
  }
  return map;
}

CLI::Validator key_value() {
  return CLI::Validator(
      [](const std::string& text) {
        return pairs({text}) ? std::string() : "'" + text + "' is not KEY=VALUE";
      },
      "KEY=VALUE");
}

// What the command line says. The values the commands use live here.
class Parser {
 public:
  Parser() {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.set_help_flag("-h,--help", "Show this, or the help of a command");
    app_.set_version_flag("--version", "space 0.1.0");
    app_.add_flag("--json", arguments_.json,
                  "JSON on stdout, errors included; everything else goes to stderr");
    app_.footer(
        std::string("\n") + kExitCodes +
        "Credentials: SPACE_URL and SPACE_API_KEY, else cli.toml (written by `space up`).\n");
    add_platform();
    add_templates();
    add_lifecycle();
    add_operations();
  }

  // nullopt: done, with `exit_code`. `tail` is what followed `--`.
  std::optional<Arguments> parse(int argc, char** argv, int& exit_code) {
    std::vector<std::string> words(argv + 1, argv + argc);
    const auto dashes = std::find(words.begin(), words.end(), "--");
    if (dashes != words.end()) {
      tail_.assign(dashes + 1, words.end());
      words.erase(dashes, words.end());
    }
    const bool json = std::find(words.begin(), words.end(), "--json") != words.end();
    const auto first = std::find_if(words.begin(), words.end(),
                                    [](const std::string& w) { return !w.starts_with('-'); });
    const bool is_exec = first != words.end() && *first == "exec";
    std::string problem;
    try {
      std::reverse(words.begin(), words.end());
      app_.parse(words);
      if (!is_exec && !tail_.empty()) problem = "'--' has a meaning for exec only";
      if (is_exec) {
        exec_.command.insert(exec_.command.end(), tail_.begin(), tail_.end());
        if (exec_.command.empty()) problem = "exec needs a command: space exec ID -- COMMAND...";
      }
    } catch (const CLI::Success& success) {
      exit_code = app_.exit(success);
      return std::nullopt;
    } catch (const CLI::ParseError& error) {
      problem = error.what();
    }
    if (problem.empty()) return std::move(arguments_);
    exit_code = is_exec ? cli::kFailed : cli::kUsage;
    std::fprintf(stderr, "space: %s; `space --help` shows the commands\n", problem.c_str());
    if (json) {
      const boost::json::value document = {
          {"error", {{"code", "usage"}, {"message", problem}, {"exit_code", exit_code}}}};
      std::printf("%s\n", boost::json::serialize(document).c_str());
    }
    return std::nullopt;
  }

 private:
  CLI::App* add(const std::string& name, const std::string& help, const std::string& example,
                Command command) {
    return add_to(app_, name, help, example, std::move(command));
  }
  CLI::App* add_to(CLI::App& parent, const std::string& name, const std::string& help,
                   const std::string& example, Command command) {
    CLI::App* sub = parent.add_subcommand(name, help);
    sub->fallthrough();
    sub->set_help_flag("-h,--help", "Show this");
    sub->footer("\nExample:\n" + example);
    sub->callback([this, command = std::move(command)] { arguments_.command = command; });
    return sub;
  }
  CLI::App* add_local(const std::string& name, const std::string& help, const std::string& example,
                      Command command) {
    CLI::App* sub = add(name, help, example, std::move(command));
    sub->preparse_callback([this](std::size_t) { arguments_.needs_endpoint = false; });
    return sub;
  }

  void add_platform() {
    auto* start =
        add_local("up", "Start the platform on this machine",
                  "  sudo space up\n  SPACE_DATA=/srv/space space up --json\n"
                  "  sudo space up --no-template    # sandboxes of --template host only\n",
                  [this](cli::Context& c) { return up(c, !no_template_); });
    start->add_flag("--no-template", no_template_,
                    "Do not build the template base when it is missing");
    auto* stop = add_local("down", "Kill all sandboxes and stop the platform",
                           "  sudo space down\n  sudo space down --keep    # sandboxes stay\n",
                           [this](cli::Context& c) { return down(c, keep_); });
    stop->add_flag("--keep", keep_, "Leave the sandboxes running; the next `up` finds them");
    add_local("status", "Show the parts, workers and sandboxes; exit code 3 when down",
              "  space status --json\n", [](cli::Context& c) { return status(c); });
    add_local("doctor", "Name what this machine lacks, with one line of advice each",
              "  sudo space doctor\n", [](cli::Context& c) { return run_doctor(c); });
    add("env", "Print the credentials as shell assignments, for this command and the E2B SDKs",
        "  eval \"$(space env)\"\n  python3 -c 'from e2b import Sandbox; "
        "print(Sandbox.create().sandbox_id)'\n",
        [](cli::Context& c) { return cli::env(c); });
    auto* log = add_local("logs", "Show what the parts of this machine did, in order",
                          "  space logs -n 20\n  space logs --sandbox ID --follow\n"
                          "  space logs --level warning --part sbx-manager\n",
                          [this](cli::Context& c) { return logs(c, logs_); });
    log->add_option("--part", logs_.part, "Of this part only");
    log->add_option("--sandbox", logs_.sandbox, "About this sandbox only");
    log->add_option("--level", logs_.level, "This and worse")
        ->check(CLI::IsMember({"debug", "info", "warning", "error", "alarm"}));
    log->add_option("-n,--lines", logs_.lines, "At most so many, the newest")
        ->capture_default_str();
    log->add_flag("-f,--follow", logs_.follow, "Go on until interrupted");
    auto* top = add("top", "Show sandboxes, executions, repairs and refusals as they change",
                    "  space top\n  space top --samples 1 --json\n", [this](cli::Context& c) {
                      top_.interval = std::chrono::milliseconds(
                          static_cast<std::int64_t>(top_interval_s_ * 1000));
                      return cli::top(c, top_);
                    });
    top->add_option("--interval", top_interval_s_, "Seconds between two samples")
        ->capture_default_str()
        ->check(CLI::Range(0.1, 3600.0));
    top->add_option("--samples", top_.samples, "Stop after so many; 0: never");
    auto* hidden = add_local("supervise", "", "", [](cli::Context& c) { return run_doctor(c); });
    hidden->group("");
    hidden->callback([this] { arguments_.supervise = true; });
  }

  void add_templates() {
    auto* group = app_.add_subcommand("template", "What sandboxes are made of, on this machine");
    group->require_subcommand(1);
    group->fallthrough();
    group->set_help_flag("-h,--help", "Show this");
    group->preparse_callback([this](std::size_t) { arguments_.needs_endpoint = false; });
    group->footer("\nExample:\n  sudo space template build base\n");
    add_to(*group, "ls", "List them", "  sudo space template ls\n",
           [](cli::Context& c) { return template_list(c); });
    auto* build = add_to(*group, "build",
                         "Build one from Debian's archives (half a minute); one that is there is "
                         "not built again",
                         "  sudo space template build base\n",
                         [this](cli::Context& c) { return template_build(c, name_); });
    build->add_option("NAME", name_, "The one there is a recipe for: base")->required();
    auto* remove = add_to(*group, "rm", "Remove builds that no sandbox is made of",
                          "  sudo space template rm base             # all builds of it\n"
                          "  sudo space template rm base@0f3c21      # this one\n",
                          [this](cli::Context& c) { return template_remove(c, ids_); });
    remove->add_option("NAME", ids_, "NAME, or NAME@HASH; the first digits do")->required();
  }

  void add_lifecycle() {
    auto* create =
        add("create", "Make a sandbox and print its id",
            "  ID=$(space create)\n  space create --worker w1 --memory 1024 -e MODE=test\n"
            "  space create --template host    # with this machine's own programs\n",
            [this](cli::Context& c) {
              create_.metadata = *pairs(metadata_);
              create_.envs = *pairs(envs_);
              return app::create(c, create_);
            });
    create->add_option("-t,--template", create_.template_name, "What it is made of: base, or host")
        ->capture_default_str();
    create->add_option("--timeout", create_.timeout_s, "Seconds until it is killed");
    create->add_option("-m,--metadata", metadata_, "Kept with it")
        ->allow_extra_args(false)
        ->check(key_value());
    create->add_option("-e,--env", envs_, "For every process in it")
        ->allow_extra_args(false)
        ->check(key_value());
    create->add_option("--worker", create_.worker, "Where to place it");
    create->add_option("--cpu", create_.cpu_millis, "Thousandths of a CPU");
    create->add_option("--memory", create_.memory_mb, "MiB");
    create->add_option("--disk", create_.disk_mb, "MiB");

    add("ls", "List the sandboxes", "  space ls --json\n",
        [](cli::Context& c) { return cli::list(c); });
    one_id("info", "Show one sandbox", "  space info ID\n",
           [this](cli::Context& c) { return cli::info(c, id_); });
    one_id("pause", "Stop its processes and keep everything", "  space pause ID\n",
           [this](cli::Context& c) { return cli::pause(c, id_); });
    auto* resume =
        one_id("resume", "Continue a paused sandbox",
               "  space resume ID\n  space resume ID --worker w2\n", [this](cli::Context& c) {
                 resume_.sandbox = id_;
                 return cli::resume(c, resume_);
               });
    resume->add_option("--worker", resume_.worker, "Elsewhere: files are kept, processes end");
    resume->add_option("--timeout", resume_.timeout_s, "Seconds until it is killed");
    auto* move = one_id("move", "Pause it and resume it on another worker",
                        "  space move ID\n  space move ID --worker w2\n", [this](cli::Context& c) {
                          resume_.sandbox = id_;
                          return cli::move(c, resume_);
                        });
    move->add_option("--worker", resume_.worker, "Where to; absent: any other");
    auto* kill = add("kill", "End sandboxes and everything in them", "  space kill ID ID2\n",
                     [this](cli::Context& c) { return cli::kill(c, ids_); });
    kill->add_option("ID", ids_)->required();
    one_id("route", "Show the execution identity and what each receiver has installed",
           "  space route ID\n", [this](cli::Context& c) { return cli::route(c, id_); });
    auto* capability =
        one_id("capability", "Show what the capability of an operation claims, never the token",
               "  space capability ID\n  space capability ID --operation process.start\n",
               [this](cli::Context& c) { return cli::capability(c, id_, operation_); });
    capability->add_option("--operation", operation_, "Of the table in docs/protocol.md")
        ->capture_default_str();
  }

  void add_operations() {
    auto* exec = one_id("exec", "Run a command in a sandbox",
                        "  space exec ID -- uname -a\n"
                        "  tar c . | space exec -i ID -w /tmp -- tar x\n"
                        "  space exec ID --timeout 5 -- sleep 60\n",
                        [this](cli::Context& c) {
                          exec_.sandbox = id_;
                          exec_.envs = *pairs(envs_);
                          if (timeout_s_) exec_.timeout_ms = *timeout_s_ * 1000;
                          return cli::exec(c, exec_);
                        });
    exec->add_option("COMMAND", exec_.command, "The program and its arguments, after --");
    exec->add_flag("-i,--stdin", exec_.forward_stdin, "Forward stdin");
    exec->add_option("-e,--env", envs_, "Environment variable")
        ->allow_extra_args(false)
        ->check(key_value());
    exec->add_option("-w,--cwd", exec_.cwd, "Working directory");
    exec->add_option("-u,--user", exec_.user, "User in the sandbox");
    exec->add_option("--timeout", timeout_s_, "Seconds until the command is killed")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{86'400}));

    auto* cat = one_id("cat", "Print a file of a sandbox", "  space cat ID /etc/os-release\n",
                       [this](cli::Context& c) { return cli::cat(c, id_, path_, user_); });
    cat->add_option("PATH", path_)->required();
    cat->add_option("-u,--user", user_, "Whose rights apply");
    auto* cp = add("cp", "Copy a file or a folder into or out of a sandbox",
                   "  space cp notes.txt ID:/home/user/\n  space cp ID:/tmp/result ./result\n"
                   "  space cp ./project ID:/home/user/project\n",
                   [this](cli::Context& c) { return cli::copy(c, path_, to_, user_); });
    cp->add_option("FROM", path_, "A local path, - for stdin, or ID:PATH")->required();
    cp->add_option("TO", to_, "ID:PATH, a local path, or - for stdout")->required();
    cp->add_option("-u,--user", user_, "Whose rights apply in the sandbox");
  }

  CLI::App* one_id(const std::string& name, const std::string& help, const std::string& example,
                   Command command) {
    CLI::App* sub = add(name, help, example, std::move(command));
    sub->add_option("ID", id_, "Of the sandbox")->required();
    return sub;
  }

  static Task<int> run_doctor(cli::Context& context) { co_return doctor(context); }

  CLI::App app_{"SPACE: sandboxes on your own machine", "space"};
  Arguments arguments_;
  bool keep_ = false;
  bool no_template_ = false;
  std::string id_, name_, path_, to_, user_;
  std::vector<std::string> ids_, metadata_, envs_, tail_;
  std::optional<std::uint64_t> timeout_s_;
  cli::CreateOptions create_;
  cli::ResumeOptions resume_;
  cli::ExecOptions exec_;
  cli::TopOptions top_;
  double top_interval_s_ = 2;
  LogsOptions logs_;
  std::string operation_ = "file.read";
};

Task<int> run_command(cli::Context& context, const Arguments& arguments) {
  if (arguments.needs_endpoint) {
    auto endpoint = find_endpoint();
    if (!endpoint) co_return cli::report(context, endpoint.error());
    context.endpoint = std::move(*endpoint);
  }
  co_return co_await arguments.command(context);
}

int run(int argc, char** argv) {
  Parser parser;
  int exit_code = cli::kFailed;
  const auto arguments = parser.parse(argc, argv, exit_code);
  if (!arguments) return std::fflush(stdout) == 0 ? exit_code : cli::kFailed;
  if (arguments->supervise) return supervise();
  asio::Loop loop;
  Shell shell(loop);
  DiskFiles files;
  http::Client client(loop);
  cli::Context context{.http = client,
                       .terminal = shell,
                       .files = files,
                       .timer = loop,
                       .endpoint = {},
                       .json = arguments->json};
  boost::asio::co_spawn(loop.context(), run_command(context, *arguments),
                        [&](std::exception_ptr error, int code) {
                          if (error) std::rethrow_exception(error);
                          exit_code = code;
                          loop.context().stop();
                        });
  loop.context().run();
  return exit_code;
}

}  // namespace
}  // namespace space::app

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return space::app::run(argc, argv);
}
