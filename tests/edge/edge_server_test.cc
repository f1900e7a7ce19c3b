#include <sys/socket.h>

#include "raw_edge.h"

namespace space::edge_test {
namespace {

// Records what reaches it. What it does depends on the path.
class Backend final : public HttpHandler {
 public:
  // "METHOD TARGET BODY", the body with "!" when it could not be read to its end.
  std::vector<std::string> seen;
  bool gone = false;
  std::error_code write_error;
  Notifier changed;
  Timer* timer = nullptr;

  Task<void> handle(HttpExchange& exchange) override {
    const auto& request = exchange.request();
    const auto at = seen.size();
    seen.push_back(request.method + " " + request.path +
                   (request.query.empty() ? "" : "?" + request.query));
    if (request.path == "/early") co_return static_cast<void>(co_await answer(exchange));
    if (request.path == "/none") {
      static_cast<void>(co_await exchange.respond(204, {}, ""));
      co_return;
    }
    if (request.path == "/stream") co_return co_await stream(exchange);
    if (request.path == "/endless") co_return co_await endless(exchange);
    if (request.path == "/wait") co_return co_await wait(exchange);
    const auto body = co_await read(exchange);
    if (!body.empty()) seen[at] += " " + body;
    if (body.ends_with('!')) co_return;
    co_await answer(exchange);
  }
  // Until `done`, within a minute.
  Task<bool> until(std::function<bool()> done) {
    const auto deadline = timer->now() + seconds(60);
    while (!done() && timer->now() < deadline) co_await changed.wait(*timer, deadline);
    co_return done();
  }

 private:
  static Task<void> answer(HttpExchange& exchange) {
    std::string body = "did " + exchange.request().path;
    static_cast<void>(co_await exchange.respond(200, {}, std::move(body)));
  }
  static Task<std::string> read(HttpExchange& exchange) {
    std::string body;
    std::vector<std::byte> buffer(1000);
    for (;;) {
      const auto count = co_await exchange.read_body(buffer);
      if (!count) co_return body + "!";
      if (*count == 0) co_return body;
      body += as_text(ByteView(buffer).first(*count));
    }
  }
  static Task<void> stream(HttpExchange& exchange) {
    static_cast<void>(co_await exchange.begin(200, {}));
    static_cast<void>(co_await exchange.write(as_bytes("part")));
    static_cast<void>(co_await exchange.finish());
  }
  Task<void> endless(HttpExchange& exchange) {
    const std::string piece(64 * 1024, 'x');
    static_cast<void>(co_await exchange.begin(200, {}));
    for (;;) {
      const auto written = co_await exchange.write(as_bytes(piece));
      if (written) continue;
      write_error = written.error();
      changed.notify();
      co_return;
    }
  }
  // Reads nothing, until the client has gone.
  Task<void> wait(HttpExchange& exchange) {
    exchange.on_gone([this] {
      gone = true;
      changed.notify();
    });
    changed.notify();
    co_await until([this] { return gone; });
  }
};

http::Server::Limits patient() {
  http::Server::Limits limits;
  limits.head_time = std::chrono::hours(1);
  limits.keep_alive_time = std::chrono::hours(1);
  limits.idle_time = std::chrono::hours(1);
  return limits;
}

using Seen = std::vector<std::string>;

class EdgeServerTest : public ::testing::Test {
 public:
  void run(Task<void> (*test)(EdgeServerTest&), http::Server::Limits limits = patient()) {
    EdgeServer server(backend_, limits);
    server_ = &server;
    backend_.timer = &server.loop;
    server.run(test(*this));
  }
  RawClient client() { return RawClient(server_->loop); }
  // Everything that comes back for `bytes` from a connection of its own that the server closes.
  Task<std::string> closing(std::string bytes, bool slowly = false) {
    auto raw = client();
    EXPECT_TRUE(co_await raw.connect(server_->port));
    if (slowly) {
      co_await raw.send_slowly(bytes);
    } else {
      co_await raw.send(bytes);
    }
    EXPECT_TRUE(co_await raw.await_close()) << bytes;
    co_return raw.received;
  }

  Backend backend_;
  EdgeServer* server_ = nullptr;
};

const std::string kNext = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
const std::string kPost = "POST /p HTTP/1.1\r\nHost: a\r\n";
const std::string kChunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";

// One request of a hostile client, and the status it gets.
struct Row {
  std::string bytes;
  unsigned status;
};

// Heads with two readings. The backend sees nothing of them, nor what follows.
std::vector<Row> bad_heads() {
  using namespace std::string_literals;
  return {
      {kPost + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 400},
      {kPost + "Content-Length: 0\r\nContent-Length: 50\r\n\r\n", 400},
      {kPost + "Content-Length: +5\r\n\r\nabcde", 400},
      {kPost + "Content-Length: 5, 5\r\n\r\nabcde", 400},
      {kPost + "Content-Length: 0x5\r\n\r\nabcde", 400},
      {kPost + "Content-Length: 18446744073709551621\r\n\r\nabcde", 400},
      {kPost + "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: identity\r\n\r\n", 400},
      {kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400},
      {kPost + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
      {kPost + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /p HTTP/1.1\nHost: a\nContent-Length: 0\n\n", 400},
      {"POST /p HTTP/1.1\r\nHost: a\r\nX: y\n\r\n", 400},
      {"POST /p HTTP/1.1\r\nHost: a\r\nX: y\rContent-Length: 5\r\n\r\n", 400},
      {"GET /p HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n"s, 400},
      {"GET /p HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET /p HTTP/1.1\r\n\r\n", 400},
      {"GET http://b/p HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http://a/p HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET  /p HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /p\tq HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n", 400},
      {"\r\nGET /p HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /p\r\n\r\n", 400},
      {"GET /p HTTP/1.0\r\nHost: a\r\n\r\n", 505},
      {"GET /p HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {kPost + "Content-Length: 5\r\nExpect: 200-ok\r\n\r\n", 417},
      {"\x16\x03\x01\x02\x01\x01\n", 400},  // TLS
  };
}

TEST_F(EdgeServerTest, C075_AHeadWithTwoReadingsIsRefusedAndNothingReachesTheBackend) {
  run([](EdgeServerTest& t) -> Task<void> {
    for (const auto& [bytes, status] : bad_heads()) {
      const auto out = co_await t.closing(bytes + kNext);
      EXPECT_TRUE(out.starts_with("HTTP/1.1 " + std::to_string(status))) << bytes << out;
      EXPECT_TRUE(out.contains("{\"code\":" + std::to_string(status) + ",\"message\":\"")) << out;
      EXPECT_TRUE(out.contains("content-type: application/json\r\n")) << out;
      EXPECT_TRUE(out.contains("connection: close\r\n")) << out;
      EXPECT_EQ(answers_in(out), 1U) << bytes << out;
    }
    EXPECT_EQ(t.backend_.seen, Seen{});
  });
}

TEST_F(EdgeServerTest, C075_ABadChunkIsRefusedAndTheBackendSeesNoSecondRequest) {
  run([](EdgeServerTest& t) -> Task<void> {
    using namespace std::string_literals;
    const std::vector<std::string> bodies{
        "0x5\r\nabcde\r\n0\r\n\r\n"s,
        "5;a=\n\r\nabcde\r\n0\r\n\r\n"s,
        "5;a=b\r\nabcde\r\n0\r\n\r\n"s,
        "5 \r\nabcde\r\n0\r\n\r\n"s,
        "+5\r\nabcde\r\n0\r\n\r\n"s,
        "5\nabcde\n0\n\n"s,
        "5\r\nabcdef\r\n0\r\n\r\n"s,
        "5\r\nabcde\r\n\r\n"s,
        "5\r\nabcde\r\n0\r\nX: y\r\n\r\n"s,
        "5\r\nabcde\r\n0\r\nContent-Length: 50\r\n\r\n"s,
        "10000000000000005\r\nabcde\r\n0\r\n\r\n"s,
        "fffffffffffffffff\r\n"s,
        "\r\n"s,
        "0\r\n\n"s,
        "5\0\r\nabcde\r\n0\r\n\r\n"s,
    };
    for (const auto& body : bodies) {
      t.backend_.seen.clear();
      const auto out = co_await t.closing(kChunked + body + kNext);
      EXPECT_TRUE(out.starts_with("HTTP/1.1 400")) << body << out;
      EXPECT_EQ(answers_in(out), 1U) << body << out;
      EXPECT_EQ(t.backend_.seen.size(), 1U) << body;
      EXPECT_TRUE(t.backend_.seen.at(0).starts_with("POST /p ")) << t.backend_.seen.at(0);
      EXPECT_TRUE(t.backend_.seen.at(0).ends_with("!")) << t.backend_.seen.at(0);
    }
  });
}

TEST_F(EdgeServerTest, C075_ByteByByteTheAnswersAreTheSame) {
  run([](EdgeServerTest& t) -> Task<void> {
    const auto rows = bad_heads();
    for (std::size_t i = 0; i < rows.size(); i += 4) {
      const auto out = co_await t.closing(rows[i].bytes, true);
      EXPECT_TRUE(out.starts_with("HTTP/1.1 " + std::to_string(rows[i].status))) << out;
    }
    EXPECT_EQ(t.backend_.seen, Seen{});
    const auto out = co_await t.closing(
        kChunked + "3\r\nabc\r\n0\r\n\r\n" +
            "PUT /q?x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nde",
        true);
    EXPECT_EQ(answers_in(out), 2U) << out;
    EXPECT_EQ(t.backend_.seen, (Seen{"POST /p abc", "PUT /q?x de"}));
  });
}

TEST_F(EdgeServerTest, C075_AnUnreadBodyIsNeverTakenForARequest) {
  run([](EdgeServerTest& t) -> Task<void> {
    for (const auto& bytes :
         {"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(kNext.size()) +
              "\r\n\r\n" + kNext,
          "POST /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + kNext,
          "POST /early HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n" +
              kNext}) {
      t.backend_.seen.clear();
      const auto out = co_await t.closing(bytes + kNext);
      EXPECT_TRUE(out.starts_with("HTTP/1.1 200")) << out;
      EXPECT_TRUE(out.contains("connection: close\r\n")) << out;
      EXPECT_EQ(answers_in(out), 1U) << out;
      EXPECT_EQ(t.backend_.seen, Seen{"POST /early"});
    }
  });
}

TEST_F(EdgeServerTest, C075_WellFramedRequestsInARowAreEachSeenOnce) {
  run([](EdgeServerTest& t) -> Task<void> {
    const auto out = co_await t.closing(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" + kChunked + "003\r\nabc\r\n0\r\n\r\n" +
        "PUT /2 HTTP/1.1\r\nHost: b\r\nContent-Length: " + std::to_string(kNext.size()) +
        "\r\n\r\n" + kNext + "GET /3?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + kNext);
    EXPECT_EQ(answers_in(out), 4U) << out;
    EXPECT_EQ(t.backend_.seen, (Seen{"GET /1", "POST /p abc", "PUT /2 " + kNext, "GET /3?a=b"}));
  });
}

TEST_F(EdgeServerTest, C076_TheClientIsToldToGoOnOnlyWhenItsBodyIsWanted) {
  run([](EdgeServerTest& t) -> Task<void> {
    const std::string body(3000, 'b');
    const std::string head =
        " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3000\r\n"
        "Connection: close\r\n\r\n";
    auto told = t.client();
    EXPECT_TRUE(co_await told.connect(t.server_->port));
    co_await told.send("POST /p" + head);
    EXPECT_TRUE(co_await told.await_text("\r\n\r\n"));
    EXPECT_EQ(told.received, "HTTP/1.1 100 Continue\r\n\r\n");
    co_await told.send(body);
    EXPECT_TRUE(co_await told.await_close());
    EXPECT_TRUE(told.received.contains("HTTP/1.1 200"));
    EXPECT_EQ(t.backend_.seen, Seen{"POST /p " + body});
    // The body of a client that did not wait is taken without it.
    const auto hasty = co_await t.closing("POST /p" + head + body);
    EXPECT_TRUE(hasty.starts_with("HTTP/1.1 200")) << hasty;
    const auto refused = co_await t.closing("POST /early" + head);
    EXPECT_TRUE(refused.starts_with("HTTP/1.1 200")) << refused;
    EXPECT_FALSE(refused.contains("100 Continue"));
  });
}

TEST_F(EdgeServerTest, HeadAnd204HaveNoBodyAndTheNextRequestIsServed) {
  run([](EdgeServerTest& t) -> Task<void> {
    const std::string rest = " HTTP/1.1\r\nHost: a\r\n\r\n";
    const auto out =
        co_await t.closing("HEAD /1" + rest + "HEAD /stream" + rest + "GET /none" + rest +
                           "GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    EXPECT_EQ(out,
              "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"
              "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
              "HTTP/1.1 204 No Content\r\n\r\n"
              "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\ndid /2");
  });
}

TEST_F(EdgeServerTest, C085_HeadsUpTo64KiBPassAndLargerOnesAreNamed) {
  run([](EdgeServerTest& t) -> Task<void> {
    const auto with = [](const std::string& fields) {
      return "GET /p HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + fields + "\r\n";
    };
    for (const std::size_t kib : {4U, 8U, 16U, 32U, 60U}) {
      const std::string cookie(kib * 1024, 'c');
      const auto out = co_await t.closing(with("Cookie: " + cookie + "\r\n"));
      EXPECT_TRUE(out.starts_with("HTTP/1.1 200")) << kib;
    }
    EXPECT_EQ(t.backend_.seen.size(), 5U);
    const std::string cookie(64 * 1024, 'c');
    const auto large = co_await t.closing(with("Cookie: " + cookie + "\r\n") + kNext);
    EXPECT_TRUE(large.starts_with("HTTP/1.1 431")) << large;
    EXPECT_TRUE(large.contains("the head is larger than 64 KiB")) << large;
    const auto endless = co_await t.closing("GET /p HTTP/1.1\r\nHost: a\r\nX: " + cookie + cookie);
    EXPECT_TRUE(endless.starts_with("HTTP/1.1 431")) << endless;
    std::string many;
    for (int i = 0; i < 200; ++i) many += "X: y\r\n";
    const auto fine = co_await t.closing(with(many));
    EXPECT_TRUE(fine.starts_with("HTTP/1.1 200")) << fine;
    const auto lines = co_await t.closing(with(many + many) + kNext);
    EXPECT_TRUE(lines.starts_with("HTTP/1.1 431")) << lines;
    EXPECT_TRUE(lines.contains("256 header lines")) << lines;
    EXPECT_EQ(t.backend_.seen.size(), 6U);
  });
}

TEST_F(EdgeServerTest, ASlowHeadIsToldSoAndClosed) {
  auto limits = patient();
  limits.head_time = milliseconds(300);
  run(
      [](EdgeServerTest& t) -> Task<void> {
        auto stalled = t.client();
        EXPECT_TRUE(co_await stalled.connect(t.server_->port));
        co_await stalled.send("GET / HTTP/1.1\r\nHost");
        EXPECT_TRUE(co_await stalled.await_close());
        EXPECT_TRUE(stalled.received.starts_with("HTTP/1.1 408")) << stalled.received;
        // Bytes that keep coming win no time.
        auto drip = t.client();
        EXPECT_TRUE(co_await drip.connect(t.server_->port));
        co_await drip.send("GET /");
        bool told = false;
        for (int i = 0; i < 600 && !told; ++i) {
          co_await drip.send("x");
          co_await sleep_for(t.server_->loop, milliseconds(100));
          told = drip.socket().available() > 0;
        }
        EXPECT_TRUE(told);
        EXPECT_EQ(t.backend_.seen, Seen{});
      },
      limits);
}

TEST_F(EdgeServerTest, AnIdleConnectionIsClosedWithoutAWord) {
  auto limits = patient();
  limits.keep_alive_time = milliseconds(100);
  run(
      [](EdgeServerTest& t) -> Task<void> {
        EXPECT_EQ(co_await t.closing(""), "");
        const auto out = co_await t.closing("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        EXPECT_TRUE(out.ends_with("did /1")) << out;
      },
      limits);
}

TEST_F(EdgeServerTest, ASlowBodyIsToldSoAndClosed) {
  auto limits = patient();
  limits.idle_time = milliseconds(100);
  run(
      [](EdgeServerTest& t) -> Task<void> {
        const auto out = co_await t.closing(kPost + "Content-Length: 9\r\n\r\nabc");
        EXPECT_TRUE(out.starts_with("HTTP/1.1 408")) << out;
        EXPECT_EQ(t.backend_.seen, Seen{"POST /p abc!"});
      },
      limits);
}

TEST_F(EdgeServerTest, AClientThatDoesNotReadItsAnswerIsGivenUp) {
  auto limits = patient();
  limits.idle_time = milliseconds(200);
  run(
      [](EdgeServerTest& t) -> Task<void> {
        auto raw = t.client();
        EXPECT_TRUE(co_await raw.connect(t.server_->port));
        co_await raw.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
        EXPECT_TRUE(co_await t.backend_.until([&t] { return bool(t.backend_.write_error); }));
        EXPECT_EQ(t.backend_.write_error, std::errc::timed_out);
      },
      limits);
}

TEST_F(EdgeServerTest, OneAddressCannotTakeAllConnections) {
  auto limits = patient();
  limits.connections = 4;
  limits.connections_per_client = 2;
  run(
      [](EdgeServerTest& t) -> Task<void> {
        const std::string request = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
        auto one = t.client();
        auto two = t.client();
        for (auto* slow : {&one, &two}) {
          EXPECT_TRUE(co_await slow->connect(t.server_->port));
          co_await slow->send("GET /slow");
        }
        const auto refused = co_await t.closing(request);
        EXPECT_TRUE(refused.starts_with("HTTP/1.1 429")) << refused;
        EXPECT_TRUE(refused.contains("too many connections from this address")) << refused;
        auto other = t.client();
        EXPECT_TRUE(co_await other.connect(t.server_->port, "127.0.0.2"));
        co_await other.send(request);
        EXPECT_TRUE(co_await other.await_text("did /1"));
        // A place that is given back can be taken.
        one.leave();
        bool served = false;
        for (int i = 0; i < 600 && !served; ++i) {
          auto again = t.client();
          EXPECT_TRUE(co_await again.connect(t.server_->port));
          co_await again.send(request);
          EXPECT_TRUE(co_await again.await_text("\r\n\r\n"));
          served = again.received.starts_with("HTTP/1.1 200");
          if (!served) co_await sleep_for(t.server_->loop, milliseconds(100));
        }
        EXPECT_TRUE(served);
      },
      limits);
}

TEST_F(EdgeServerTest, BeyondAllConnectionsClientsWaitForAPlace) {
  auto limits = patient();
  limits.connections = 1;
  run(
      [](EdgeServerTest& t) -> Task<void> {
        auto first = t.client();
        auto second = t.client();
        EXPECT_TRUE(co_await first.connect(t.server_->port));
        EXPECT_TRUE(co_await second.connect(t.server_->port));
        co_await second.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
        co_await first.send("GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        EXPECT_TRUE(co_await first.await_close());
        EXPECT_TRUE(first.received.ends_with("did /1"));
        first.leave();
        EXPECT_TRUE(co_await second.await_text("did /2"));
        EXPECT_EQ(t.backend_.seen, (Seen{"GET /1", "GET /2"}));
      },
      limits);
}

// A client that leaves is noticed whatever of its request is unread, so that nothing is kept alive
// for it (P-18).
TEST_F(EdgeServerTest, P18_AClientThatLeavesIsNoticedAtAnyTime) {
  struct Case {
    std::string bytes;
    bool reset;
    bool full;  // sends until nothing more is taken
  };
  static const std::vector<Case> kCases{
      {"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n", false, false},
      {"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + kNext, false, false},
      {"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nabc", false, false},
      {"POST /wait HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", true, false},
      {"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999\r\n\r\n", true, true},
  };
  run([](EdgeServerTest& t) -> Task<void> {
    for (const auto& one : kCases) {
      t.backend_.gone = false;
      t.backend_.seen.clear();
      auto raw = t.client();
      EXPECT_TRUE(co_await raw.connect(t.server_->port));
      co_await raw.send(one.bytes);
      EXPECT_TRUE(co_await t.backend_.until([&t] { return t.backend_.seen.size() == 1; }));
      if (one.full) {
        const std::string piece(64 * 1024, 'x');
        const int descriptor = raw.socket().native_handle();
        for (int quiet = 0; quiet < 5; ++quiet) {
          while (::send(descriptor, piece.data(), piece.size(), MSG_DONTWAIT) > 0) quiet = 0;
          co_await sleep_for(t.server_->loop, milliseconds(20));
        }
      }
      EXPECT_FALSE(t.backend_.gone);
      raw.leave(one.reset);
      EXPECT_TRUE(co_await t.backend_.until([&t] { return t.backend_.gone; })) << one.bytes;
    }
  });
}

}  // namespace
}  // namespace space::edge_test
