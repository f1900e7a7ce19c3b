#include "services/node_api/json.h"

#include <gtest/gtest.h>

namespace space::node_api {
namespace {

TEST(Json, ReadsWhatItWrites) {
  const Json value(Json::Object{{"a", Json::Array{1, -2, nullptr, true}},
                                {"b", "x\"\\\n\x7f"},
                                {"c", UINT64_MAX},
                                {"d", Json::Object{}}});
  const auto again = parse_json(value.text());
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(*again, value);
}

TEST(Json, RefusesEverythingThatHasTwoReadings) {
  const std::vector<std::string> bad{"",
                                     " ",
                                     "{",
                                     "[1,]",
                                     "{\"a\":1,}",
                                     "{\"a\":1,\"a\":2}",
                                     "{\"a\":{\"b\":1,\"b\":1}}",
                                     "{\"a\":1,\"\\u0061\":2}",
                                     "1.0",
                                     "1e3",
                                     "18446744073709551616",
                                     "-9223372036854775809",
                                     "01",
                                     "+1",
                                     "NaN",
                                     "// x\n1",
                                     "1 2",
                                     "{} x",
                                     "\xef\xbb\xbf{}",
                                     "\"\xff\"",
                                     "\"\\ud800\"",
                                     "\"\xed\xa0\x80\"",
                                     "\"\t\"",
                                     "'a'",
                                     "{a:1}",
                                     std::string("\"a\0b\"", 5)};
  for (const auto& text : bad) EXPECT_FALSE(parse_json(text)) << text;
}

TEST(Json, NamesTheDuplicateKey) {
  const auto parsed = parse_json("{\"timeout_s\":1,\"timeout_s\":2}");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().find("duplicate key \"timeout_s\""), std::string::npos)
      << parsed.error();
}

TEST(Json, KeepsIntegersOf64BitsExactly) {
  EXPECT_EQ(parse_json("18446744073709551615")->integer<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ(parse_json("-9223372036854775808")->integer<std::int64_t>(), INT64_MIN);
  EXPECT_EQ(parse_json("256")->integer<std::uint8_t>(), std::nullopt);
  EXPECT_EQ(parse_json("-1")->integer<std::uint64_t>(), std::nullopt);
}

TEST(Json, RefusesDeepNestingAndBigTexts) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)));
  EXPECT_FALSE(parse_json(nested(kMaxJsonDepth + 1)));
  EXPECT_FALSE(parse_json(nested(100'000)));
  EXPECT_FALSE(parse_json("\"" + std::string(kMaxJsonBytes, 'a') + "\""));
}

TEST(Json, C059_BytesThatAreNoTextNeverLeaveAsInvalidUtf8) {
  EXPECT_EQ(Json("a\xff"
                 "b")
                .text(),
            "\"a\\ufffdb\"");
  EXPECT_EQ(Json("\xd0\xb4").text(), "\"\xd0\xb4\"");
  EXPECT_EQ(Json("\xc0\x80").text(), "\"\\ufffd\\ufffd\"");
  EXPECT_TRUE(is_utf8("\xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));
}

TEST(JsonFields, NamesUnknownMissingAndMistypedFields) {
  const auto error_of = [](std::string_view text) {
    const auto json = parse_json(text);
    JsonFields fields(*json);
    fields.required_text("name");
    fields.number("n", 1, 10);
    fields.text_map("map");
    return fields.error().value_or("");
  };
  EXPECT_EQ(error_of("{\"name\":\"a\",\"n\":3,\"map\":{\"k\":\"v\"}}"), "");
  EXPECT_EQ(error_of("{\"name\":\"a\",\"other\":3}"), "unknown field \"other\"");
  EXPECT_NE(error_of("{}").find("\"name\""), std::string::npos);
  EXPECT_NE(error_of("{\"name\":\"a\",\"n\":11}").find("from 1 to 10"), std::string::npos);
  EXPECT_NE(error_of("{\"name\":\"a\",\"n\":\"3\"}").find("\"n\""), std::string::npos);
  EXPECT_NE(error_of("{\"name\":\"a\",\"map\":{\"k\":1}}").find("\"map\""), std::string::npos);
  EXPECT_EQ(error_of("[]"), "the body must be a JSON object");
}

}  // namespace
}  // namespace space::node_api
