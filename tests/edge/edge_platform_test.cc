#include "core/wire/connect_frame.h"
#include "raw_edge.h"
#include "services/node_api/front.h"
#include "services/node_api/space_api.h"
#include "services/node_api/testing/fake_exchange.h"
#include "services/node_api/testing/fake_platform.h"

// Raw bytes against the APIs of node-api, with a control plane and workers that record what they
// are asked.
namespace space::edge_test {
namespace {

using node_api::testing::FakeExchange;
namespace frame = hop::frame;
using policy::Operation;

// Answers each request of the real server in the simulated world, in one turn of the real loop.
class IntoWorld final : public HttpHandler {
 public:
  IntoWorld(sim::World& world, HttpHandler& handler) : world_(world), handler_(handler) {}
  Task<void> handle(HttpExchange& exchange) override {
    std::string body;
    std::vector<std::byte> buffer(4096);
    while (exchange.request().has_body) {
      const auto count = co_await exchange.read_body(buffer);
      if (!count) co_return;
      if (*count == 0) break;
      body += as_text(ByteView(buffer).first(*count));
    }
    FakeExchange inside("", "", std::move(body));
    inside.head() = exchange.request();
    EXPECT_TRUE(world_.run(handler_.handle(inside), std::chrono::minutes(10)));
    EXPECT_TRUE(inside.finished);
    co_await exchange.respond(inside.status, inside.headers, inside.out);
  }

 private:
  sim::World& world_;
  HttpHandler& handler_;
};

// What was asked of the control plane or a worker.
struct Asked {
  Operation operation;
  std::string sandbox;
  Bytes metadata;
  friend bool operator==(const Asked&, const Asked&) = default;
};

std::string token_of(char digit) { return "sat_" + std::string(64, digit); }

class EdgePlatformTest : public node_api::testing::PlatformTest {
 public:
  // Team 1 owns "abc" and team 2 "abd"; both run on w1. "zzz" is nobody's.
  EdgePlatformTest() {
    auto foreign = node_api::testing::route_at(7, w1_.part, "w1", "sim:w1", "abd");
    w1_.installed["abd"] = foreign.route;
    select(std::move(foreign));
    control_.owns[2] = {"abd"};
    bind('a', 10, "abc");
    bind('b', 11, "abd");
    control_.intercept = [this](hop::Channel& channel, const frame::Open& open) {
      return answer_platform(channel, open);
    };
    w1_.operate = [this](std::shared_ptr<hop::Channel> channel, const frame::Open& open) {
      reached_.push_back({open.operation, open.sandbox->text(), open.metadata});
      channel->end(frame::End{frame::Outcome::kNotFound, "no such file", {}});
    };
  }

  void run(Task<void> (*test)(EdgePlatformTest&)) {
    IntoWorld backend(world_, front_);
    EdgeServer server(backend, {});
    server_ = &server;
    server.run(test(*this));
  }
  Task<std::string> raw(std::string bytes) {
    RawClient client(server_->loop);
    EXPECT_TRUE(co_await client.connect(server_->port));
    co_await client.send(bytes);
    EXPECT_TRUE(co_await client.await_close()) << bytes;
    co_return client.received;
  }

  static std::string request(const std::string& line, const std::string& fields,
                             const std::string& body = {}) {
    return line + " HTTP/1.1\r\nHost: localhost:3000\r\nConnection: close\r\n" + fields +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  std::vector<Asked> reached_;   // what the guests got
  std::vector<Asked> platform_;  // what the control plane was asked about sandboxes

 private:
  void bind(char digit, std::uint8_t session, const std::string& sandbox) {
    control_.keys[token_of(digit)] = session;
    control_.bound[session] = sandbox;
    control_.owns[session] = {sandbox};
  }
  // Platform operations about a sandbox, which fail differently for another team's and for none.
  bool answer_platform(hop::Channel& channel, const frame::Open& open) {
    using enum Operation;
    if (open.operation == kSessionOpen || open.operation == kRouteResolve ||
        open.operation == kCapabilityMint) {
      return false;
    }
    platform_.push_back({open.operation, {}, open.metadata});
    const std::string bytes(as_text(open.metadata));
    if (bytes.contains("abd")) {
      node_api::testing::refuse(channel, frame::Outcome::kPermissionDenied, "another team's");
    } else if (bytes.contains("zzz")) {
      node_api::testing::refuse(channel, frame::Outcome::kNotFound, "there is none");
    } else {
      node_api::testing::refuse(channel, frame::Outcome::kUnsupported, "not in this test");
    }
    return true;
  }

  node_api::SpaceApi space_{gateway_, log_};
  node_api::SandboxApi sandbox_{gateway_, world_, log_};
  node_api::Front front_{{"space.test", {}}, space_, space_, sandbox_};
  EdgeServer* server_ = nullptr;
};

const std::string kKey = "X-API-KEY: e2b_aa\r\n";
const std::string kJson = "Content-Type: application/json\r\n";

std::string in_sandbox(const std::string& id, char digit = 'a') {
  return "E2b-Sandbox-Id: " + id +
         "\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: " + token_of(digit) + "\r\n";
}

std::string envelope(const std::string& message) {
  std::string out;
  wire::append_connect_frame(out, wire::ConnectFlag::kMessage, message);
  return out;
}

// A request that a face takes, but for the sandbox it is about.
struct Call {
  std::string line;  // {} stands for the sandbox
  std::string body = {};
  std::string fields = {};
};

const std::vector<Call>& own_api() {
  static const std::string kAt = "/space/v1/sandboxes/{}";
  static const std::vector<Call> kCalls{
      {"GET " + kAt},
      {"DELETE " + kAt},
      {"POST " + kAt + "/timeout", "{\"timeout_s\":60}"},
      {"POST " + kAt + "/pause"},
      {"POST " + kAt + "/resume", "{}"},
      {"POST " + kAt + "/move"},
      {"GET " + kAt + "/route"},
      {"GET " + kAt + "/files?path=/a"},
      {"PUT " + kAt + "/files?path=/a", "bytes"},
      {"DELETE " + kAt + "/files?path=/a"},
      {"GET " + kAt + "/files/stat?path=/a"},
      {"GET " + kAt + "/files/list?path=/a"},
      {"POST " + kAt + "/directories?path=/a"},
      {"POST " + kAt + "/processes", "{\"command\":\"sh\"}"},
      {"GET " + kAt + "/processes"},
      {"POST " + kAt + "/processes/1/signal", "{\"signal\":9}"},
      {"POST " + kAt + "/processes/1/stdin", "bytes"},
  };
  return kCalls;
}

const std::vector<Call>& sandbox_api() {
  static const std::string kStream = "Content-Type: application/connect+json\r\n";
  static const std::vector<Call> kCalls{
      {"GET /health"},
      {"GET /files?path=/a"},
      {"POST /files?path=/a", "bytes", "Content-Type: application/octet-stream\r\n"},
      {"POST /filesystem.Filesystem/Stat", "{\"path\":\"/a\"}", kJson},
      {"POST /filesystem.Filesystem/MakeDir", "{\"path\":\"/a\"}", kJson},
      {"POST /filesystem.Filesystem/ListDir", "{\"path\":\"/a\",\"depth\":1}", kJson},
      {"POST /filesystem.Filesystem/Remove", "{\"path\":\"/a\"}", kJson},
      {"POST /process.Process/Start", envelope("{\"process\":{\"cmd\":\"sh\"}}"), kStream},
      {"POST /process.Process/List", "{}", kJson},
      {"POST /process.Process/SendSignal",
       "{\"process\":{\"pid\":1},\"signal\":\"SIGNAL_SIGKILL\"}", kJson},
  };
  return kCalls;
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_F(EdgePlatformTest, C023_AnothersSandboxAndNoneAreTheSameBytes) {
  run([](EdgePlatformTest& t) -> Task<void> {
    for (const auto& call : own_api()) {
      std::vector<std::string> answers;
      for (const auto* id : {"abd", "zzz", "Not_an_id"}) {
        answers.push_back(
            co_await t.raw(request(with(call.line, "{}", id), kKey + call.fields, call.body)));
      }
      EXPECT_TRUE(answers[0].starts_with("HTTP/1.1 404")) << call.line << answers[0];
      EXPECT_EQ(answers[0], answers[1]) << call.line;
      EXPECT_EQ(answers[0], answers[2]) << call.line;
    }
    for (const auto& call : sandbox_api()) {
      std::vector<std::string> answers;
      // With a token of one's own, with the other's, and with nobody's.
      for (const auto* id : {"abd", "zzz"}) {
        for (const char digit : {'a', 'c'}) {
          const auto answer =
              co_await t.raw(request(call.line, in_sandbox(id, digit) + call.fields, call.body));
          answers.push_back(with(answer, id, "{}"));
        }
      }
      for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]) << call.line;
      EXPECT_TRUE(answers[0].starts_with("HTTP/1.1 502")) << call.line << answers[0];
    }
    EXPECT_EQ(t.reached_, std::vector<Asked>{});
  });
}

// Sends the call with and without headers that try to speak for the platform: what comes back and
// what reaches the guest is the same. How often a guest was reached.
Task<std::size_t> compare_with_hostile_headers(EdgePlatformTest& t, Call call,
                                               std::string credential) {
  const std::string hostile =
      "X-Space-User: admin\r\nx_space_user: admin\r\nX-Space-Execution: abd.9@w2\r\n"
      "X-Space-Capability: forged\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n"
      "X-Real-IP: 1.2.3.4\r\nVia: 1.1 forged\r\nCookie: platform=forged; app=forged\r\n"
      "Connection: X-Space-User\r\nE2b-Traffic-Access-Token: forged\r\n"
      "X-HTTP-Method-Override: DELETE\r\nX-Original-URL: /forged\r\nTE: trailers\r\n";
  const auto fields = credential + call.fields;
  const auto line = with(call.line, "{}", "abc");
  t.reached_.clear();
  const auto plain = co_await t.raw(EdgePlatformTest::request(line, fields, call.body));
  const auto expected = t.reached_;
  t.reached_.clear();
  const auto answer = co_await t.raw(EdgePlatformTest::request(line, hostile + fields, call.body));
  EXPECT_EQ(answer, plain) << line;
  EXPECT_EQ(t.reached_, expected) << line;
  for (const auto& asked : t.reached_) {
    const std::string bytes(as_text(asked.metadata));
    for (const auto* secret : {"e2b_", "sat_", "admin", "forged", "1.2.3.4", "localhost"}) {
      EXPECT_FALSE(bytes.contains(secret)) << line;
    }
    if (asked.operation != Operation::kProcessStart) continue;
    const auto start = wire::decode<wire::ProcessStartRequest>(asked.metadata);
    EXPECT_TRUE(start && start->spec.envs.empty());
  }
  co_return t.reached_.size();
}

TEST_F(EdgePlatformTest, C081_NothingOfAClientsHeadersReachesAGuest) {
  run([](EdgePlatformTest& t) -> Task<void> {
    std::size_t reached = 0;
    for (const auto& call : own_api()) {
      reached += co_await compare_with_hostile_headers(t, call, kKey);
    }
    for (const auto& call : sandbox_api()) {
      reached += co_await compare_with_hostile_headers(t, call, in_sandbox("abc"));
    }
    EXPECT_GE(reached, 15U);  // the comparison was not one of nothings
  });
}

TEST_F(EdgePlatformTest, C082_NoSpellingOfAPathReachesAnothersSandbox) {
  run([](EdgePlatformTest& t) -> Task<void> {
    using namespace std::string_literals;
    const std::string base = "/space/v1/sandboxes/";
    for (const auto& target : {base + "abc/../abd/files?path=/x",
                               base + "abc/..%2fabd/files?path=/x",
                               base + "abc%2f..%2fabd/files?path=/x",
                               base + "abc/%2e%2e/abd/files?path=/x",
                               base + "abc/%252e%252e/abd/files?path=/x",
                               base + "abc/..%5cabd/files?path=/x",
                               base + "abc\\..\\abd/files?path=/x",
                               base + "abc;/../abd/files?path=/x",
                               base + "abc/.;/../abd/files?path=/x",
                               base + "abc%00/../abd/files?path=/x",
                               base + "abc%zz/files?path=/x",
                               base + "abc%2/files?path=/x",
                               base + "abc/./files?path=/x",
                               "/space/v1//sandboxes//abd/files?path=/x"s,
                               "//space/v1/sandboxes/abd/files?path=/x"s,
                               "/space/v1/./sandboxes/abd/files?path=/x"s,
                               "/space/v1/../v1/sandboxes/abd/files?path=/x"s,
                               base + "abc/files/../../abd/files?path=/x",
                               base + "abc/files?path=/x#/../abd",
                               base + "abc/files/?path=/x",
                               base + "abc%3b/files?path=/x",
                               base + "abc%25/files?path=/x",
                               "/SPACE/v1/sandboxes/abd/files?path=/x"s,
                               base + "abc/%66%69les%2f?path=/x"}) {
      const auto answer = co_await t.raw(request("GET " + target, kKey));
      EXPECT_TRUE(answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 404"))
          << target << answer;
    }
    // Inside a sandbox too: the only sandbox is the one that its headers and its token name.
    for (const auto* target :
         {"/files/../files?path=/x", "//files?path=/x", "/%66iles?path=/x", "/files%00?path=/x",
          "/files;a?path=/x", "/./files?path=/x", "/abd/files?path=/x", "/init", "/%69nit",
          "/x/../init", "/freeze", "/health/../init"}) {
      const auto answer = co_await t.raw(request("GET "s + target, in_sandbox("abc")));
      EXPECT_TRUE(answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 404"))
          << target << answer;
    }
    EXPECT_EQ(t.reached_, std::vector<Asked>{});
    EXPECT_EQ(t.platform_, std::vector<Asked>{});
    // Decoded once, and what was decoded is what is used: the same path in other letters.
    const auto answer =
        co_await t.raw(request("GET " + base + "%61bc/fi%6Ces?path=%2Fx%2520y", kKey));
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 404")) << answer;
    EXPECT_EQ(t.reached_.size(), 1U);
    for (const auto& asked : t.reached_) {
      EXPECT_EQ(asked.sandbox, "abc");
      const auto read = wire::decode<wire::FileReadRequest>(asked.metadata);
      EXPECT_TRUE(read && read->path == "/x%20y");
    }
  });
}

TEST_F(EdgePlatformTest, P31_EachRequestOfAConnectionIsClassifiedAnew) {
  run([](EdgePlatformTest& t) -> Task<void> {
    const auto keep = [](const std::string& line, const std::string& fields) {
      return line + " HTTP/1.1\r\n" + fields + "\r\n";
    };
    const std::string local = "Host: localhost\r\n";
    const auto answer = co_await t.raw(
        keep("GET /health",
             "Host: 49983-abc.space.test\r\nX-Access-Token: " + token_of('a') + "\r\n") +
        keep("GET /space/v1/health", local) +
        // The sandbox of the first request is forgotten, and so is its token.
        keep("GET /health",
             "Host: 49983-abd.space.test\r\nX-Access-Token: " + token_of('a') + "\r\n") +
        keep("GET /health", "Host: 49983-abc.space.test\r\n") +
        keep("GET /health", "Host: 49983-abc.space.test\r\n" + in_sandbox("abd")) +
        keep("GET /space/v1/sandboxes", local) + request("GET /health", "E2b-Sandbox-Id: abc\r\n"));
    std::vector<std::string> statuses;  // the first is the guest's own
    for (auto at = answer.find("HTTP/1.1 "); at != std::string::npos;
         at = answer.find("HTTP/1.1 ", at + 1)) {
      statuses.push_back(answer.substr(at + 9, 3));
    }
    EXPECT_EQ(statuses, (std::vector<std::string>{"404", "200", "502", "401", "400", "401", "400"}))
        << answer;
  });
}

}  // namespace
}  // namespace space::edge_test
