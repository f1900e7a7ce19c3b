#pragma once
#include <optional>
#include <string>
#include <vector>

#include "adapters/config/config.h"
#include "adapters/templates/template_store.h"
#include "services/cli/commands.h"

// The commands about what sandboxes are made of, on this machine's own folders.
namespace space::app {

inline constexpr const char* kDefaultTemplate = "base";

// `space template ls`.
Task<int> template_list(cli::Context& context);
// `space template build NAME`. Succeeds at once when the same recipe was built before.
Task<int> template_build(cli::Context& context, std::string name);
// `space template rm NAME...`: all builds of a name, or NAME@HASH, where the first digits of the
// hash do. Removes nothing that a sandbox is made of.
Task<int> template_remove(cli::Context& context, std::vector<std::string> names);

struct BuiltTemplate {
  templates::TemplateRef ref;
  bool now = false;  // false: it was there
};
// Builds `name` unless it is there. Blocks, with progress on stderr.
cli::Outcome<BuiltTemplate> ensure_template(cli::Context& context, const config::Config& config,
                                            const std::string& name);

// `space create`: when the platform is this machine's, we may, and the template is one that can be
// built and is not, it is built first.
Task<int> create(cli::Context& context, cli::CreateOptions options);

}  // namespace space::app
