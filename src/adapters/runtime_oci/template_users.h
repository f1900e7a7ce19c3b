#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "adapters/templates/template_store.h"

namespace space {

// Which sandboxes of the workers of the data folder `data` are made of `ref`: those that run, are
// parked, or are kept as an artifact. For people; each once, in order. A disk that cannot be read
// counts as a user of every template. Reads a few bytes of every disk there is.
std::vector<std::string> users_of_template(const std::filesystem::path& data,
                                           const templates::TemplateRef& ref);

}  // namespace space
