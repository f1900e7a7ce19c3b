#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <map>

#include "adapters/http/client.h"
#include "adapters/http/server.h"

namespace space::http {
namespace {

using boost::asio::ip::tcp;
using std::chrono::seconds;
constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

class NoLog final : public Log {
 public:
  void event(Level, std::string_view, std::initializer_list<Field>) override {}
};

// What the routes of the test server do.
class Handler final : public HttpHandler {
 public:
  explicit Handler(Timer& timer) : timer_(timer) {}
  Task<void> handle(HttpExchange& exchange) override {
    ++requests;
    const auto& path = exchange.request().path;
    if (path == "/echo") co_return co_await echo(exchange);
    if (path == "/refuse") {
      static_cast<void>(co_await exchange.respond(403, {}, "no"));
    } else if (path == "/break") {
      static_cast<void>(co_await exchange.begin(200, {}));
      static_cast<void>(co_await exchange.write(as_bytes("part")));
    } else if (path == "/short") {
      static_cast<void>(co_await exchange.begin(200, {}, 100));
      static_cast<void>(co_await exchange.write(as_bytes("part")));
      EXPECT_FALSE(co_await exchange.finish());
    } else if (path == "/wait") {
      exchange.on_gone([this] {
        gone = true;
        changed.notify();
      });
      while (!gone) co_await changed.wait(timer_, timer_.now() + seconds(60));
    } else {
      static_cast<void>(co_await exchange.respond(200, {{"x-test", "1"}}, "hello " + path));
    }
  }
  int requests = 0;
  bool gone = false;
  bool body_broke = false;
  Notifier changed;

 private:
  Task<void> echo(HttpExchange& exchange) {
    std::vector<std::byte> buffer(10'000);
    std::string body;
    for (;;) {
      const auto count = co_await exchange.read_body(buffer);
      if (!count) {
        body_broke = true;
        changed.notify();
        co_return;
      }
      if (*count == 0) break;
      body += as_text(ByteView(buffer).first(*count));
    }
    static_cast<void>(co_await exchange.begin(200, {}));
    for (std::size_t at = 0; at < body.size(); at += buffer.size()) {
      const auto part = as_bytes(body).subspan(at, std::min(buffer.size(), body.size() - at));
      if (!co_await exchange.write(part)) co_return;
    }
    static_cast<void>(co_await exchange.finish());
  }
  Timer& timer_;
};

class Text final : public HttpBodySource {
 public:
  Text(std::string text, bool sized) : text_(std::move(text)), sized_(sized) {}
  std::optional<std::uint64_t> size() const override {
    return sized_ ? std::optional<std::uint64_t>(text_.size()) : std::nullopt;
  }
  Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) override {
    asked = true;
    const auto count = std::min(buffer.size(), text_.size() - read_);
    std::copy_n(as_bytes(text_).begin() + static_cast<std::ptrdiff_t>(read_), count,
                buffer.begin());
    read_ += count;
    co_return count;
  }
  bool asked = false;

 private:
  std::string text_;
  bool sized_;
  std::size_t read_ = 0;
};

struct Fetched {
  unsigned status = 0;
  std::string body;
  std::error_code error;
};

class HttpTest : public ::testing::Test {
 public:
  // Runs `test` against a server, by default on a free port.
  void run(Task<void> (*test)(HttpTest&), const std::string& address = "127.0.0.1:0") {
    const auto bound = server_.listen(address);
    ASSERT_TRUE(bound) << bound.error();
    port_ = *bound;
    base_ = port_ == 0 ? address : "http://127.0.0.1:" + std::to_string(port_);
    EXPECT_EQ(loop_.run(all(test), [] {}), 0);
  }
  Task<int> all(Task<void> (*test)(HttpTest&)) {
    TaskScope tasks(loop_);
    tasks.spawn("server", server_.run());
    co_await test(*this);
    co_await server_.stop();
    co_await tasks.stop();
    co_return 0;
  }
  Task<Fetched> fetch(std::string method, std::string target, HttpBodySource* body = nullptr) {
    Client client(loop_);
    HttpClientRequest request;
    request.method = std::move(method);
    request.base = base_;
    request.target = std::move(target);
    Fetched out;
    auto response = co_await client.send(std::move(request), body);
    if (!response) {
      out.error = response.error();
      co_return out;
    }
    out.status = (*response)->head().status;
    std::vector<std::byte> buffer(4096);
    for (;;) {
      const auto count = co_await (*response)->read(buffer);
      if (!count) {
        out.error = count.error();
        co_return out;
      }
      if (*count == 0) co_return out;
      out.body += as_text(ByteView(buffer).first(*count));
    }
  }
  // Sends raw bytes, and `more` once something came back; reads until the server closes.
  Task<std::string> raw(std::string bytes, std::string more = {}) {
    tcp::socket socket(loop_.context());
    const tcp::endpoint endpoint(boost::asio::ip::address_v4::loopback(), port_);
    const auto connected = co_await socket.async_connect(endpoint, kAwait);
    EXPECT_FALSE(std::get<0>(connected));
    co_await boost::asio::async_write(socket, boost::asio::buffer(bytes), kAwait);
    std::string out;
    std::array<char, 4096> buffer{};
    for (;;) {
      auto [error, count] = co_await socket.async_read_some(boost::asio::buffer(buffer), kAwait);
      if (error) co_return out;
      out.append(buffer.data(), count);
      const auto next = std::exchange(more, {});
      if (!next.empty()) {
        co_await boost::asio::async_write(socket, boost::asio::buffer(next), kAwait);
      }
    }
  }

  asio::Loop loop_;
  NoLog log_;
  Handler handler_{loop_};
  Server server_{loop_, handler_, log_};
  std::uint16_t port_ = 0;
  std::string base_;  // of the client's requests
};

TEST_F(HttpTest, C057_BodiesOfEverySizeComeBackSizedAndChunked) {
  run([](HttpTest& t) -> Task<void> {
    for (const std::size_t size : {0U, 1U, 17'000U, 18'433U, 65'535U, 65'536U, 1'048'577U}) {
      for (const bool sized : {true, false}) {
        std::string text(size, 'a');
        for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31);
        Text body(text, sized);
        const auto got = co_await t.fetch("PUT", "/echo", &body);
        EXPECT_EQ(got.status, 200U);
        EXPECT_FALSE(got.error) << got.error.message();
        EXPECT_EQ(got.body.size(), text.size()) << sized;
        EXPECT_TRUE(got.body == text) << size;
      }
    }
  });
}

TEST_F(HttpTest, C048_ABodyThatBreaksOffIsAnErrorAtTheClient) {
  run([](HttpTest& t) -> Task<void> {
    for (const char* target : {"/break", "/short"}) {
      const auto got = co_await t.fetch("GET", target);
      EXPECT_EQ(got.status, 200U);
      EXPECT_EQ(got.body, "part");
      EXPECT_EQ(got.error, std::errc::connection_reset) << got.error.message();
    }
  });
}

TEST_F(HttpTest, P19_ARefusedUploadIsAnsweredAndItsBodyNeverAsked) {
  run([](HttpTest& t) -> Task<void> {
    Text large(std::string(10'000'000, 'x'), true);
    auto got = co_await t.fetch("PUT", "/refuse", &large);
    EXPECT_EQ(got.status, 403U);
    EXPECT_EQ(got.body, "no");
    EXPECT_FALSE(large.asked);
    Text small(std::string(1000, 'x'), true);
    got = co_await t.fetch("PUT", "/refuse", &small);
    EXPECT_EQ(got.status, 403U);
  });
}

TEST_F(HttpTest, C058_AChunkedUploadThatBreaksOffIsAnErrorAtTheHandler) {
  run([](HttpTest& t) -> Task<void> {
    const auto out = co_await t.raw(
        "PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nzz\r\n");
    EXPECT_EQ(out.find("\r\n0\r\n\r\n"), std::string::npos) << out;
    EXPECT_TRUE(t.handler_.body_broke);
  });
}

TEST_F(HttpTest, StopsWithRequestsUnderWay) {
  run([](HttpTest& t) -> Task<void> {
    tcp::socket socket(t.loop_.context());
    const tcp::endpoint endpoint(boost::asio::ip::address_v4::loopback(), t.port_);
    const auto connected = co_await socket.async_connect(endpoint, kAwait);
    EXPECT_FALSE(std::get<0>(connected));
    const std::string request = "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc";
    const auto sent =
        co_await boost::asio::async_write(socket, boost::asio::buffer(request), kAwait);
    EXPECT_FALSE(std::get<0>(sent));
    co_await sleep_for(t.loop_, std::chrono::milliseconds(50));
  });
}

TEST_F(HttpTest, ServesAtAUnixSocketAndTakesNoOthersPlace) {
  const auto path = ::testing::TempDir() + "http_test." + std::to_string(::getpid()) + ".sock";
  run(
      [](HttpTest& t) -> Task<void> {
        const auto got = co_await t.fetch("GET", "/x");
        EXPECT_EQ(got.status, 200U) << got.error;
        EXPECT_EQ(got.body, "hello /x");
        Server second(t.loop_, t.handler_, t.log_);
        EXPECT_EQ(second.listen(t.base_).error(), std::errc::address_in_use);
      },
      "unix:" + path);
  ::unlink(path.c_str());
}

TEST_F(HttpTest, TheClientRefusesBadInput) {
  run([](HttpTest& t) -> Task<void> {
    Client client(t.loop_);
    for (const char* base : {"https://a", "http://", "ftp://a", "http://a/b", "http://u@a"}) {
      HttpClientRequest request;
      request.base = base;
      request.target = "/";
      const auto got = co_await client.send(request, nullptr);
      EXPECT_FALSE(got);
      if (!got) {
        EXPECT_EQ(got.error(), std::errc::invalid_argument) << base;
      }
    }
    HttpClientRequest injected;
    injected.base = "http://127.0.0.1:1";
    injected.target = "/a\r\nX: y";
    const auto got = co_await client.send(injected, nullptr);
    EXPECT_FALSE(got);
  });
}

// A server that sends given bytes to whoever has sent a whole head, and closes.
Task<void> answer_with(tcp::acceptor& acceptor, std::string bytes) {
  auto [error, socket] = co_await acceptor.async_accept(kAwait);
  std::string head;
  std::array<char, 4096> buffer{};
  while (!error && !head.contains("\r\n\r\n")) {
    const auto [failed, count] =
        co_await socket.async_read_some(boost::asio::buffer(buffer), kAwait);
    if (failed) co_return;
    head.append(buffer.data(), count);
  }
  co_await boost::asio::async_write(socket, boost::asio::buffer(bytes), kAwait);
  socket.shutdown(tcp::socket::shutdown_send, error);
  co_await socket.async_read_some(boost::asio::buffer(buffer), kAwait);
}

class AnsweredTest : public HttpTest {
 public:
  // What the client makes of an answer of these bytes.
  Task<Fetched> answered(std::string bytes) {
    tcp::acceptor acceptor(loop_.context(), {boost::asio::ip::address_v4::loopback(), 0});
    base_ = "http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
    TaskScope tasks(loop_);
    tasks.spawn("answer", answer_with(acceptor, std::move(bytes)));
    auto got = co_await fetch("GET", "/");
    co_await tasks.stop();
    co_return got;
  }
};

TEST_F(AnsweredTest, P33_AnAnswerWithTwoReadingsIsAnError) {
  run([](HttpTest& test) -> Task<void> {
    auto& t = static_cast<AnsweredTest&>(test);
    const std::string ok = "HTTP/1.1 200 OK\r\n";
    const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
    const std::vector<std::string> heads{
        ok + "\r\nabc",
        ok + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        ok + "Content-Length: 3, 3\r\n\r\nabc",
        ok + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ok + "Content-Length : 3\r\n\r\nabc",
        ok + "X: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
        "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
        "\r\n" + ok + "Content-Length: 3\r\n\r\nabc",
        ok + "X: " + std::string(70'000, 'x') + "\r\nContent-Length: 0\r\n\r\n",
    };
    for (const auto& bytes : heads) {
      const auto got = co_await t.answered(bytes);
      EXPECT_EQ(got.error, std::errc::bad_message) << bytes << got.error.message();
      EXPECT_EQ(got.status, 0U) << bytes;
    }
    std::string interim;
    for (int i = 0; i < 20; ++i) interim += "HTTP/1.1 103 Early Hints\r\n\r\n";
    const auto flood = co_await t.answered(interim + ok + "Content-Length: 0\r\n\r\n");
    EXPECT_EQ(flood.error, std::errc::bad_message);
    for (const auto* body : {"3;a=b\r\nabc\r\n0\r\n\r\n", "0x3\r\nabc\r\n0\r\n\r\n",
                             "3\nabc\n0\n\n", "3\r\nabc\r\n0\r\nX: y\r\n\r\n"}) {
      const auto got = co_await t.answered(chunked + body);
      EXPECT_EQ(got.error, std::errc::bad_message) << body << got.error.message();
    }
  });
}

TEST_F(AnsweredTest, C076_InterimAnswersAreNotTheAnswer) {
  run([](HttpTest& test) -> Task<void> {
    auto& t = static_cast<AnsweredTest&>(test);
    const auto got = co_await t.answered(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        "HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 500 Unasked\r\n\r\n");
    EXPECT_EQ(got.status, 201U) << got.error.message();
    EXPECT_EQ(got.body, "abc");
    EXPECT_FALSE(got.error);
  });
}

}  // namespace
}  // namespace space::http
