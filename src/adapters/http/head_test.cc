#include "adapters/http/head.h"

#include <gtest/gtest.h>

#include "adapters/http/body.h"

namespace space::http {
namespace {

std::string get(std::string_view fields) {
  return "GET /a HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}
std::string post(std::string_view fields) {
  return "POST /a HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}
unsigned refusal(std::string_view head) {
  const auto parsed = parse_request_head(head);
  return parsed ? 0 : parsed.error().status;
}

TEST(HttpHead, ReadsARequest) {
  const auto head = parse_request_head(
      "PUT /a%20b?x=1?&y HTTP/1.1\r\nHOST:h:1\r\nX-Two:  a b  \r\nx-two:\r\nContent-Length: 3\r\n"
      "Expect: 100-Continue\r\nConnection: x, Close\r\n\r\n");
  ASSERT_TRUE(head) << head.error().message;
  const auto& request = head->request;
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.path, "/a%20b");
  EXPECT_EQ(request.query, "x=1?&y");
  const HttpHeaders headers{
      {"host", "h:1"},         {"x-two", "a b"},           {"x-two", ""},
      {"content-length", "3"}, {"expect", "100-Continue"}, {"connection", "x, Close"}};
  EXPECT_EQ(request.headers, headers);
  EXPECT_EQ(request.content_length, 3U);
  EXPECT_TRUE(request.has_body);
  EXPECT_TRUE(head->expects_continue);
  EXPECT_FALSE(head->keep_alive);
}

TEST(HttpHead, ReadsWhichBodyFollows) {
  const auto none = parse_request_head(get("Expect: 100-continue\r\n"));
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->request.has_body);
  EXPECT_FALSE(none->expects_continue);
  EXPECT_TRUE(none->keep_alive);
  const auto empty = parse_request_head(post("Content-Length: 0\r\n"));
  ASSERT_TRUE(empty);
  EXPECT_FALSE(empty->request.has_body);
  EXPECT_EQ(empty->request.content_length, 0U);
  for (const auto* coding : {"Transfer-Encoding: chunked\r\n", "TRANSFER-ENCODING:CHUNKED\r\n"}) {
    const auto chunked = parse_request_head(post(coding));
    ASSERT_TRUE(chunked) << coding;
    EXPECT_TRUE(chunked->request.has_body);
    EXPECT_EQ(chunked->request.content_length, std::nullopt);
  }
}

TEST(HttpHead, C075_FramingWithTwoReadingsIsRefused) {
  for (const auto* fields : {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                             "Content-Length: 5\r\nContent-Length: 5\r\n",
                             "Content-Length: 5\r\nContent-Length: 6\r\n",
                             "Content-Length: 5\r\ncontent-length: 5\r\n",
                             "Content-Length: +5\r\n",
                             "Content-Length: -5\r\n",
                             "Content-Length: 5, 5\r\n",
                             "Content-Length: 5,\r\n",
                             "Content-Length: 05\r\n",
                             "Content-Length: 0x5\r\n",
                             "Content-Length: 5 5\r\n",
                             "Content-Length: 5;\r\n",
                             "Content-Length: \r\n",
                             "Content-Length:\t5\r\n",
                             "Content-Length: 5\t\r\n",
                             "Content-Length: 1e3\r\n",
                             "Content-Length: 9223372036854775808\r\n",
                             "Content-Length: 99999999999999999999999\r\n",
                             "Transfer-Encoding: chunked,\r\n",
                             "Transfer-Encoding: ,chunked\r\n",
                             "Transfer-Encoding: chunked, gzip\r\n",
                             "Transfer-Encoding: gzip, chunked\r\n",
                             "Transfer-Encoding: chunked, chunked\r\n",
                             "Transfer-Encoding: identity\r\n",
                             "Transfer-Encoding: \r\n",
                             "Transfer-Encoding: xchunked\r\n",
                             "Transfer-Encoding: chunked x\r\n",
                             "Transfer-Encoding: \"chunked\"\r\n",
                             "Transfer-Encoding: chunked;a=b\r\n",
                             "Transfer-Encoding:\tchunked\r\n",
                             "Transfer-Encoding: chunked\t\r\n",
                             "Transfer-Encoding: \x0b"
                             "chunked\r\n",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                             "Transfer-Encoding : chunked\r\n",
                             "Transfer-Encoding\t: chunked\r\n",
                             "Transfer-Encoding\r\n",
                             " Transfer-Encoding: chunked\r\n",
                             "X: y\r\n Transfer-Encoding: chunked\r\n",
                             "X: y\r\n\tz\r\n",
                             "X: y\r\n \r\n"}) {
    EXPECT_EQ(refusal(post(fields)), 400U) << fields;
  }
}

TEST(HttpHead, C075_LinesWithTwoReadingsAreRefused) {
  for (const auto* fields :
       {"X: a\nY: b\r\n", "X: a\rY: b\r\n", "X: a\n", "\rX: a\r\n", "X: a\r\r\n", ": a\r\n",
        "X\r\n", "X a: b\r\n", "X(: b\r\n", "X@: b\r\n", "X: a\x01\r\n", "X: a\x7f\r\n",
        "X: \ta\r\n", "Host: h\r\n", "host: i\r\n"}) {
    EXPECT_EQ(refusal(get(fields)), 400U) << fields;
  }
  using namespace std::string_literals;
  EXPECT_EQ(refusal(get("X: a\0b\r\n"s)), 400U);
  EXPECT_EQ(refusal(get("X\0: a\r\n"s)), 400U);
  EXPECT_EQ(refusal("GET /a HTTP/1.1\r\n\r\n"), 400U);
  EXPECT_EQ(refusal(get("") + "x"), 400U);
  EXPECT_EQ(refusal("GET /a HTTP/1.1\r\nHost: h\r\n"), 400U);
  EXPECT_EQ(refusal("GET /a HTTP/1.1"), 400U);
  EXPECT_EQ(refusal(""), 400U);
  EXPECT_EQ(refusal(get("X: \xc3\xa4\r\n")), 0U);
}

TEST(HttpHead, C075_RequestLinesWithTwoReadingsAreRefused) {
  using namespace std::string_literals;
  for (const auto& line : {"GET  /a HTTP/1.1"s,
                           "GET /a  HTTP/1.1"s,
                           " GET /a HTTP/1.1"s,
                           "GET /a HTTP/1.1 "s,
                           "GET\t/a HTTP/1.1"s,
                           "GET /a b HTTP/1.1"s,
                           "GET /a"s,
                           "GET"s,
                           "GET HTTP/1.1"s,
                           ""s,
                           "get /a HTTP/1.1"s,
                           "G@T /a HTTP/1.1"s,
                           "GET: /a HTTP/1.1"s,
                           "GET /a\0 HTTP/1.1"s,
                           "GET /\xc3\xa4 HTTP/1.1"s,
                           "GET a HTTP/1.1"s,
                           "GET * HTTP/1.1"s,
                           "OPTIONS * HTTP/1.1"s,
                           "GET http://b/ HTTP/1.1"s,
                           "GET http://h/a HTTP/1.1"s,
                           "CONNECT b:443 HTTP/1.1"s,
                           "GET /a#b HTTP/1.1"s,
                           "GET ?a HTTP/1.1"s,
                           "GET /a http/1.1"s,
                           "GET /a HTTP/1.1x"s,
                           "GET /a HTTP/11"s,
                           "GET /a HTTP/1,1"s,
                           "GET /a HTTP/+.1"s,
                           "GET /a HTTP/1.10"s,
                           "GET /a HTTP/01.1"s,
                           std::string(40, 'A') + " /a HTTP/1.1"}) {
    EXPECT_EQ(refusal(line + "\r\nHost: h\r\n\r\n"), 400U) << line;
  }
  for (const auto* line : {"GET /a HTTP/1.0", "GET /a HTTP/0.9", "GET /a HTTP/1.2",
                           "GET /a HTTP/2.0", "PRI * HTTP/2.0"}) {
    EXPECT_EQ(refusal(std::string(line) + "\r\nHost: h\r\n\r\n"), 505U) << line;
  }
}

TEST(HttpHead, C076_OtherExpectationsAreRefused) {
  EXPECT_EQ(refusal(post("Content-Length: 1\r\nExpect: 200-ok\r\n")), 417U);
  EXPECT_EQ(refusal(post("Content-Length: 1\r\nExpect: 100-continue, x\r\n")), 417U);
  EXPECT_EQ(refusal(get("Expect: 100-continue\r\nExpect: 100-continue\r\n")), 417U);
  EXPECT_EQ(refusal(get("Expect: \r\n")), 417U);
}

TEST(HttpHead, C085_TheNumberOfHeaderLinesIsBounded) {
  std::string fields;
  for (std::size_t i = 1; i < kMaxHeaderLines; ++i) fields += "X: y\r\n";
  EXPECT_EQ(refusal(get(fields)), 0U);
  EXPECT_EQ(refusal(get(fields + "X: y\r\n")), 431U);
}

TEST(HttpHead, TheEndIsFoundWhateverThePieces) {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n";
  const auto bytes = head + "\r\n\r\nGET";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    HeadEnd end;
    std::optional<std::size_t> size;
    for (std::size_t at = step; !size; at = std::min(at + step, bytes.size())) {
      const auto found = end.find(std::string_view(bytes).substr(0, at));
      ASSERT_TRUE(found);
      size = *found;
      if (!size) ASSERT_LT(at, head.size());
    }
    EXPECT_EQ(*size, head.size());
  }
}

TEST(HttpHead, C075_ABadLineEndIsSeenAtOnce) {
  for (const auto* bytes : {"\n", "\r\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: h\n",
                            "GET / HTTP/1.1\r\nHost: h\r\n\n", "GET / HTTP/1.1\r\n\nHost"}) {
    EXPECT_FALSE(HeadEnd().find(bytes)) << bytes;
  }
}

TEST(HttpHead, P33_AnswersAreReadAsStrictlyAsRequests) {
  const auto fine = parse_response_head("HTTP/1.1 200 All right\r\nContent-Length: 3\r\n\r\n");
  ASSERT_TRUE(fine);
  EXPECT_EQ(fine->head.status, 200U);
  EXPECT_EQ(fine->length, 3U);
  EXPECT_FALSE(fine->chunked);
  EXPECT_TRUE(parse_response_head("HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n")->chunked);
  for (const auto* head : {"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n",
                           "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
                           "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"}) {
    const auto parsed = parse_response_head(head);
    ASSERT_TRUE(parsed) << head;
    EXPECT_EQ(parsed->length, 0U);
  }
  for (const auto* head :
       {"HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 99 x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 099 x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 600 x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1  200 x\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 a\tb\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "",
        "\r\n\r\n"}) {
    EXPECT_FALSE(parse_response_head(head)) << head;
  }
}

// The bytes of a chunked body as far as it can be read; nullopt when it is malformed. `rest` gets
// what follows it.
std::optional<std::string> unchunked(std::string_view bytes, bool& done, std::string& rest) {
  auto framing = BodyFraming::chunked();
  std::string out;
  while (!framing.done()) {
    const auto count = framing.read(bytes);
    if (!count) return std::nullopt;
    bytes.remove_prefix(*count);
    const auto payload = std::min<std::uint64_t>(framing.payload(), bytes.size());
    out += bytes.substr(0, payload);
    framing.took(payload);
    bytes.remove_prefix(payload);
    if (bytes.empty()) break;
  }
  done = framing.done();
  rest = bytes;
  return out;
}

TEST(HttpBody, ReadsSizedAndChunkedBodies) {
  auto sized = BodyFraming::sized(3);
  EXPECT_EQ(sized.payload(), 3U);
  EXPECT_EQ(sized.read("abc"), 0U);
  sized.took(2);
  EXPECT_FALSE(sized.done());
  sized.took(1);
  EXPECT_TRUE(sized.done());
  EXPECT_TRUE(BodyFraming::sized(0).done());
  bool done = false;
  std::string rest;
  EXPECT_EQ(unchunked("3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\nGET", done, rest), "abc0123456789");
  EXPECT_TRUE(done);
  EXPECT_EQ(rest, "GET");
  EXPECT_EQ(unchunked("0\r\n\r\n", done, rest), "");
  EXPECT_TRUE(done);
}

TEST(HttpBody, C075_ChunksWithTwoReadingsAreRefused) {
  using namespace std::string_literals;
  for (const auto& bytes : {"0x5\r\nabcde\r\n0\r\n\r\n"s,
                            "5;a=\n\nabcde\r\n0\r\n\r\n"s,
                            "5;a=b\r\nabcde\r\n0\r\n\r\n"s,
                            "5;\r\nabcde\r\n0\r\n\r\n"s,
                            "5 \r\nabcde\r\n0\r\n\r\n"s,
                            " 5\r\nabcde\r\n0\r\n\r\n"s,
                            "+5\r\nabcde\r\n0\r\n\r\n"s,
                            "-5\r\nabcde\r\n0\r\n\r\n"s,
                            "\r\n5\r\nabcde\r\n0\r\n\r\n"s,
                            "5\nabcde\r\n0\r\n\r\n"s,
                            "5\rabcde\r\n0\r\n\r\n"s,
                            "5\r\r\nabcde\r\n0\r\n\r\n"s,
                            "5\r\nabcdef\r\n0\r\n\r\n"s,
                            "5\r\nabcde0\r\n\r\n"s,
                            "5\r\nabcde\n0\r\n\r\n"s,
                            "5\r\nabcd\r\n0\r\n\r\n"s,
                            "5\r\nabcde\r\n\r\n"s,
                            "5\r\nabcde\r\n0\n\r\n"s,
                            "5\r\nabcde\r\n0\r\n\n"s,
                            "5\r\nabcde\r\n0\r\nX: y\r\n\r\n"s,
                            "5\r\nabcde\r\n0;a\r\n\r\n"s,
                            "10000000000000005\r\nabcde\r\n0\r\n\r\n"s,
                            "0000000000000005\r\nabcde\r\n0\r\n\r\n"s,
                            "fffffffffffffffff\r\n"s,
                            "5\0\r\nabcde\r\n0\r\n\r\n"s,
                            "g\r\n"s,
                            "zz\r\n"s,
                            "\x35\x80\r\n"s}) {
    bool done = false;
    std::string rest;
    EXPECT_EQ(unchunked(bytes, done, rest), std::nullopt) << bytes;
    EXPECT_FALSE(done);
  }
}

TEST(HttpBody, ChunksAreReadWhateverThePieces) {
  const std::string bytes = "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    auto framing = BodyFraming::chunked();
    std::string out;
    std::string held;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      held += bytes.substr(at, step);
      while (!held.empty()) {
        const auto count = framing.read(held);
        ASSERT_TRUE(count);
        held.erase(0, *count);
        const auto payload = std::min<std::uint64_t>(framing.payload(), held.size());
        out += held.substr(0, payload);
        framing.took(payload);
        held.erase(0, payload);
      }
    }
    EXPECT_TRUE(framing.done()) << step;
    EXPECT_EQ(out, "abc0123456789abcdef");
  }
}

}  // namespace
}  // namespace space::http
