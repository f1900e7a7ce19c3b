#include "adapters/config/config.h"

#include <gtest/gtest.h>

namespace space::config {
namespace {

identity::HolderId holder() { return *identity::HolderId::parse(std::string(64, 'a')); }

std::string with(const std::string& from, const std::string& to) {
  std::string text = default_text(holder());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& part_of_message) {
  const auto config = parse(text, "/data/space.toml");
  ASSERT_FALSE(config) << text;
  EXPECT_NE(config.error().message.find(part_of_message), std::string::npos)
      << config.error().message;
  EXPECT_TRUE(config.error().message.starts_with("/data/space.toml:")) << config.error().message;
}

TEST(Config, DefaultTextGivesTwoWorkersWithUidsOfTheirOwn) {
  const auto config = parse(default_text(holder()), "/data/space.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->data, "/data");
  EXPECT_EQ(config->node_api_holder, holder());
  ASSERT_EQ(config->workers.size(), 2U);
  EXPECT_EQ(config->workers[0].id.text(), "w1");
  EXPECT_EQ(config->workers[1].id.text(), "w2");
  EXPECT_GE(config->workers[1].first_uid, config->workers[0].first_uid + 64U * 65'536U);
}

TEST(Config, OnlyTheIdsAreNeeded) {
  const auto config = parse(
      "[node_api]\nholder=\"" + holder().text() + "\"\n[[worker]]\nid=\"a\"\n", "/data/space.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->listen, "127.0.0.1:3000");
  EXPECT_EQ(config->workers[0].max_sandboxes, 64U);
}

TEST(Config, TemplatesAreInTheDataFolderUnlessTheyAreShared) {
  EXPECT_EQ(parse(default_text(holder()), "/data/space.toml")->templates(), "/data/templates");
  const auto shared = parse(with("# templates", "templates"), "/data/space.toml");
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_EQ(shared->templates(), "/srv/templates");
}

TEST(Config, AnUnknownKeyIsAnErrorWithItsLineAndTheKnownKeys) {
  expect_refused(with("uid = 64001", "uidd = 64001"), "unknown key 'uidd' in [node_api]");
  expect_refused(with("[platform]", "[plattform]"), "unknown key 'plattform'");
  expect_refused(with("max_sandboxes = 64", "max = 64"), "unknown key 'max' in [[worker]]");
  expect_refused("a = \n", "1");
}

TEST(Config, BadValuesAreRefusedWithWhatToDo) {
  expect_refused(with("127.0.0.1:3000", "localhost"), "ADDRESS:PORT");
  expect_refused(with("127.0.0.1:3000", "127.0.0.1:70000"), "ADDRESS:PORT");
  expect_refused(with("uid = 64001", "uid = \"64001\""), "whole number");
  expect_refused(with("uid = 64001", "uid = -1"), "whole number");
  expect_refused(with("uid = 64001", "uid = 0"), "whole number");
  expect_refused(with("clock_tolerance_ms = 15000", "clock_tolerance_ms = 15001"), "15000");
  expect_refused(with(holder().text(), std::string(64, '0')), "holder");
  expect_refused(with(holder().text(), "AB"), "holder");
  expect_refused(with("\"auto\"", "\"crun --debug\""), "runtime");
  expect_refused(with("id = \"w2\"", "id = \"w1\""), "twice");
  expect_refused(with("id = \"w2\"", "id = \"W2\""), "'id'");
  expect_refused(with("id = \"w2\"", "id = \"control\""), "'id'");
  expect_refused(with("# data = \"/var/lib/space\"", "data = \"relative\""), "absolute");
  expect_refused(with("# templates = \"/srv/templates\"", "templates = \"relative\""), "absolute");
  expect_refused(with("# templates = \"/srv/templates\"", "templates = \"\""), "absolute");
  expect_refused("[node_api]\nholder=\"" + holder().text() + "\"\n", "[[worker]]");
}

TEST(Config, C080_NamesOfTheEdgeAreLowerCaseAndOfOneMeaning) {
  const auto names = [](const std::string& lines) {
    return with("listen = \"127.0.0.1:3000\"", "listen = \"127.0.0.1:3000\"\n" + lines + "\n#");
  };
  const auto config =
      parse(names("domain = \"space.test\"\nhosts = [\"space.internal\", \"my-host\"]"),
            "/data/space.toml");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->domain, "space.test");
  EXPECT_EQ(config->hosts, (std::vector<std::string>{"space.internal", "my-host"}));
  for (const std::string domain : {"", "Space.test", "space.test:8443", ".space.test",
                                   "space..test", "space.test.", "-a.test", "a_b"}) {
    expect_refused(names("domain = \"" + domain + "\""), "'domain'");
    expect_refused(names("hosts = [\"ok\", \"" + domain + "\"]"), "'hosts'");
  }
  expect_refused(names("hosts = \"a\""), "list of strings");
  expect_refused(names("hosts = [1]"), "list of strings");
  expect_refused(names("domain = \"a.test\"\nhosts = [\"x.a.test\"]"), "lies in the domain");
}

TEST(Config, NoTwoPartsOrSandboxesShareAUid) {
  expect_refused(with("uid = 64001", "uid = 64101"), "overlaps");
  expect_refused(with("first_uid = 536870912", "first_uid = 268435457"), "overlaps");
  expect_refused(with("first_uid = 536870912", "first_uid = 4294836224"), "ends above");
}

TEST(Config, AMissingFileIsAnErrorWithItsName) {
  const auto config = load("/nonexistent/space.toml");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, "/nonexistent/space.toml: No such file or directory");
}

}  // namespace
}  // namespace space::config
