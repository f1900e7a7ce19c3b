#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "adapters/templates/template_store.h"

namespace space::templates {

// Everything that decides what a template holds, but for the state of the archives. Two recipes
// with the same text make the same template.
struct Recipe {
  std::string name;
  std::string arch;     // Debian's name of it
  std::string suite;    // such as "bookworm"
  std::string sources;  // lines for sources.list
  std::vector<std::string> packages;
  std::string script;  // for sh, run as root at the end; $1 is the root folder
  // The canonical text whose SHA-256 is the hash.
  std::string text() const;
  TemplateRef ref() const;
};

// Template "base": bash, python3, git, curl and sudo of Debian; user "user" (1000, group "user",
// /home/user) with sudo that asks for no password.
Recipe base_recipe(std::string arch, std::string suite, std::string sources);

// The recipe of `name` here: the suite of /etc/os-release and the sources of /etc/apt, both below
// `etc`. kNoSuchTemplate for a name without a recipe, kUnavailable when the machine has no source
// for its own suite.
TemplateResult<Recipe> recipe_of(std::string_view name, const std::filesystem::path& etc = "/etc");

}  // namespace space::templates
