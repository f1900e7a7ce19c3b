#include "adapters/config/credentials.h"

#include <gtest/gtest.h>

namespace space::config {
namespace {

TEST(Credentials, WhatIsWrittenIsRead) {
  const auto read = parse_credentials(
      credentials_text({.url = "http://127.0.0.1:3000", .api_key = "e2b_0a"}), "cli.toml");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->url, "http://127.0.0.1:3000");
  EXPECT_EQ(read->api_key, "e2b_0a");
}

TEST(Credentials, AnythingElseIsRefusedWithTheFile) {
  for (const char* text : {"", "url = \"http://x\"", "url = \"ftp://x\"\napi_key = \"k\"",
                           "url = \"http://x\"\napi_key = \"a\\r\\nb\"", "url = 5\napi_key = \"k\"",
                           "url = \"http://x\"\napi_key = \"k\"\nmore = \"x\"", "url = ["}) {
    const auto read = parse_credentials(text, "cli.toml");
    ASSERT_FALSE(read) << text;
    EXPECT_TRUE(read.error().message.starts_with("cli.toml: "));
  }
}

}  // namespace
}  // namespace space::config
