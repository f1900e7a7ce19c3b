#include "core/wire/edge.h"

#include <gtest/gtest.h>

namespace space::wire {
namespace {

using Views = std::vector<std::string_view>;

const EdgeNames& names() {
  static const EdgeNames kNames{"space.test", {"gate.example"}};
  return kNames;
}

std::expected<EdgeTarget, std::string_view> target(const Views& hosts, const Views& ids = {},
                                                   const Views& ports = {}) {
  return edge_target({hosts, ids, ports}, names());
}

EdgeTarget sandbox(std::uint16_t port, std::string_view id) {
  return {identity::SandboxId::parse(id), port};
}

TEST(Edge, C080_NamesWithPortsCaseAndATrailingDotNameTheSandbox) {
  for (const auto* host : {"3000-abc.space.test", "3000-ABC.Space.Test.",
                           "3000-abc.space.test:8443", "3000-abc.space.test.:8443"}) {
    EXPECT_EQ(target({host}), sandbox(3000, "abc")) << host;
  }
  EXPECT_EQ(target({"49983-sbx-1.space.test"}), sandbox(kAgentPort, "sbx-1"));
  EXPECT_EQ(target({"1-0.space.test"}), sandbox(1, "0"));
  EXPECT_EQ(target({"65535-abc.space.test"}), sandbox(65'535, "abc"));
}

TEST(Edge, C080_AddressLiteralsNameNoSandbox) {
  for (const auto* host : {"[::1]:8443", "[::1]", "::1", "[2001:DB8::1]", "[::ffff:127.0.0.1]:1",
                           "127.0.0.1", "127.0.0.1:3000", "0.0.0.0"}) {
    EXPECT_EQ(target({host}), EdgeTarget{}) << host;
  }
}

TEST(Edge, C080_ThePlatformsOwnNamesNameNoSandbox) {
  for (const auto* host :
       {"space.test", "api.space.test", "sandbox.space.test", "localhost", "LocalHost:3000",
        "API.Space.Test.:443", "gate.example", "gate.example:80"}) {
    EXPECT_EQ(target({host}), EdgeTarget{}) << host;
  }
}

TEST(Edge, C080_EverythingElseIsRefused) {
  for (const auto* host : {
           // ports and ids
           "03000-abc.space.test",
           "70000-abc.space.test",
           "65536-abc.space.test",
           "0-abc.space.test",
           "-abc.space.test",
           "3000-.space.test",
           "3000--abc.space.test",
           "3000-abc-.space.test",
           "+3000-abc.space.test",
           "0x10-abc.space.test",
           "99999999999999999999999-abc.space.test",
           "3000_abc.space.test",
           "3000abc.space.test",
           "3000-a_c.space.test",
           "3000-a\xc3\xa4.space.test",
           "3000-abcdefghijklmnopqrstuvwxyzabcdefg.space.test",
           // domains
           "3000-abc.evil.test",
           "3000-abc.space.test.evil.test",
           "3000-abc.xspace.test",
           "3000-abc",
           "3000-abcspace.test",
           "x.3000-abc.space.test",
           "3000-abc.x.space.test",
           "3000-abc.api.space.test",
           "evil.test",
           "evilspace.test",
           "x.space.test",
           "3000-abc.localhost",
           "gate.example.evil.test",
           "3000-abc.gate.example",
           "localhost.evil.test",
           ".space.test",
           "..space.test",
           "api..space.test",
           // forms
           "",
           ".",
           ":",
           ":80",
           "space.test..",
           "space.test:",
           "space.test:0",
           "space.test:080",
           "space.test:65536",
           "space.test:80:80",
           "space.test:http",
           "space.test:+80",
           "space.test :80",
           " space.test",
           "space.test ",
           "user@space.test",
           "space.test/",
           "space.test,space.test",
           "space.test\\",
           "space.test#",
           "space.test?",
           // addresses
           "[::1",
           "::1]",
           "[::1]x",
           "[::1]:",
           "[::1]:0",
           "[::1]8443",
           "[]",
           "[",
           "[::1%lo]",
           "[127.0.0.1]",
           "[1:2]",
           "[::1]]",
           "[[::1]]",
           "127.0.0.1.",
           "127.1",
           "127.0.0.256",
           "0127.0.0.1",
           "127.0.0.1:x",
           "2130706433",
           "::1:g",
           "[::1].space.test",
       }) {
    EXPECT_FALSE(target({host})) << host;
  }
  EXPECT_FALSE(target({std::string_view("space.test\0", 11)}));
  EXPECT_FALSE(target({std::string_view("127.0.0.1\0", 10)}));
  EXPECT_FALSE(target({std::string_view("[::1\0]", 6)}));
  EXPECT_FALSE(target({std::string(1000, 'a')}));
  EXPECT_FALSE(target({std::string(1000, ':')}));
}

TEST(Edge, C080_WithoutADomainThereAreNoSandboxNames) {
  const EdgeNames none{};
  for (const auto* host : {"3000-abc.space.test", "3000-abc.", "3000-abc", "api.", "sandbox."}) {
    const Views hosts{host};
    EXPECT_FALSE(edge_target({hosts, {}, {}}, none)) << host;
  }
  const Views hosts{"localhost"};
  EXPECT_EQ(edge_target({hosts, {}, {}}, none), EdgeTarget{});
}

TEST(Edge, C099_AtAPlatformNameTheHeadersNameTheSandbox) {
  for (const auto* host : {"localhost:3000", "127.0.0.1:3000", "[::1]:3000", "sandbox.space.test",
                           "space.test", "gate.example"}) {
    EXPECT_EQ(target({host}, {"abc"}, {"49983"}), sandbox(kAgentPort, "abc")) << host;
  }
  EXPECT_EQ(target({"localhost"}, {"abc"}, {"8080"}), sandbox(8080, "abc"));
}

TEST(Edge, P31_HeadersThatOccurTwiceOrHalfAreRefused) {
  const Views one{"abc"};
  const Views port{"49983"};
  EXPECT_FALSE(target({}));
  EXPECT_FALSE(target({}, one, port));
  EXPECT_FALSE(target({"localhost", "localhost"}));
  EXPECT_FALSE(target({"localhost", "3000-abc.space.test"}));
  EXPECT_FALSE(target({"localhost"}, {"abc", "abc"}, port));
  EXPECT_FALSE(target({"localhost"}, one, {"49983", "49983"}));
  EXPECT_FALSE(target({"localhost"}, one, {}));
  EXPECT_FALSE(target({"localhost"}, {}, port));
  EXPECT_FALSE(target({"3000-abc.space.test"}, one, {}));
  EXPECT_FALSE(target({"3000-abc.space.test"}, {}, {"3000"}));
}

TEST(Edge, P31_HeadersThatAreNoIdOrPortAreRefused) {
  for (const auto* id : {"", "ABC", "-abc", "abc-", "a b", "abc,abc", "a/b", "..", "a.b", "a%62",
                         "abcdefghijklmnopqrstuvwxyzabcdefg", "a\xc3\xa4"}) {
    EXPECT_FALSE(target({"localhost"}, {id}, {"49983"})) << id;
  }
  for (const auto* port : {"", "0", "049983", "65536", "-1", "+1", "0x1", "1 ", "49983,49983",
                           "18446744073709551617"}) {
    EXPECT_FALSE(target({"localhost"}, {"abc"}, {port})) << port;
  }
}

TEST(Edge, P31_HeadersThatDisagreeWithTheNameAreRefused) {
  EXPECT_EQ(target({"3000-abc.space.test"}, {"abc"}, {"3000"}), sandbox(3000, "abc"));
  EXPECT_EQ(target({"3000-ABC.space.test"}, {"abc"}, {"3000"}), sandbox(3000, "abc"));
  EXPECT_FALSE(target({"3000-abc.space.test"}, {"abd"}, {"3000"}));
  EXPECT_FALSE(target({"3000-abc.space.test"}, {"abc"}, {"3001"}));
  EXPECT_FALSE(target({"3000-abc.space.test"}, {"ABC"}, {"3000"}));
  EXPECT_FALSE(target({"3000-abc.evil.test"}, {"abc"}, {"3000"}));
  EXPECT_FALSE(target({"evil.test"}, {"abc"}, {"3000"}));
}

}  // namespace
}  // namespace space::wire
