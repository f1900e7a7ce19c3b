#include "core/wire/multipart.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/result.h"

namespace space::wire {
namespace {

struct Part {
  std::string name;
  std::optional<std::string> filename;
  std::string data;
  friend bool operator==(const Part&, const Part&) = default;
};
struct Read {
  std::vector<Part> parts;
  bool open = false;  // the last part has no end yet
  bool finished = false;
  std::string problem;
};

Read read(std::string_view body, std::size_t piece = 1 << 20, std::string_view boundary = "b1") {
  MultipartReader reader(boundary);
  Read out;
  for (std::size_t at = 0;;) {
    auto event = reader.next();
    if (std::holds_alternative<MultipartReader::NeedMore>(event) ||
        std::holds_alternative<MultipartReader::Finished>(event)) {
      out.finished = std::holds_alternative<MultipartReader::Finished>(event);
      if (at == body.size()) return out;
      reader.feed(as_bytes(body.substr(at, piece)));
      at += std::min(piece, body.size() - at);
    } else if (auto* begin = std::get_if<MultipartReader::PartBegin>(&event)) {
      out.parts.push_back({begin->name, begin->filename, ""});
      out.open = true;
    } else if (const auto* data = std::get_if<MultipartReader::PartData>(&event)) {
      EXPECT_FALSE(data->bytes.empty());
      out.parts.back().data += as_text(data->bytes);
    } else if (std::holds_alternative<MultipartReader::PartEnd>(event)) {
      out.open = false;
    } else if (const auto* bad = std::get_if<MultipartReader::Malformed>(&event)) {
      out.finished = false;
      out.problem = bad->problem;
      return out;
    }
  }
}

std::string part(const std::string& parameters, const std::string& data,
                 const std::string& more = "Content-Type: text/plain\r\n") {
  return "--b1\r\nContent-Disposition: form-data; " + parameters + "\r\n" + more + "\r\n" + data +
         "\r\n";
}

TEST(Multipart, C056_FilesComeBackByteForByteAtAnySplit) {
  std::string binary;
  for (int i = 0; i < 256; ++i) binary += static_cast<char>(i);
  binary += "\r\n--b\r\n--b\r\n-b1\r\r\n--";
  const std::vector<Part> wanted{
      {"file", "/a", binary}, {"file", "/empty", ""}, {"file", std::nullopt, "\r\n"}};
  const auto body = part("name=\"file\"; filename=\"/a\"", binary) +
                    part("name=\"file\"; filename=\"/empty\"", "") +
                    part("name=\"file\"", "\r\n", "") + "--b1--\r\n";
  for (std::size_t piece = 1; piece < 80; ++piece) {
    const auto got = read(body, piece);
    EXPECT_EQ(got.parts, wanted) << piece << got.problem;
    EXPECT_TRUE(got.finished && !got.open);
  }
  EXPECT_TRUE(read("--b1--").finished);
}

TEST(Multipart, C058_ACutBodyNeverEndsItsLastPart) {
  const auto body = part("name=\"file\"; filename=\"/a\"", "some bytes") + "--b1--";
  for (std::size_t length = 0; length < body.size(); ++length) {
    const auto got = read(std::string_view(body).substr(0, length));
    EXPECT_FALSE(got.finished) << length;
    EXPECT_EQ(got.problem, "") << length;
    if (!got.parts.empty()) EXPECT_TRUE(got.open) << length;
  }
}

TEST(Multipart, C059_FilenamesAreDecodedAsFormsEncodeThem) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"/tmp/\xc3\xb6 \xe2\x82\xac.txt", "/tmp/\xc3\xb6 \xe2\x82\xac.txt"},
      {"a%22b%0D%0Ac", "a\"b\r\nc"},
      {"50%25 a;b=c", "50%25 a;b=c"},
      {"100%", "100%"},
      {"a%2", "a%2"},
      {"back\\slash", "back\\slash"},
      {"%41%zz", "%41%zz"},
      {"", ""},
  };
  for (const auto& [sent, meant] : names) {
    const auto got = read(part("name=\"file\"; filename=\"" + sent + "\"", "x") + "--b1--");
    ASSERT_EQ(got.parts.size(), 1U) << sent << got.problem;
    EXPECT_EQ(got.parts[0].filename, meant);
  }
  // Sent in this form by one library for one name, by another for another one.
  for (const std::string sent : {"a\\\\b", "a\\\"; filename=\"b", "a%09b", "a%1Fb", "a%00b"}) {
    const auto got = read(part("name=\"file\"; filename=\"" + sent + "\"", "x") + "--b1--");
    EXPECT_NE(got.problem, "") << sent;
  }
}

TEST(Multipart, WhatIsNotExactlyAFormIsRefused) {
  const auto good = part("name=\"file\"; filename=\"a\"", "x");
  const std::vector<std::string> bodies{
      "preamble\r\n--b1--",
      "\r\n--b1--",
      "--b2--",
      "--b1xy",
      "--b1 \r\n",
      good + "--b1--x",
      good + "--b1--\r\nx",
      good + "--b1--\n",
      good + "--b1-x",
      "--b1\r\n\r\nx\r\n\r\n--b1--",
      "--b1\r\nno colon\r\n\r\nx\r\n--b1--",
      "--b1\r\nContent-Type: text/plain\r\n\r\nx\r\n--b1--",
      part("name=file", "x"),
      part("name=\"file\"; filename=\"a\"; filename=\"b\"", "x"),
      part("name=\"file\"; name=\"f\"", "x"),
      part("filename=\"a\"", "x"),
      part("name=\"file\"; filename*=\"a\"", "x"),
      part("name=\"file\"; filename=\"a", "x"),
      part("name=\"file\"; filename=\"a\"b", "x"),
      part("name=\"file\"; filename=\"a\nb\"", "x"),
      part("name=\"file\";", "x"),
      part("name=\"file\"", "x", "Content-Transfer-Encoding: base64\r\n"),
      part("name=\"file\"", "x", "Content-Disposition: form-data; name=\"g\"\r\n"),
      part("name=\"file\"", "x", " folded: x\r\n"),
      "--b1\r\nContent-Disposition: attachment; name=\"file\"\r\n\r\nx\r\n--b1--",
      "--b1\r\nContent-Type: " + std::string(20'000, 'x'),
  };
  for (const auto& body : bodies) EXPECT_NE(read(body).problem, "") << body.substr(0, 200);
}

TEST(Multipart, ABoundaryIsNamedOnceAndLegally) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=b1"), "b1");
  EXPECT_EQ(multipart_boundary("Multipart/Form-Data;Boundary=\"b 1\""), "b 1");
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=----formdata-undici-0123"),
            "----formdata-undici-0123");
  for (const std::string_view type :
       {"", "multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=b",
        "multipart/form-data; boundary=b; boundary=c", "multipart/form-data; charset=x; boundary=b",
        "multipart/form-data; boundary=\"b", "multipart/form-data; boundary=\"b \"",
        "multipart/form-data; boundary=b\xc3\xb6", "application/octet-stream"}) {
    EXPECT_FALSE(multipart_boundary(type)) << type;
  }
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'b')));
}

}  // namespace
}  // namespace space::wire
