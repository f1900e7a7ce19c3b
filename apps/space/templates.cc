#include "templates.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "adapters/runtime_oci/template_users.h"
#include "adapters/templates/mmdebstrap.h"
#include "adapters/templates/recipe.h"
#include "machine.h"
#include "progress.h"
#include "services/cli/text.h"

namespace space::app {
namespace {

constexpr const char* kHostTemplate = "host";  // always there, built by nobody
constexpr std::size_t kShownDigits = 12;

cli::Failure failure(std::string code, std::string message) {
  return {.exit_code = cli::kFailed, .code = std::move(code), .message = std::move(message)};
}

cli::Failure from(templates::TemplateFailure failed) {
  switch (failed.error) {
    case templates::TemplateError::kNoSuchTemplate:
      return failure("no_such_template", std::move(failed.message));
    case templates::TemplateError::kInUse:
      return failure("template_in_use", std::move(failed.message));
    case templates::TemplateError::kUnavailable:
      return failure("cannot_build", std::move(failed.message));
    case templates::TemplateError::kFailed:
      return failure("templates", std::move(failed.message));
  }
  std::unreachable();
}

// The configuration, or where things are without one.
cli::Outcome<config::Config> local_config() {
  if (::geteuid() != 0) {
    return std::unexpected(
        failure("not_root", "templates are root's, in " + data_folder().string() + ": use sudo"));
  }
  std::error_code ignored;
  if (!std::filesystem::exists(config_file(), ignored)) {
    config::Config config;
    config.data = data_folder();
    return config;
  }
  auto loaded = config::load(config_file());
  if (!loaded) return std::unexpected(failure("config", loaded.error().message));
  return std::move(*loaded);
}

std::string megabytes(std::uint64_t bytes) {
  return std::to_string((bytes + (1U << 20) - 1) >> 20U) + " MiB";
}

boost::json::array strings(const std::vector<std::string>& list) {
  return boost::json::array(list.begin(), list.end());
}

// The builds that `text` names: NAME, or NAME@DIGITS.
cli::Outcome<std::vector<templates::TemplateRef>> named(
    const std::vector<templates::TemplateInfo>& all, const std::string& text) {
  const auto at = text.find('@');
  const auto name = text.substr(0, at);
  const auto digits = at == std::string::npos ? "" : text.substr(at + 1);
  std::vector<templates::TemplateRef> found;
  for (const auto& info : all) {
    if (info.ref.name == name && info.ref.hash.starts_with(digits)) found.push_back(info.ref);
  }
  if (name == kHostTemplate) {
    return std::unexpected(failure("usage", "template host is this machine itself; it stays"));
  }
  if (found.empty()) {
    return std::unexpected(failure("no_such_template", "no template " + cli::printable(text) +
                                                           "; `space template ls` shows them"));
  }
  if (at != std::string::npos && (digits.empty() || found.size() > 1)) {
    return std::unexpected(
        failure("usage", "several templates are named " + cli::printable(text) + "..."));
  }
  return found;
}

}  // namespace

Task<int> template_list(cli::Context& context) {
  const auto config = local_config();
  if (!config) co_return cli::report(context, config.error());
  const auto all = templates::TemplateStore(config->templates()).list();
  if (!all) co_return cli::report(context, from(all.error()));
  boost::json::array list{{{"name", kHostTemplate}, {"hash", nullptr}, {"newest", true}}};
  std::vector<std::vector<std::string>> rows{
      {"TEMPLATE", "HASH", "BUILT", "SIZE", "FROM", "SANDBOXES"},
      {kHostTemplate, "-", "-", "-", "this machine", "-"}};
  std::string last;
  for (const auto& info : *all) {
    const bool newest = info.ref.name != last;
    last = info.ref.name;
    const auto users = users_of_template(config->data, info.ref);
    list.push_back({{"name", info.ref.name},
                    {"hash", info.ref.hash},
                    {"newest", newest},
                    {"built_at", info.built_at},
                    {"size_bytes", info.size_bytes},
                    {"suite", info.suite},
                    {"arch", info.arch},
                    {"packages", strings(info.packages)},
                    {"used_by", strings(users)}});
    rows.push_back({info.ref.name + (newest ? "" : " (old)"), info.ref.hash.substr(0, kShownDigits),
                    info.built_at, megabytes(info.size_bytes), info.suite + " " + info.arch,
                    std::to_string(users.size())});
  }
  if (context.json) {
    const boost::json::value document = {{"templates", list}};
    co_return cli::print_json(context, document);
  }
  co_return cli::print(context, cli::columns(rows));
}

cli::Outcome<BuiltTemplate> ensure_template(cli::Context& context, const config::Config& config,
                                            const std::string& name) {
  auto recipe = templates::recipe_of(name);
  if (!recipe) return std::unexpected(from(std::move(recipe).error()));
  Progress progress(context.terminal, "template " + name, !context.json && ::isatty(2) == 1);
  const templates::TemplateInfo info{
      recipe->ref(), recipe->suite, recipe->arch, recipe->packages, {}, 0};
  const auto make = [&](const std::filesystem::path& work) {
    return templates::make_root(*recipe, work, [&](const templates::BuildProgress& so_far) {
      progress.show(so_far.step(), so_far.percent());
    });
  };
  const auto waiting = [&] { progress.show("another process builds; waiting for it", 0); };
  auto built = templates::TemplateStore(config.templates()).build(info, make, waiting);
  if (!built) return std::unexpected(from(std::move(built).error()));
  return BuiltTemplate{info.ref, *built};
}

Task<int> template_build(cli::Context& context, std::string name) {
  const auto config = local_config();
  if (!config) co_return cli::report(context, config.error());
  if (name == kHostTemplate) {
    co_return cli::report(context,
                          failure("usage", "template host is this machine itself: always there"));
  }
  const MonoTime begin = context.timer.now();
  const auto built = ensure_template(context, *config, name);
  if (!built) co_return cli::report(context, built.error());
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(context.timer.now() - begin);
  if (context.json) {
    const boost::json::value document = {{"name", built->ref.name},
                                         {"hash", built->ref.hash},
                                         {"built", built->now},
                                         {"took_ms", took.count()}};
    co_return cli::print_json(context, document);
  }
  co_return cli::print(context,
                       built->ref.name + "@" + built->ref.hash.substr(0, kShownDigits) +
                           (built->now ? " built in " + std::to_string(took.count()) + " ms\n"
                                       : " is there already\n"));
}

Task<int> template_remove(cli::Context& context, std::vector<std::string> names) {
  const auto config = local_config();
  if (!config) co_return cli::report(context, config.error());
  if (!config->shared_templates.empty()) {
    co_return cli::report(
        context, failure("templates_shared",
                         config->shared_templates.string() +
                             " is shared with other platforms ([platform] templates), whose "
                             "sandboxes are not known here: remove it by hand when none uses it"));
  }
  templates::TemplateStore store(config->templates());
  const auto all = store.list();
  if (!all) co_return cli::report(context, from(all.error()));
  std::vector<templates::TemplateRef> refs;
  for (const auto& name : names) {
    auto found = named(*all, name);
    if (!found) co_return cli::report(context, found.error());
    refs.insert(refs.end(), found->begin(), found->end());
  }
  boost::json::array removed;
  for (const auto& ref : refs) {
    const auto done = store.remove(
        ref, [&](const templates::TemplateRef& r) { return users_of_template(config->data, r); });
    if (!done) co_return cli::report(context, from(done.error()));
    removed.emplace_back(ref.text());
    if (!context.json) context.terminal.out(ref.text() + " removed\n");
  }
  if (!context.json) co_return cli::kOk;
  const boost::json::value document = {{"removed", removed}};
  co_return cli::print_json(context, document);
}

Task<int> create(cli::Context& context, cli::CreateOptions options) {
  std::error_code ignored;
  if (options.template_name == kDefaultTemplate && ::geteuid() == 0 &&
      std::filesystem::exists(config_file(), ignored)) {
    const auto config = config::load(config_file());
    if (config && own_url(*config) == context.endpoint.url &&
        !templates::TemplateStore(config->templates()).newest(options.template_name)) {
      const auto built = ensure_template(context, *config, options.template_name);
      if (!built) {
        auto failed = built.error();
        failed.message += "\nspace: `--template host` needs no build";
        co_return cli::report(context, failed);
      }
    }
  }
  co_return co_await cli::create(context, std::move(options));
}

}  // namespace space::app
