#include "services/node_api/sandbox_api.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "core/wire/connect_frame.h"
#include "services/node_api/front.h"
#include "services/node_api/space_api.h"
#include "services/node_api/testing/fake_exchange.h"
#include "services/node_api/testing/fake_platform.h"

namespace space::node_api {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeExchange;

// The access token of a sandbox of the tests: one byte, 32 times.
std::string token_of(char digit) { return "sat_" + std::string(64, digit); }

// The messages of a stream's answer; the end-of-stream one is marked.
std::vector<std::string> messages(const std::string& bytes) {
  wire::ConnectFrameReader reader;
  reader.feed(as_bytes(bytes));
  std::vector<std::string> out;
  for (;;) {
    const auto next = reader.next();
    if (!next || !*next) break;
    const bool end = (*next)->flag == wire::ConnectFlag::kEndOfStream;
    out.push_back((end ? "end " : "") + (*next)->message);
  }
  EXPECT_EQ(reader.buffered(), 0U);
  return out;
}

Bytes event_bytes(const wire::ProcessEvent& event) {
  ByteWriter out;
  const auto record = wire::encode(event);
  out.bytes32(record);
  return out.take();
}
Bytes event_bytes(const std::vector<wire::ProcessEvent>& events) {
  Bytes out;
  for (const auto& event : events) {
    const auto bytes = event_bytes(event);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

Task<void> send_all(std::shared_ptr<hop::Channel> channel, Bytes bytes,
                    std::optional<frame::Payload> last) {
  for (std::size_t at = 0; at < bytes.size(); at += 5) {
    const auto part = ByteView(bytes).subspan(at, std::min<std::size_t>(5, bytes.size() - at));
    if (!co_await channel->write(part)) co_return;
  }
  if (last) channel->send(std::move(*last));
}

// An upload in the guest: its bytes, and whether its opener said that it was all.
struct Received {
  std::string path;
  std::string bytes;
  bool ended = false;
};
Task<void> receive(std::shared_ptr<hop::Channel> channel, Received& received) {
  for (;;) {
    auto event = co_await channel->next();
    if (const auto* data = std::get_if<frame::Data>(&event)) {
      received.bytes += as_text(data->bytes);
      continue;
    }
    if (!std::holds_alternative<frame::End>(event)) co_return;
    received.ended = true;
    wire::FileEntry entry;
    entry.name = received.path.substr(received.path.rfind('/') + 1);
    entry.path = received.path;
    frame::End end;
    end.result = wire::encode(entry);
    channel->end(std::move(end));
    co_return;
  }
}

class SandboxApiTest : public testing::PlatformTest {
 protected:
  SandboxApiTest() {
    // "abc" runs; "def" is another team's; "off" is paused; "bye" was killed.
    const std::vector<std::string> names{"abc", "def", "off", "bye"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto number = static_cast<std::uint8_t>(10 + i);
      control_.keys[token_of(static_cast<char>('a' + i))] = number;
      control_.bound[number] = names[i];
      control_.owns[number] = {names[i]};
    }
    control_.unroutable["off"] = "paused";
  }
  void run(FakeExchange& exchange) {
    EXPECT_TRUE(world_.run(front_.handle(exchange), seconds(200)));
  }
  static FakeExchange request(std::string method, const std::string& target, std::string body = {},
                              const std::string& sandbox = "abc",
                              const std::string& token = token_of('a')) {
    FakeExchange exchange(std::move(method), target, std::move(body));
    exchange.head().headers = {{"host", "localhost:3000"},
                               {"e2b-sandbox-id", sandbox},
                               {"e2b-sandbox-port", "49983"},
                               {"x-access-token", token}};
    return exchange;
  }
  static FakeExchange unary(const std::string& method, std::string body) {
    auto exchange = request("POST", "/" + method, std::move(body));
    exchange.head().headers.push_back({"content-type", "application/json"});
    exchange.head().headers.push_back({"connect-protocol-version", "1"});
    return exchange;
  }
  static FakeExchange stream(const std::string& method, const std::string& message) {
    std::string body;
    wire::append_connect_frame(body, wire::ConnectFlag::kMessage, message);
    auto exchange = request("POST", "/" + method, std::move(body));
    exchange.head().headers.push_back({"content-type", "application/connect+json"});
    return exchange;
  }
  FakeExchange run_unary(const std::string& method, std::string body) {
    auto exchange = unary(method, std::move(body));
    run(exchange);
    return exchange;
  }
  void answer_with(const auto& record) {
    w1_.operate = [result = wire::encode(record)](std::shared_ptr<hop::Channel> channel,
                                                  const frame::Open&) {
      channel->end(frame::End{frame::Outcome::kOk, {}, result});
    };
  }
  void fail_with(frame::Outcome outcome, std::string message) {
    w1_.operate = [=](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      channel->end(frame::End{outcome, message, {}});
    };
  }
  void send_events(Bytes bytes, std::optional<frame::Payload> last = frame::End{}) {
    w1_.operate = [this, bytes, last](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      w1_.kept.push_back(channel);
      w1_.part.tasks().spawn("send", send_all(std::move(channel), bytes, last));
    };
  }
  void receive_files(std::vector<Received>& files) {
    files.reserve(8);
    w1_.operate = [this, &files](std::shared_ptr<hop::Channel> channel, const frame::Open& open) {
      files.push_back({wire::decode<wire::FileWriteRequest>(open.metadata)->path, "", false});
      w1_.part.tasks().spawn("receive", receive(std::move(channel), files.back()));
    };
  }
  template <class Request>
  Request last_request() {
    return *wire::decode<Request>(w1_.opens.back().metadata);
  }

  SpaceApi space_{gateway_, log_};
  SandboxApi sandbox_{gateway_, world_, log_};
  Front front_{{"space.test", {"space.internal"}}, space_, space_, sandbox_};
};

const std::string kStart = "process.Process/Start";
const std::string kRun =
    R"({"process":{"cmd":"/bin/bash","args":["-l","-c","x"],"envs":{"A":"b"}},"stdin":false})";

std::string form(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, bytes] : files) {
    out += "--b1\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + name +
           "\"\r\nContent-Type: application/octet-stream\r\n\r\n" + bytes + "\r\n";
  }
  return out + "--b1--\r\n";
}
const HttpHeader kForm{"content-type", "multipart/form-data; boundary=b1"};

// ---- whose request it is ----

TEST_F(SandboxApiTest, C023_AForeignAnUnknownAndAKilledSandboxGetTheSameBytes) {
  const std::vector<std::pair<std::string, std::string>> calls{
      {"GET", "/health"},
      {"GET", "/files?path=/a"},
      {"POST", "/files?path=/a"},
      {"POST", "/filesystem.Filesystem/Stat"},
      {"POST", "/process.Process/SendSignal"},
      {"POST", "/process.Process/Start"},
  };
  struct Who {
    std::string sandbox, token;
  };
  const std::vector<Who> cases{
      {"abc", token_of('b')},  // another's token
      {"abc", token_of('9')},  // a token of nothing
      {"zzz", token_of('a')},  // no such sandbox
      {"def", token_of('a')},  // another team's
      {"bye", token_of('d')},  // killed, its own token
  };
  auto warm = request("GET", "/health");
  answer_with(wire::FileEntry{});
  run(warm);
  ASSERT_EQ(warm.status, 204U);  // the route is cached now
  const auto opens = w1_.opens.size();
  for (const auto& [method, target] : calls) {
    for (const auto& who : cases) {
      std::string body;
      const bool is_stream = target.ends_with("Start");
      if (is_stream) wire::append_connect_frame(body, wire::ConnectFlag::kMessage, kRun);
      if (target.ends_with("Stat")) body = R"({"path":"/a"})";
      if (target.ends_with("Signal")) body = R"({"process":{"pid":1},"signal":"SIGNAL_SIGKILL"})";
      auto exchange = request(method, target, body, who.sandbox, who.token);
      exchange.head().headers.push_back({"content-type", is_stream ? "application/connect+json"
                                                         : target == "/health" ? "x/y"
                                                         : body.empty() ? "application/octet-stream"
                                                                        : "application/json"});
      run(exchange);
      EXPECT_EQ(exchange.status, 502U) << target;
      EXPECT_EQ(exchange.out,
                "{\"code\":502,\"message\":\"The sandbox was not found\","
                "\"sandboxId\":\"" +
                    who.sandbox + "\"}\n");
      EXPECT_EQ(exchange.headers,
                (HttpHeaders{{"content-type", "application/json"}, {"cache-control", "no-store"}}));
    }
  }
  EXPECT_EQ(w1_.opens.size(), opens);
}

TEST_F(SandboxApiTest, C023_ATokenThatEndsWithItsSandboxIsNotTold) {
  answer_with(wire::FileEntry{});
  ASSERT_EQ(run_unary("filesystem.Filesystem/Stat", R"({"path":"a"})").status, 200U);
  // The session is still cached here, and gone there.
  control_.routes.erase("abc");
  control_.keys.erase(token_of('a'));
  w1_.installed.clear();
  control_.intercept = [](hop::Channel& channel, const frame::Open& open) {
    if (open.operation != policy::Operation::kRouteResolve) return false;
    testing::refuse(channel, frame::Outcome::kUnauthenticated, "no such session");
    return true;
  };
  const auto got = run_unary("filesystem.Filesystem/Stat", R"({"path":"a"})");
  EXPECT_EQ(got.status, 502U);
  EXPECT_EQ(got.out,
            "{\"code\":502,\"message\":\"The sandbox was not found\","
            "\"sandboxId\":\"abc\"}\n");
}

TEST_F(SandboxApiTest, P31_ATokenAndAUserAreGivenOnceAndWellFormed) {
  struct Case {
    HttpHeaders more;
    unsigned status;
  };
  const auto basic = [](std::string_view text) {
    return HttpHeader{"authorization", "Basic " + to_base64(as_bytes(text))};
  };
  const HttpHeader token{"x-access-token", token_of('a')};
  const std::vector<Case> cases{
      {{}, 401},
      {{{"x-access-token", ""}}, 401},
      {{{"x-access-token", "e2b_aa"}}, 401},
      {{{"x-access-token", "sat_" + std::string(64, 'A')}}, 401},
      {{{"x-access-token", token_of('a') + "0"}}, 401},
      {{{"x-api-key", "e2b_aa"}}, 401},
      {{token, token}, 400},
      {{token, basic("root:")}, 200},
      {{token, basic("root")}, 400},
      {{token, basic("root:x")}, 400},
      {{token, basic("a:b:")}, 400},
      {{token, basic(":")}, 400},
      {{token, basic("root:"), basic("root:")}, 400},
      {{token, {"authorization", "Bearer e2b_aa"}}, 400},
  };
  answer_with(wire::FileEntry{});
  for (const auto& one : cases) {
    auto exchange = unary("filesystem.Filesystem/Stat", R"({"path":"a"})");
    auto& headers = exchange.head().headers;
    std::erase_if(headers, [](const HttpHeader& h) { return h.name == "x-access-token"; });
    headers.insert(headers.end(), one.more.begin(), one.more.end());
    run(exchange);
    EXPECT_EQ(exchange.status, one.status) << exchange.out;
  }
  EXPECT_EQ(w1_.opens.size(), 1U);
  EXPECT_EQ(last_request<wire::FileStatRequest>().user, "root");
}

TEST_F(SandboxApiTest, P31_TheFrontTellsRequestsApartByTheirBytesAlone) {
  answer_with(wire::FileEntry{});
  struct Case {
    HttpHeaders headers;
    std::string target;
    unsigned status;
    std::string says;
  };
  const HttpHeader token{"x-access-token", token_of('a')};
  const HttpHeader id{"e2b-sandbox-id", "abc"};
  const HttpHeader port{"e2b-sandbox-port", "49983"};
  const std::vector<Case> cases{
      {{{"host", "49983-abc.space.test"}, token}, "/health", 204, ""},
      {{{"host", "49983-abc.space.test:8443"}, id, port, token}, "/health", 204, ""},
      {{{"host", "49983-abd.space.test"}, id, port, token}, "/health", 400, "different"},
      {{{"host", "localhost"}, id, token}, "/health", 400, "without E2b-Sandbox-Port"},
      {{{"host", "localhost"}, id, id, port, token}, "/health", 400, "twice"},
      {{{"host", "evil.example"}, id, port, token}, "/health", 400, "names"},
      {{{"host", "localhost"}, id, {"e2b-sandbox-port", "8080"}, token}, "/", 501, "\"port\":8080"},
      {{{"host", "8080-zzz.space.test"}}, "/", 501, "not served yet"},
      {{{"host", "localhost"}}, "/space/v1/health", 200, "control_plane"},
      {{{"host", "api.space.test"}}, "/space/v1/health", 200, "control_plane"},
      {{{"host", "localhost"}}, "/nope", 404, "no such route"},
      {{{"host", "localhost"}, id, port}, "/space/v1/health", 404, "no such route"},
  };
  for (const auto& one : cases) {
    FakeExchange exchange("GET", one.target);
    exchange.head().headers = one.headers;
    run(exchange);
    EXPECT_EQ(exchange.status, one.status) << one.headers[0].value << exchange.out;
    EXPECT_NE(exchange.out.find(one.says), std::string::npos) << exchange.out;
  }
}

TEST_F(SandboxApiTest, P32_FilesWithoutASandboxIdAreRoutedByTheTokenAlone) {
  send_events(to_bytes("content"));
  FakeExchange old("GET", "/files?path=/a");
  old.head().headers = {{"host", "localhost"}, {"x-access-token", token_of('a')}};
  run(old);
  EXPECT_EQ(old.status, 200U);
  EXPECT_EQ(old.out, "content");
  FakeExchange unknown("GET", "/files?path=/a");
  unknown.head().headers = {{"host", "localhost"}, {"x-access-token", token_of('9')}};
  run(unknown);
  EXPECT_EQ(unknown.status, 502U);
  FakeExchange is_signed("GET", "/files?path=/a&signature=v1_x");
  is_signed.head().headers = {{"host", "localhost"}};
  const auto sessions = control_.sessions;
  run(is_signed);
  EXPECT_EQ(is_signed.status, 400U);
  EXPECT_EQ(control_.sessions, sessions);
}

// ---- refusals ----

TEST_F(SandboxApiTest, C111_EveryKindOfRefusalReadsAsWhatItIs) {
  struct Face {
    unsigned status;
    std::string code;  // of Connect, or the message's beginning
  };
  struct Case {
    std::string what;
    std::function<void()> prepare;
    std::string sandbox, token;
    Face health, files, unary, stream;
  };
  const std::vector<Case> cases{
      {"refused by identity, not repaired",
       [this] { w1_.installed.clear(); },
       "abc",
       token_of('a'),
       {409, ""},
       {409, ""},
       {409, "aborted"},
       {200, "aborted"}},
      {"paused",
       [] {},
       "off",
       token_of('c'),
       {502, "paused"},
       {409, "connect resumes it"},
       {400, "failed_precondition"},
       {200, "failed_precondition"}},
      {"gone",
       [] {},
       "bye",
       token_of('d'),
       {502, "was not found"},
       {502, "was not found"},
       {502, "was not found"},
       {502, "was not found"}},
      {"installing for longer than is waited for",
       [this] {
         w1_.verdict = [](const frame::Open&) {
           return frame::Refused{frame::Unavailable{frame::UnavailableReason::kInstalling, 50}};
         };
       },
       "abc",
       token_of('a'),
       {409, ""},
       {409, ""},
       {409, "aborted"},
       {200, "aborted"}},
  };
  for (const auto& one : cases) {
    w1_.verdict = {};
    one.prepare();
    const auto ask = [&](FakeExchange exchange) {
      for (auto& header : exchange.head().headers) {
        if (header.name == "e2b-sandbox-id") header.value = one.sandbox;
        if (header.name == "x-access-token") header.value = one.token;
      }
      run(exchange);
      EXPECT_TRUE(exchange.finished);
      return exchange;
    };
    const auto expect = [&](const FakeExchange& got, const Face& face, const char* which) {
      EXPECT_EQ(got.status, face.status) << one.what << which << got.out;
      EXPECT_NE(got.out.find(face.code), std::string::npos) << one.what << which << got.out;
    };
    expect(ask(request("GET", "/health")), one.health, " health");
    expect(ask(request("GET", "/files?path=/a")), one.files, " files");
    expect(ask(unary("filesystem.Filesystem/Stat", R"({"path":"a"})")), one.unary, " unary");
    const auto streamed = ask(stream(kStart, kRun));
    expect(streamed, one.stream, " stream");
    if (one.stream.status == 200) {
      EXPECT_EQ(streamed.header("content-type"), "application/connect+json");
      EXPECT_EQ(messages(streamed.out).size(), 1U);
      EXPECT_TRUE(messages(streamed.out)[0].starts_with("end {\"error\":{\"code\":"));
    }
  }
}

TEST_F(SandboxApiTest, AGuestCannotSpeakForThePlatform) {
  for (const auto& [outcome, message] : std::vector<std::pair<frame::Outcome, std::string>>{
           {frame::Outcome::kNotFound, "no such sandbox"},
           {frame::Outcome::kConflict, "paused"},
           {frame::Outcome::kUnauthenticated, "no such session"},
           {frame::Outcome::kUnavailable, "the sandbox was not found"}}) {
    fail_with(outcome, message);
    const auto got = run_unary("filesystem.Filesystem/Stat", R"({"path":"a"})");
    EXPECT_NE(got.status, 502U);
    EXPECT_EQ(got.out.find("connect resumes"), std::string::npos);
  }
}

TEST_F(SandboxApiTest, C108_WhatIsNotBuiltSays501AndItsName) {
  const auto refused = [this](FakeExchange exchange, const std::string& name) {
    run(exchange);
    EXPECT_EQ(exchange.status, 501U) << exchange.out;
    EXPECT_NE(exchange.out.find(name), std::string::npos) << exchange.out;
  };
  refused(unary("filesystem.Filesystem/CreateWatcher", "{}"), "CreateWatcher");
  refused(unary("process.Process/Update", "{}"), "Update");
  refused(request("GET", "/metrics"), "GET /metrics");
  refused(request("GET", "/envs"), "GET /envs");
  refused(request("GET", "/files?path=/a&signature=x"), "signature");
  refused(unary("process.Process/SendInput", R"({"process":{"pid":1},"input":{"pty":"YQ=="}})"),
          "pty");
  for (const auto& [method, message] : std::vector<std::pair<std::string, std::string>>{
           {"filesystem.Filesystem/WatchDir", R"({"path":"a"})"},
           {"process.Process/Connect", R"({"process":{"pid":1}})"},
           {kStart, R"({"process":{"cmd":"a"},"pty":{"size":{"cols":1,"rows":1}}})"}}) {
    auto exchange = stream(method, message);
    run(exchange);
    EXPECT_EQ(exchange.status, 200U);
    EXPECT_NE(messages(exchange.out).at(0).find("unimplemented"), std::string::npos);
  }
  auto ranged = request("GET", "/files?path=/a");
  ranged.head().headers.push_back({"range", "bytes=0-1"});
  run(ranged);
  EXPECT_EQ(ranged.status, 501U);
  for (const auto& header : HttpHeaders{{"x-metadata-a", "b"}, {"content-encoding", "gzip"}}) {
    auto upload = request("POST", "/files?path=/a", "x");
    upload.head().headers.push_back(header);
    upload.head().headers.push_back({"content-type", "application/octet-stream"});
    run(upload);
    EXPECT_EQ(upload.status, 501U);
  }
  EXPECT_TRUE(w1_.opens.empty());
}

TEST_F(SandboxApiTest, C108_NoFieldIsAcceptedAndIgnored) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"filesystem.Filesystem/Stat", R"({"path":"a","colour":1})"},
      {"filesystem.Filesystem/ListDir", R"({"path":"a","colour":1})"},
      {"process.Process/List", R"({"colour":1})"},
      {"process.Process/SendSignal",
       R"({"process":{"pid":1,"colour":1},"signal":"SIGNAL_SIGTERM"})"},
      {"process.Process/SendInput", R"({"process":{"pid":1},"input":{"stdin":"","colour":1}})"},
      {"process.Process/CloseStdin", R"({"process":{"pid":1},"colour":1})"},
  };
  for (const auto& [method, body] : cases) {
    const auto got = run_unary(method, body);
    EXPECT_EQ(got.status, 400U) << got.out;
    EXPECT_NE(got.out.find("invalid_argument"), std::string::npos);
    EXPECT_NE(got.out.find("colour"), std::string::npos) << got.out;
  }
  auto start = stream(kStart, R"({"process":{"cmd":"a","colour":1}})");
  run(start);
  EXPECT_NE(messages(start.out).at(0).find("colour"), std::string::npos);
  auto query = request("GET", "/files?path=/a&colour=1");
  run(query);
  EXPECT_EQ(query.status, 400U);
  EXPECT_TRUE(w1_.opens.empty());
}

TEST_F(SandboxApiTest, AConnectRequestIsExactlyItsForm) {
  const std::string good = R"({"path":"a"})";
  struct Case {
    HttpHeader header;
    std::string body;
    unsigned status;
  };
  const HttpHeader json{"content-type", "application/json; charset=utf-8"};
  const std::vector<Case> cases{
      {json, good, 200},
      {{"content-type", "application/proto"}, good, 415},
      {{"content-type", "application/connect+json"}, good, 415},
      {json, "", 400},
      {json, "[]", 400},
      {json, R"({"path":"a","path":"b"})", 400},
      {json, R"({"path":""})", 400},
      {json, R"({"path":1})", 400},
  };
  answer_with(wire::FileEntry{});
  for (const auto& one : cases) {
    auto exchange = request("POST", "/filesystem.Filesystem/Stat", one.body);
    exchange.head().headers.push_back(one.header);
    run(exchange);
    EXPECT_EQ(exchange.status, one.status) << one.header.value << one.body << exchange.out;
  }
  for (const auto& header : HttpHeaders{{"connect-protocol-version", "2"},
                                        {"content-encoding", "gzip"},
                                        {"connect-timeout-ms", "0"},
                                        {"connect-timeout-ms", "1s"}}) {
    auto exchange = request("POST", "/filesystem.Filesystem/Stat", good);
    exchange.head().headers.push_back(json);
    exchange.head().headers.push_back(header);
    run(exchange);
    EXPECT_GE(exchange.status, 400U) << header.name;
  }
  auto get = request("GET", "/filesystem.Filesystem/Stat");
  run(get);
  EXPECT_EQ(get.status, 405U);
  EXPECT_EQ(get.header("allow"), "POST");
  std::string two;
  wire::append_connect_frame(two, wire::ConnectFlag::kMessage, kRun);
  wire::append_connect_frame(two, wire::ConnectFlag::kMessage, kRun);
  for (const auto& body : {std::string(), two, two.substr(0, 9), "\1" + two.substr(1, 100)}) {
    auto exchange = request("POST", "/" + kStart, body);
    exchange.head().headers.push_back({"content-type", "application/connect+json"});
    run(exchange);
    EXPECT_NE(messages(exchange.out).at(0).find("invalid_argument"), std::string::npos);
  }
  EXPECT_EQ(w1_.opens.size(), 1U);
}

// ---- files ----

TEST_F(SandboxApiTest, C055_C056_AFileComesBackByteForByteTheEmptyOneToo) {
  std::string content;
  for (int i = 0; i < 256; ++i) content += static_cast<char>(i);
  for (const auto& bytes : {content, std::string{}}) {
    send_events(to_bytes(bytes));
    auto exchange = request("GET", "/files?path=a%20b&username=root");
    run(exchange);
    EXPECT_EQ(exchange.status, 200U);
    EXPECT_EQ(exchange.out, bytes);
    EXPECT_TRUE(exchange.finished);
    EXPECT_EQ(exchange.header("x-space-execution"), "abc.7@w1");
    EXPECT_EQ(last_request<wire::FileReadRequest>().path, "a b");
    EXPECT_EQ(last_request<wire::FileReadRequest>().user, "root");
  }
}

TEST_F(SandboxApiTest, FailuresOfFilesHaveTheStatusTheSdksKnow) {
  using enum frame::Outcome;
  for (const auto& [outcome, status] :
       std::vector<std::pair<frame::Outcome, unsigned>>{{kNotFound, 404},
                                                        {kIsDirectory, 400},
                                                        {kPermissionDenied, 403},
                                                        {kNoSpace, 507},
                                                        {kInternal, 500},
                                                        {kLimitReached, 429}}) {
    fail_with(outcome, "why");
    auto exchange = request("GET", "/files?path=/a");
    run(exchange);
    EXPECT_EQ(exchange.status, status);
    EXPECT_EQ(exchange.out, "{\"code\":" + std::to_string(status) +
                                ",\"message\":\"why\",\"sandboxId\":\"abc\"}\n");
  }
}

TEST_F(SandboxApiTest, AFormWritesEachOfItsFiles) {
  std::string binary;
  for (int i = 0; i < 256; ++i) binary += static_cast<char>(i);
  const std::string large(200'000, 'x');
  std::vector<Received> files;
  receive_files(files);
  auto exchange = request("POST", "/files?username=root",
                          form({{"/tmp/a", binary}, {"~/b \xc3\xb6", large}, {"empty", ""}}));
  exchange.head().content_length.reset();  // chunked
  exchange.head().headers.push_back(kForm);
  run(exchange);
  EXPECT_EQ(exchange.status, 200U) << exchange.out;
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].bytes, binary);
  EXPECT_EQ(files[1].bytes, large);
  EXPECT_EQ(files[2].bytes, "");
  EXPECT_TRUE(files[0].ended && files[1].ended && files[2].ended);
  EXPECT_EQ(last_request<wire::FileWriteRequest>().user, "root");
  EXPECT_EQ(exchange.out,
            "[{\"name\":\"a\",\"path\":\"/tmp/a\",\"type\":\"file\"},"
            "{\"name\":\"b \xc3\xb6\",\"path\":\"~/b \xc3\xb6\",\"type\":\"file\"},"
            "{\"name\":\"empty\",\"path\":\"empty\",\"type\":\"file\"}]\n");
}

TEST_F(SandboxApiTest, P19_ANamedFileIsAdmittedBeforeItsFormIsRead) {
  std::vector<Received> files;
  receive_files(files);
  auto exchange =
      request("POST", "/files?path=" + percent_encode("/o\"dd\n"), form({{"other", "bytes"}}));
  exchange.head().headers.push_back(kForm);
  bool early = false;
  exchange.on_read = [&] { early = early || w1_.opens.empty(); };
  run(exchange);
  EXPECT_EQ(exchange.status, 200U) << exchange.out;
  EXPECT_FALSE(early);
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].path, "/o\"dd\n");
  EXPECT_EQ(files[0].bytes, "bytes");
  w1_.installed.clear();
  auto refused = request("POST", "/files?path=/a", form({{"a", "bytes"}}));
  refused.head().headers.push_back(kForm);
  bool read = false;
  refused.on_read = [&] { read = true; };
  run(refused);
  EXPECT_EQ(refused.status, 409U);
  EXPECT_FALSE(read);
}

TEST_F(SandboxApiTest, P19_WhatWasReadOfAFormGoesToTheExecutionThatAdmitsIt) {
  auto warm = request("GET", "/files?path=/a");
  run(warm);
  move_to_w2();
  std::vector<Received> files;
  files.reserve(1);
  w2_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open& open) {
    files.push_back({wire::decode<wire::FileWriteRequest>(open.metadata)->path, "", false});
    w2_.part.tasks().spawn("receive", receive(std::move(channel), files.back()));
  };
  auto exchange = request("POST", "/files", form({{"/a", "all of it"}}));
  exchange.head().headers.push_back(kForm);
  run(exchange);
  EXPECT_EQ(exchange.status, 200U) << exchange.out;
  EXPECT_EQ(exchange.header("x-space-repaired"), "1");
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(files[0].bytes, "all of it");
}

TEST_F(SandboxApiTest, C058_AFormThatIsCutOrGarbledLeavesTheOldContent) {
  const auto whole = form({{"/a", std::string(100'000, 'x')}});
  const auto cut = whole.substr(0, whole.size() - 9);
  std::vector<std::pair<FakeExchange, unsigned>> cases;
  cases.emplace_back(request("POST", "/files", whole), 0);
  cases.back().first.break_at = 60'000;
  cases.emplace_back(request("POST", "/files", cut), 400);
  cases.emplace_back(request("POST", "/files?path=/a", cut), 400);
  cases.emplace_back(request("POST", "/files", cut + "\n--b1x" + whole), 400);
  for (auto& [exchange, status] : cases) {
    std::vector<Received> files;
    receive_files(files);
    exchange.head().headers.push_back(kForm);
    run(exchange);
    world_.run_for(seconds(1));
    EXPECT_EQ(exchange.status, status) << exchange.out;
    ASSERT_EQ(files.size(), 1U);
    EXPECT_FALSE(files[0].ended);
    w1_.operate = {};
  }
}

TEST_F(SandboxApiTest, AFormThatCannotBeDoneIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"/files", "--b1--\r\n"},
      {"/files", form({{"", "x"}})},
      {"/files?path=/a", form({{"/a", "x"}, {"/b", "y"}})},
      {"/files", "--b1\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--b1--"},
      {"/files", "--b1\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b1--"},
      {"/files?path=", form({{"/a", "x"}})},
      {"/files?username=a:b", form({{"/a", "x"}})},
  };
  for (const auto& [target, body] : cases) {
    std::vector<Received> files;
    receive_files(files);
    auto exchange = request("POST", target, body);
    exchange.head().headers.push_back(kForm);
    run(exchange);
    EXPECT_EQ(exchange.status, 400U) << body << exchange.out;
    w1_.operate = {};
  }
  for (const auto& type : {"multipart/form-data", "text/plain", ""}) {
    auto exchange = request("POST", "/files?path=/a", "x");
    exchange.head().headers.push_back({"content-type", type});
    run(exchange);
    EXPECT_TRUE(exchange.status == 400U || exchange.status == 415U) << exchange.status;
  }
}

TEST_F(SandboxApiTest, BytesAreWrittenAsOneFile) {
  for (const auto& bytes : {std::string(150'000, '\0'), std::string()}) {
    std::vector<Received> files;
    receive_files(files);
    auto exchange = request("POST", "/files?path=/a", bytes);
    exchange.head().headers.push_back({"content-type", "application/octet-stream"});
    run(exchange);
    EXPECT_EQ(exchange.status, 200U) << exchange.out;
    ASSERT_EQ(files.size(), 1U);
    EXPECT_EQ(files[0].bytes, bytes);
    EXPECT_EQ(last_request<wire::FileWriteRequest>().size, bytes.size());
  }
}

TEST_F(SandboxApiTest, AFullDiskIs507AlsoInTheMiddleOfAForm) {
  w1_.operate = [](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    channel->end(frame::End{frame::Outcome::kNoSpace, "disk full", {}});
  };
  auto exchange = request("POST", "/files", form({{"/a", std::string(3'000'000, 'x')}}));
  exchange.head().headers.push_back(kForm);
  run(exchange);
  EXPECT_EQ(exchange.status, 507U) << exchange.out;
}

// ---- filesystem.Filesystem ----

TEST_F(SandboxApiTest, FilesystemCallsSpeakProtobufJson) {
  wire::FileEntry entry;
  entry.name = "a";
  entry.path = "/home/user/a";
  entry.type = wire::FileType::kDirectory;
  entry.size = 4096;
  entry.mode = 0755;
  entry.owner = entry.group = "user";
  const std::string shown =
      "{\"group\":\"user\",\"mode\":493,\"modifiedTime\":\"1970-01-01T00:00:00.000Z\","
      "\"name\":\"a\",\"owner\":\"user\",\"path\":\"/home/user/a\",\"permissions\":\"drwxr-xr-x\","
      "\"size\":\"4096\",\"type\":\"FILE_TYPE_DIRECTORY\"}";
  answer_with(entry);
  for (const auto* method : {"filesystem.Filesystem/Stat", "filesystem.Filesystem/MakeDir"}) {
    const auto got = run_unary(method, R"({"path":"a"})");
    EXPECT_EQ(got.status, 200U) << got.out;
    EXPECT_EQ(got.header("content-type"), "application/json");
    EXPECT_EQ(got.out, "{\"entry\":" + shown + "}\n");
  }
  const auto moved = run_unary("filesystem.Filesystem/Move", R"({"source":"x","destination":"a"})");
  EXPECT_EQ(moved.out, "{\"entry\":" + shown + "}\n");
  EXPECT_EQ(last_request<wire::FileMoveRequest>().source, "x");
  answer_with(wire::FileListResult{{entry}, false});
  const auto list = run_unary("filesystem.Filesystem/ListDir", R"({"path":"~","depth":3})");
  EXPECT_EQ(list.out, "{\"entries\":[" + shown + "]}\n");
  EXPECT_EQ(last_request<wire::FileListRequest>().depth, 3U);
  run_unary("filesystem.Filesystem/ListDir", R"({"path":"~"})");
  EXPECT_EQ(last_request<wire::FileListRequest>().depth, 1U);
  answer_with(wire::FileListResult{{entry}, true});
  const auto truncated = run_unary("filesystem.Filesystem/ListDir", R"({"path":"~"})");
  EXPECT_NE(truncated.out.find("more entries"), std::string::npos);
  EXPECT_EQ(truncated.status, 400U);
}

TEST_F(SandboxApiTest, OutcomesOfTheGuestAreConnectCodes) {
  using enum frame::Outcome;
  struct Case {
    frame::Outcome outcome;
    unsigned status;
    std::string code;
  };
  for (const auto& one : std::vector<Case>{{kNotFound, 404, "not_found"},
                                           {kAlreadyExists, 409, "already_exists"},
                                           {kNotDirectory, 400, "invalid_argument"},
                                           {kPermissionDenied, 403, "permission_denied"},
                                           {kConflict, 400, "failed_precondition"},
                                           {kLimitReached, 429, "resource_exhausted"},
                                           {kInternal, 500, "internal"}}) {
    fail_with(one.outcome, "why");
    const auto got = run_unary("filesystem.Filesystem/MakeDir", R"({"path":"a"})");
    EXPECT_EQ(got.status, one.status);
    EXPECT_EQ(got.out, "{\"code\":\"" + one.code + "\",\"message\":\"why\"}\n");
  }
  fail_with(kNotFound, "not there");
  const auto removed = run_unary("filesystem.Filesystem/Remove", R"({"path":"a"})");
  EXPECT_EQ(removed.status, 200U);
  EXPECT_EQ(removed.out, "{}\n");
  fail_with(kPermissionDenied, "no");
  EXPECT_EQ(run_unary("filesystem.Filesystem/Remove", R"({"path":"a"})").status, 403U);
}

// ---- process.Process ----

TEST_F(SandboxApiTest, C039_C049_C066_AProcessStreamsItsEventsAndEndsAtOnce) {
  send_events(event_bytes({{wire::ProcessStarted{42}},
                           {wire::ProcessOutput{wire::OutputChannel::kStdout, to_bytes("hi")}},
                           {wire::ProcessOutput{wire::OutputChannel::kStderr, to_bytes("\xff")}},
                           {wire::ProcessExited{3, 0, false, false, false}}}),
              std::nullopt);  // the guest's END may come later
  auto exchange = stream(kStart, kRun);
  exchange.head().headers.push_back({"connect-timeout-ms", "60000"});
  run(exchange);
  EXPECT_EQ(exchange.status, 200U);
  EXPECT_TRUE(exchange.finished);
  EXPECT_EQ(exchange.header("content-type"), "application/connect+json");
  EXPECT_EQ(exchange.header("x-space-execution"), "abc.7@w1");
  EXPECT_EQ(messages(exchange.out),
            (std::vector<std::string>{
                R"({"event":{"start":{"pid":42}}})", R"({"event":{"data":{"stdout":"aGk="}}})",
                R"({"event":{"data":{"stderr":"/w=="}}})",
                R"({"event":{"end":{"error":"exit status 3","exitCode":3,"exited":true,)"
                R"("status":"exit status 3"}}})",
                "end {}"}));
  const auto request = last_request<wire::ProcessStartRequest>();
  EXPECT_EQ(request.spec.command, "/bin/bash");
  EXPECT_EQ(request.spec.arguments, (std::vector<std::string>{"-l", "-c", "x"}));
  EXPECT_EQ(request.spec.envs.at("A"), "b");
  EXPECT_EQ(request.timeout_ms, 60'000U);
  EXPECT_FALSE(request.spec.stdin_open);
}

TEST_F(SandboxApiTest, AProcessKilledAtItsDeadlineEndsWithDeadlineExceeded) {
  send_events(event_bytes(
      {{wire::ProcessStarted{42}}, {wire::ProcessExited{143, 15, false, false, true}}}));
  auto exchange = stream(kStart, kRun);
  run(exchange);
  const auto got = messages(exchange.out);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_NE(got[1].find("end {\"error\":{\"code\":\"deadline_exceeded\""), std::string::npos);
}

TEST_F(SandboxApiTest, C048_AnInterruptedProcessEndsWithAnErrorAndNoExit) {
  const auto started = event_bytes(wire::ProcessEvent{wire::ProcessStarted{42}});
  const auto none = std::optional<frame::Payload>();
  struct Case {
    std::optional<frame::Payload> last;
    std::function<void()> meanwhile;
    std::string code;
  };
  const std::vector<Case> cases{
      {frame::End{}, [] {}, "unknown"},  // without an exit event
      {frame::Revoked{{1}, identity::LeaseEnd::kReplaced}, [] {}, "unknown"},
      {frame::Reset{frame::ResetCode::kInternal, frame::Forwarded::kSome}, [] {}, "unknown"},
      {frame::Revoked{{1}, identity::LeaseEnd::kRetired},
       [this] { control_.unroutable["abc"] = "paused"; }, "unknown"},
      {frame::Revoked{{1}, identity::LeaseEnd::kRetired},
       [this] {
         control_.unroutable.clear();
         control_.routes.erase("abc");
       },
       "unavailable"},
  };
  for (const auto& one : cases) {
    w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      one.meanwhile();
      w1_.part.tasks().spawn("send", send_all(std::move(channel), started, one.last));
    };
    auto exchange = stream(kStart, kRun);
    run(exchange);
    const auto got = messages(exchange.out);
    ASSERT_FALSE(got.empty());
    EXPECT_NE(got.back().find("end {\"error\":{\"code\":\"" + one.code + "\""), std::string::npos)
        << got.back();
    EXPECT_EQ(exchange.out.find("exitCode"), std::string::npos);
    EXPECT_TRUE(exchange.finished);
  }
}

TEST_F(SandboxApiTest, AQuietProcessIsKeptAliveAtTheAskedInterval) {
  std::shared_ptr<hop::Channel> kept;
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    kept = channel;
    w1_.part.tasks().spawn(
        "send",
        send_all(channel, event_bytes(wire::ProcessEvent{wire::ProcessStarted{42}}), std::nullopt));
  };
  auto exchange = stream(kStart, kRun);
  exchange.head().headers.push_back({"keepalive-ping-interval", "50"});
  TaskScope tasks(world_);
  tasks.spawn("handle", front_.handle(exchange));
  world_.run_for(seconds(49));
  EXPECT_EQ(messages(exchange.out).size(), 1U);
  world_.run_for(seconds(52));
  const std::string keepalive = R"({"event":{"keepalive":{}}})";
  EXPECT_EQ(messages(exchange.out),
            (std::vector<std::string>{R"({"event":{"start":{"pid":42}}})", keepalive, keepalive}));
  // A client that leaves ends the stream to the worker, which is no end of the process.
  ASSERT_TRUE(exchange.gone);
  exchange.gone();
  EXPECT_TRUE(world_.run(tasks.join(), seconds(10)));
  world_.run_for(seconds(1));
  EXPECT_TRUE(kept->over());
}

TEST_F(SandboxApiTest, C047_ProcessesAreListedSignalledAndFed) {
  wire::ProcessInfo one;
  one.pid = 7;
  one.spec.command = "/bin/bash";
  one.spec.arguments = {"-c", "x"};
  one.spec.envs = {{"A", "b"}};
  one.spec.cwd = "/tmp";
  one.spec.tag = "t";
  wire::ProcessInfo other = one;
  other.pid = 8;
  other.spec.tag = "twice";
  wire::ProcessInfo third = other;
  third.pid = 9;
  std::string got;
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open& open) {
    if (open.operation == policy::Operation::kProcessList) {
      channel->end(frame::End{
          frame::Outcome::kOk, {}, wire::encode(wire::ProcessListResult{{one, other, third}})});
    } else if (open.operation == policy::Operation::kProcessSignal) {
      const bool known = wire::decode<wire::ProcessSignalRequest>(open.metadata)->pid == 7;
      channel->end(frame::End{known ? frame::Outcome::kOk : frame::Outcome::kNotFound,
                              known ? "" : "process not found",
                              known ? wire::encode(wire::Nothing{}) : Bytes{}});
    } else {
      w1_.part.tasks().spawn(
          "input", [](std::shared_ptr<hop::Channel> c, std::string& out) -> Task<void> {
            for (;;) {
              auto event = co_await c->next();
              if (const auto* data = std::get_if<frame::Data>(&event)) {
                out += as_text(data->bytes);
                continue;
              }
              if (std::holds_alternative<frame::End>(event)) {
                c->end(
                    frame::End{frame::Outcome::kOk, {}, wire::encode(wire::ProcessInputResult{})});
              }
              co_return;
            }
          }(std::move(channel), got));
    }
  };
  EXPECT_TRUE(
      run_unary("process.Process/List", "{}")
          .out.starts_with(R"({"processes":[{"config":{"args":["-c","x"],"cmd":"/bin/bash",)"
                           R"("cwd":"/tmp","envs":{"A":"b"}},"pid":7,"tag":"t"},)"));
  const auto signal = [&](const std::string& process) {
    return run_unary("process.Process/SendSignal",
                     "{\"process\":" + process + ",\"signal\":\"SIGNAL_SIGTERM\"}");
  };
  EXPECT_EQ(signal(R"({"pid":7})").out, "{}\n");
  EXPECT_EQ(last_request<wire::ProcessSignalRequest>().signal, 15);
  EXPECT_EQ(signal(R"({"tag":"t"})").status, 200U);
  EXPECT_EQ(last_request<wire::ProcessSignalRequest>().pid, 7U);
  EXPECT_NE(signal(R"({"pid":99})").out.find("not_found"), std::string::npos);
  EXPECT_NE(signal(R"({"tag":"none"})").out.find("not_found"), std::string::npos);
  EXPECT_NE(signal(R"({"tag":"twice"})").out.find("failed_precondition"), std::string::npos);
  EXPECT_NE(signal(R"({})").out.find("invalid_argument"), std::string::npos);
  EXPECT_NE(signal(R"({"pid":7,"tag":"t"})").out.find("invalid_argument"), std::string::npos);

  const std::string process = R"({"process":{"pid":7})";
  EXPECT_EQ(
      run_unary("process.Process/SendInput", process + R"(,"input":{"stdin":"3q0ACv8="}})").out,
      "{}\n");
  EXPECT_EQ(got, std::string("\xde\xad\0\n\xff", 5));
  EXPECT_FALSE(last_request<wire::ProcessInputRequest>().close_after);
  EXPECT_EQ(run_unary("process.Process/SendInput", process + R"(,"input":{"stdin":""}})").out,
            "{}\n");
  EXPECT_FALSE(last_request<wire::ProcessInputRequest>().close_after);
  EXPECT_EQ(run_unary("process.Process/CloseStdin", process + "}").out, "{}\n");
  EXPECT_TRUE(last_request<wire::ProcessInputRequest>().close_after);
  EXPECT_EQ(run_unary("process.Process/SendInput", process + R"(,"input":{"stdin":"a"}})").status,
            400U);
}

TEST_F(SandboxApiTest, TheDeadlineOfAUnaryCallIsKept) {
  w1_.operate = [this](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    w1_.kept.push_back(std::move(channel));
  };
  auto exchange = unary("filesystem.Filesystem/Stat", R"({"path":"a"})");
  exchange.head().headers.push_back({"connect-timeout-ms", "1500"});
  const auto before = world_.now();
  run(exchange);
  EXPECT_EQ(exchange.status, 504U);
  EXPECT_NE(exchange.out.find("deadline_exceeded"), std::string::npos);
  EXPECT_LT(world_.now() - before, seconds(3));
}

}  // namespace
}  // namespace space::node_api
