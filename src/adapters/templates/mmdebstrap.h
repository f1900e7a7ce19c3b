#pragma once
#include <functional>

#include "adapters/templates/build_progress.h"
#include "adapters/templates/recipe.h"

namespace space::templates {

// Makes `work`/root from `recipe` by mmdebstrap, with this machine's proxies, certificates and keys
// of apt. Blocks: half a minute to a few, at most half an hour. Needs root and the network. Runs in
// process and mount namespaces of its own, so that nothing of it outlives this process. Failures
// carry the last lines it wrote.
TemplateResult<void> make_root(const Recipe& recipe, const std::filesystem::path& work,
                               const std::function<void(const BuildProgress&)>& progress);

// Whether mmdebstrap is installed.
bool can_make_root();

}  // namespace space::templates
