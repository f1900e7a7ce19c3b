#include "adapters/runtime_oci/template_users.h"

#include <set>

#include "adapters/runtime_oci/disk.h"
#include "adapters/runtime_oci/sys.h"

namespace space {
namespace {
namespace fs = std::filesystem;

// What is in `folder`; nothing when there is no such folder.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  return found;
}

}  // namespace

std::vector<std::string> users_of_template(const fs::path& data,
                                           const templates::TemplateRef& ref) {
  std::set<std::string> users;
  const auto look = [&](const fs::path& image, const std::string& name) {
    if (!oci::exists(image)) return;  // its folder is half made, or half gone
    const auto mark = oci::marked_template(image);
    if (mark && *mark != ref.text()) return;
    // Names begin with the sandbox's id.
    users.insert("sandbox " + name.substr(0, name.find('.')));
  };
  for (const auto& worker : entries(data / "workers")) {
    for (const auto& sandbox : entries(worker / "sandboxes")) {
      look(sandbox / "upper.img", sandbox.filename());
    }
  }
  for (const auto& artifact : entries(data / "artifacts")) {
    auto name = artifact.filename().string();
    name.erase(0, name.find_first_not_of('.'));  // half written: a dot before its name
    look(artifact, name);
  }
  return {users.begin(), users.end()};
}

}  // namespace space
