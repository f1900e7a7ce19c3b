#include "core/wire/path.h"

#include <gtest/gtest.h>

#include "core/wire/messages.h"

namespace space::wire {
namespace {

using Segments = std::vector<std::string>;

TEST(Path, C082_SegmentsAreDecodedExactlyOnce) {
  EXPECT_EQ(canonical_segments("/"), Segments{});
  EXPECT_EQ(canonical_segments("/sandboxes/a%20b"), (Segments{"sandboxes", "a b"}));
  EXPECT_EQ(canonical_segments("/%C3%A4/..."), (Segments{"\xc3\xa4", "..."}));
  EXPECT_EQ(canonical_segments("/a+b"), Segments{"a+b"});
}

TEST(Path, C082_WhatCouldBeReadTwoWaysIsRefused) {
  for (const auto* raw : {
           "",          "a",
           "a/b",       "*",
           "//",        "//sandboxes//b",
           "/a/",       "/a//b",
           "/.",        "/..",
           "/a/../b/f", "/a/./b",
           "/%2e%2e",   "/%2E",
           "/.%2e/b",   "/sandboxes/a%2f..%2fb/f",
           "/a%2Fb",    "/%252e%252e",
           "/a%25",     "/..%5c",
           "/a\\b",     "/a;/../b",
           "/a;v=1",    "/a%3bb",
           "/%00",      "/a%00b",
           "/%zz",      "/%",
           "/%4",       "/a%4",
           "/a b",      "/a\tb",
           "/a%0db",    "/a%7f",
           "/\xc3\xa4",
       }) {
    EXPECT_FALSE(canonical_segments(raw)) << raw;
  }
  EXPECT_FALSE(canonical_segments(std::string_view("/a\0b", 4)));
}

TEST(Path, C082_QueriesKeepDuplicatesForTheCallerToRefuse) {
  using Pairs = std::multimap<std::string, std::string>;
  EXPECT_EQ(parse_query(""), Pairs{});
  EXPECT_EQ(parse_query("path=%2Fa%2520b&user=a+b&e="),
            (Pairs{{"path", "/a%20b"}, {"user", "a b"}, {"e", ""}}));
  EXPECT_EQ(parse_query("a=1&a=2"), (Pairs{{"a", "1"}, {"a", "2"}}));
  EXPECT_EQ(parse_query("a=1=2"), (Pairs{{"a", "1=2"}}));
}

TEST(Path, C082_QueriesThatAreNotPairsAreRefused) {
  for (const auto* raw : {"a", "=", "=b", "&", "a=1&", "&a=1", "a=1&&b=2", "a=%", "a=%zz", "%zz=a",
                          "a=%00", "a=b c", "a=\xc3\xa4"}) {
    EXPECT_FALSE(parse_query(raw)) << raw;
  }
}

TEST(Path, GuestPathsAreBoundedAndHaveNoNul) {
  EXPECT_TRUE(is_guest_path("a"));
  EXPECT_TRUE(is_guest_path("/home/user/../x"));
  EXPECT_TRUE(is_guest_path(std::string(kMaxPathBytes, 'a')));
  EXPECT_FALSE(is_guest_path(""));
  EXPECT_FALSE(is_guest_path(std::string(kMaxPathBytes + 1, 'a')));
  EXPECT_FALSE(is_guest_path(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace space::wire
