#include "core/wire/connect_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace space::wire {
namespace {

TEST(ConnectFrame, FramesComeBackAtAnySplit) {
  const std::vector<ConnectFrame> wanted{{ConnectFlag::kMessage, "{\"a\":1}"},
                                         {ConnectFlag::kMessage, ""},
                                         {ConnectFlag::kMessage, std::string(300, 'x')},
                                         {ConnectFlag::kEndOfStream, "{}"}};
  std::string bytes;
  for (const auto& frame : wanted) append_connect_frame(bytes, frame.flag, frame.message);
  EXPECT_EQ(bytes.substr(0, 12), std::string("\0\0\0\0\7{\"a\":1}", 12));
  for (std::size_t piece = 1; piece < 40; ++piece) {
    ConnectFrameReader reader;
    std::vector<ConnectFrame> got;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(as_bytes(std::string_view(bytes).substr(at, piece)));
      for (;;) {
        auto next = reader.next();
        ASSERT_TRUE(next);
        if (!*next) break;
        got.push_back(**std::move(next));
      }
    }
    EXPECT_EQ(got, wanted) << piece;
    EXPECT_EQ(reader.buffered(), 0U);
  }
}

TEST(ConnectFrame, WhatIsCompressedUnknownOrTooLargeIsRefusedFromItsHeaderAlone) {
  using enum ConnectFrameError;
  const std::vector<std::pair<std::string, ConnectFrameError>> cases{
      {std::string("\1\0\0\0\1", 5), kCompressed},
      {std::string("\3\0\0\0\1", 5), kCompressed},
      {std::string("\4\0\0\0\1", 5), kUnknownFlag},
      {std::string("\0\0\x10\0\1", 5), kTooLarge},
      {std::string("\2\xff\xff\xff\xff", 5), kTooLarge},
  };
  for (const auto& [bytes, error] : cases) {
    ConnectFrameReader reader;
    reader.feed(as_bytes(bytes));
    EXPECT_EQ(reader.next().error(), error);
    reader.feed(as_bytes("\0\0\0\0\0"));
    EXPECT_EQ(reader.next().error(), error);
    EXPECT_FALSE(to_string(error).empty());
  }
}

}  // namespace
}  // namespace space::wire
