#include "adapters/templates/recipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

namespace space::templates {
namespace {
namespace fs = std::filesystem;

TEST(Recipe, TheSameRecipeHasTheSameHashAndEveryPartCounts) {
  const auto make = [] { return base_recipe("amd64", "bookworm", "deb http://a bookworm main\n"); };
  EXPECT_EQ(make().ref(), make().ref());
  EXPECT_TRUE(TemplateRef::parse(make().ref().text()));
  std::vector<Recipe> others(7, make());
  others[0].arch = "arm64";
  others[1].suite = "trixie";
  others[2].sources += "deb http://b bookworm main\n";
  others[3].packages.emplace_back("less");
  others[4].packages.pop_back();
  others[5].script += "true\n";
  others[6].name = "other";
  std::set<std::string> hashes{make().ref().hash};
  for (const auto& other : others) hashes.insert(other.ref().hash);
  EXPECT_EQ(hashes.size(), others.size() + 1);
}

TEST(Recipe, NoContentLooksLikeAnotherField) {
  auto one = base_recipe("amd64", "x", "y");
  auto two = one;
  one.packages = {"a", "b"};
  two.packages = {"a\npackage 1\nb"};
  EXPECT_NE(one.ref(), two.ref());
}

TEST(Recipe, ComesFromTheMachinesReleaseAndSources) {
  std::string pattern = "/tmp/space-etc-XXXXXX";
  const fs::path etc = ::mkdtemp(pattern.data());
  EXPECT_EQ(recipe_of("base", etc).error().error, TemplateError::kUnavailable);
  std::ofstream(etc / "os-release") << "ID=debian\nVERSION_CODENAME=\"bookworm\"\n";
  EXPECT_EQ(recipe_of("base", etc).error().error, TemplateError::kUnavailable);
  fs::create_directory(etc / "apt");
  std::ofstream(etc / "apt/sources.list") << "deb http://a.example bookworm main\n";
  const auto recipe = recipe_of("base", etc);
  ASSERT_TRUE(recipe);
  EXPECT_EQ(recipe->suite, "bookworm");
  EXPECT_EQ(recipe->sources, "deb http://a.example bookworm main\n");
  EXPECT_EQ(recipe_of("other", etc).error().error, TemplateError::kNoSuchTemplate);
  EXPECT_EQ(recipe_of("host", etc).error().error, TemplateError::kNoSuchTemplate);
  fs::remove_all(etc);
}

}  // namespace
}  // namespace space::templates
