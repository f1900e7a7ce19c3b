#include "services/node_api/space_api.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "services/node_api/testing/fake_exchange.h"
#include "services/node_api/testing/fake_platform.h"

namespace space::node_api {
namespace {

using std::chrono::seconds;
using testing::FakeExchange;

class SpaceApiTest : public testing::PlatformTest {
 protected:
  void run(FakeExchange& exchange) { EXPECT_TRUE(world_.run(api_.handle(exchange), seconds(60))); }
  FakeExchange run(std::string method, const std::string& target, std::string body = {}) {
    FakeExchange exchange(std::move(method), target, std::move(body));
    run(exchange);
    return exchange;
  }
  SpaceApi api_{gateway_, log_};
};

const std::string kFiles = "/space/v1/sandboxes/abc/files";

// Admitted uploads: collects the bytes and answers with a FileEntry once the opener ended.
Task<void> receive(std::shared_ptr<hop::Channel> channel, std::string& got, bool& ended) {
  for (;;) {
    auto event = co_await channel->next();
    if (const auto* data = std::get_if<frame::Data>(&event)) {
      got += as_text(data->bytes);
      continue;
    }
    if (!std::holds_alternative<frame::End>(event)) co_return;
    ended = true;
    wire::FileEntry entry;
    entry.name = "f";
    entry.path = "/f";
    entry.size = got.size();
    frame::End end;
    end.result = wire::encode(entry);
    channel->end(std::move(end));
    co_return;
  }
}

Bytes event_bytes(const wire::ProcessEvent& event) {
  ByteWriter out;
  const auto record = wire::encode(event);
  out.bytes32(record);
  return out.take();
}

Task<void> send_all(std::shared_ptr<hop::Channel> channel, Bytes bytes,
                    std::optional<frame::Payload> last) {
  for (std::size_t at = 0; at < bytes.size(); at += 5) {
    const auto part = ByteView(bytes).subspan(at, std::min<std::size_t>(5, bytes.size() - at));
    if (!co_await channel->write(part)) co_return;
  }
  if (last) channel->send(std::move(*last));
}

TEST_F(SpaceApiTest, C111_ErrorsAreJsonWithACodeAndAMessage) {
  struct Case {
    std::string method, target, body;
    unsigned status;
    std::string says;
  };
  const std::vector<Case> cases{
      {"GET", "/nope", "", 404, "no such route: GET /nope"},
      {"GET", "/space/v1/sandboxes/abc/nope", "", 404, "no such route"},
      {"PATCH", "/space/v1/sandboxes", "", 405, "POST, GET"},
      {"POST", "/space/v1/sandboxes", "{\"template\":\"host\",\"colour\":1}", 400, "colour"},
      {"POST", "/space/v1/sandboxes", "{\"template\":\"host\",\"template\":\"x\"}", 400,
       "duplicate key"},
      {"POST", "/space/v1/sandboxes", "{}", 400, "template"},
      {"POST", "/space/v1/sandboxes", "{\"template\":\"host\",\"timeout_s\":1.5}", 400, "integer"},
      {"POST", "/space/v1/sandboxes/abc/pause", "{\"a\":1}", 400, "unknown field"},
      {"GET", kFiles, "", 400, "path"},
      {"GET", kFiles + "?path=/a&path=/b", "", 400, "twice"},
      {"GET", kFiles + "?path=/a&x=1", "", 400, "unknown"},
      {"GET", kFiles + "?path=/a&offset=-1", "", 400, "offset"},
      {"GET", kFiles + "?path=/a%00b", "", 400, "malformed"},
      {"GET", kFiles + "?path=/a%zz", "", 400, "malformed"},
      {"PUT", kFiles + "?path=/a&mode=9", "x", 400, "octal"},
      {"GET", kFiles + "/stat?path=/a&user=a:b", "", 400, "user"},
      {"GET", "/space/v1/sandboxes/abc/../abd/files?path=/x", "", 400, "malformed"},
      {"GET", "/space/v1/sandboxes/abc%2f..%2fabd", "", 400, "malformed"},
      {"GET", "/space/v1//sandboxes", "", 400, "malformed"},
      {"GET", "/space/v1/sandboxes/abc;/files?path=/x", "", 400, "malformed"},
      {"POST", "/space/v1/sandboxes/abc/processes/1x/signal", "{\"signal\":9}", 400, "decimal"},
      {"POST", "/space/v1/sandboxes/abc/processes/1/signal", "{\"signal\":99}", 400, "SIGTERM"},
  };
  for (const auto& one : cases) {
    const auto exchange = run(one.method, one.target, one.body);
    EXPECT_EQ(exchange.status, one.status) << one.target << exchange.out;
    EXPECT_TRUE(exchange.finished);
    const auto json = parse_json(exchange.out);
    ASSERT_TRUE(json && json->object()) << exchange.out;
    EXPECT_TRUE(json->object()->contains("code"));
    EXPECT_NE(exchange.out.find(one.says), std::string::npos) << one.target << exchange.out;
  }
  EXPECT_TRUE(w1_.opens.empty());
}

TEST_F(SpaceApiTest, P31_ACredentialComesOnceAndIsChecked) {
  FakeExchange none("GET", "/space/v1/sandboxes");
  none.head().headers.clear();
  run(none);
  EXPECT_EQ(none.status, 401U);
  FakeExchange twice("GET", "/space/v1/sandboxes");
  twice.head().headers.push_back({"authorization", "Bearer e2b_aa"});
  run(twice);
  EXPECT_EQ(twice.status, 400U);
  FakeExchange wrong("GET", kFiles + "/stat?path=/a");
  wrong.head().headers = {{"authorization", "Bearer e2b_zz"}};
  run(wrong);
  EXPECT_EQ(wrong.status, 401U);
  FakeExchange bearer("GET", kFiles + "?path=/a");
  bearer.head().headers = {{"authorization", "Bearer e2b_aa"}};
  run(bearer);
  EXPECT_EQ(bearer.status, 200U);
  FakeExchange health("GET", "/space/v1/health");
  health.head().headers.clear();
  run(health);
  EXPECT_EQ(health.status, 200U);
}

TEST_F(SpaceApiTest, C023_AForeignAndAnUnknownSandboxGetTheSameBytes) {
  const std::vector<std::pair<std::string, std::string>> routes{
      {"GET", "/files?path=/a"},      {"PUT", "/files?path=/a"}, {"DELETE", "/files?path=/a"},
      {"GET", "/files/stat?path=/a"}, {"GET", "/processes"},     {"POST", "/processes/1/signal"},
  };
  ASSERT_EQ(run("GET", kFiles + "?path=/a").status, 200U);  // the route is cached now
  const auto opens = w1_.opens.size();
  for (const auto& [method, rest] : routes) {
    std::vector<std::pair<unsigned, std::string>> answers;
    for (const std::string id : {"abc", "zzz", "UPPER"}) {
      FakeExchange exchange(method, "/space/v1/sandboxes/" + id + rest,
                            method == "POST" ? "{\"signal\":9}" : "");
      exchange.head().headers = {{"x-api-key", "e2b_bb"}};
      run(exchange);
      EXPECT_EQ(exchange.status, 404U);
      answers.emplace_back(exchange.status, exchange.out);
      EXPECT_EQ(exchange.header("x-space-execution"), "");
    }
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_EQ(answers[0], answers[2]);
  }
  EXPECT_EQ(w1_.opens.size(), opens);
}

TEST_F(SpaceApiTest, P19_NothingOfTheBodyIsReadBeforeAdmissionAlsoAcrossARepair) {
  ASSERT_EQ(run("GET", kFiles + "?path=/a").status, 200U);
  move_to_w2();
  std::string got;
  bool ended = false;
  w2_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    w2_.part.tasks().spawn("receive", receive(std::move(channel), got, ended));
  };
  const std::string body(300'000, 'x');
  FakeExchange exchange("PUT", kFiles + "?path=/f&mode=644", body);
  bool early = false;
  exchange.on_read = [&] { early = early || w2_.opens.empty(); };
  run(exchange);
  EXPECT_FALSE(early);
  EXPECT_EQ(exchange.status, 201U) << exchange.out;
  EXPECT_EQ(got, body);
  EXPECT_TRUE(ended);
  EXPECT_EQ(exchange.header("x-space-execution"), "abc.8@w2");
  EXPECT_EQ(exchange.header("x-space-repaired"), "1");
  const auto request = *wire::decode<wire::FileWriteRequest>(w2_.opens.back().metadata);
  EXPECT_EQ(request.size, body.size());
  EXPECT_EQ(request.mode, 0644U);
}

TEST_F(SpaceApiTest, P19_ARefusedUploadReadsNothing) {
  w1_.installed.clear();
  FakeExchange exchange("PUT", kFiles + "?path=/f", "data");
  bool read = false;
  exchange.on_read = [&] { read = true; };
  run(exchange);
  EXPECT_EQ(exchange.status, 503U);
  EXPECT_FALSE(read);
}

TEST_F(SpaceApiTest, C058_AnInterruptedUploadNeverEndsTheStream) {
  std::string got;
  bool ended = false;
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    w1_.part.tasks().spawn("receive", receive(std::move(channel), got, ended));
  };
  FakeExchange exchange("PUT", kFiles + "?path=/f", std::string(200'000, 'x'));
  exchange.break_at = 100'000;
  run(exchange);
  world_.run_for(seconds(1));
  EXPECT_FALSE(ended);
  EXPECT_FALSE(exchange.finished);
}

TEST_F(SpaceApiTest, C055_C056_AFileComesBackByteForByteTheEmptyOneToo) {
  std::string content;
  for (int i = 0; i < 256; ++i) content += static_cast<char>(i);
  for (const auto& bytes : {content, std::string{}}) {
    w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      w1_.part.tasks().spawn("send", send_all(std::move(channel), to_bytes(bytes), frame::End{}));
    };
    const auto exchange = run("GET", kFiles + "?path=/f%20%C3%B6");
    EXPECT_EQ(exchange.status, 200U);
    EXPECT_EQ(exchange.out, bytes);
    EXPECT_TRUE(exchange.finished);
    EXPECT_EQ(exchange.header("x-space-execution"), "abc.7@w1");
    EXPECT_EQ(wire::decode<wire::FileReadRequest>(w1_.opens.back().metadata)->path, "/f ö");
  }
}

TEST_F(SpaceApiTest, P14_BytesOfACutLeaseThatWereNotSentYetAreNotSent) {
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    w1_.part.tasks().spawn("send", send_all(std::move(channel), to_bytes("old bytes"),
                                            frame::Revoked{{1}, identity::LeaseEnd::kReplaced}));
  };
  const auto exchange = run("GET", kFiles + "?path=/f");
  EXPECT_NE(exchange.status, 200U);
  EXPECT_EQ(exchange.out.find("old bytes"), std::string::npos);
}

TEST_F(SpaceApiTest, C048_AReadThatBreaksOffHasNoCleanEnd) {
  for (const auto& last : std::vector<frame::Payload>{
           frame::Reset{frame::ResetCode::kInternal, frame::Forwarded::kSome},
           frame::End{frame::Outcome::kInternal, "disk", {}}}) {
    w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      w1_.part.tasks().spawn("send", send_all(std::move(channel), to_bytes("part"), last));
    };
    const auto exchange = run("GET", kFiles + "?path=/f");
    EXPECT_EQ(exchange.status, 200U);
    EXPECT_FALSE(exchange.finished);
  }
}

TEST_F(SpaceApiTest, AFailureBeforeTheFirstByteIsAnHonestStatus) {
  w1_.operate = [](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    channel->end(frame::End{frame::Outcome::kNotFound, "no such file", {}});
  };
  const auto exchange = run("GET", kFiles + "?path=/f");
  EXPECT_EQ(exchange.status, 404U);
  EXPECT_NE(exchange.out.find("no such file"), std::string::npos);
}

TEST_F(SpaceApiTest, AProcessStreamsLinesAndEndsWithItsExit) {
  Bytes bytes;
  for (const auto& event :
       {wire::ProcessEvent{wire::ProcessStarted{42}},
        wire::ProcessEvent{wire::ProcessOutput{wire::OutputChannel::kStdout, to_bytes("hi")}},
        wire::ProcessEvent{wire::ProcessOutput{wire::OutputChannel::kStderr, to_bytes("oh")}},
        wire::ProcessEvent{wire::ProcessExited{3, 0, false, false, false}}}) {
    const auto part = event_bytes(event);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    w1_.part.tasks().spawn("send", send_all(std::move(channel), bytes, frame::End{}));
  };
  const auto exchange = run("POST", "/space/v1/sandboxes/abc/processes",
                            "{\"command\":\"sh\",\"arguments\":[\"-c\",\"x\"],\"stdin\":true}");
  EXPECT_EQ(exchange.status, 200U);
  EXPECT_TRUE(exchange.finished);
  EXPECT_EQ(exchange.out,
            "{\"started\":{\"pid\":42}}\n"
            "{\"stdout\":\"aGk=\"}\n"
            "{\"stderr\":\"b2g=\"}\n"
            "{\"exited\":{\"core_dumped\":false,\"exit_code\":3,\"out_of_memory\":false,"
            "\"signal\":0,\"timed_out\":false}}\n");
  const auto request = *wire::decode<wire::ProcessStartRequest>(w1_.opens.back().metadata);
  EXPECT_EQ(request.spec.arguments.size(), 2U);
  EXPECT_TRUE(request.spec.stdin_open);
}

TEST_F(SpaceApiTest, C048_AnInterruptedProcessIsAnErrorLineAndNoCleanEnd) {
  const auto started = event_bytes(wire::ProcessEvent{wire::ProcessStarted{42}});
  for (const auto& last : std::vector<std::optional<frame::Payload>>{
           frame::End{},  // without an exit event
           frame::Revoked{{1}, identity::LeaseEnd::kReplaced}, std::nullopt}) {
    w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      if (!last) w1_.part.cut();
      w1_.part.tasks().spawn("send", send_all(std::move(channel), started, last));
    };
    const auto exchange = run("POST", "/space/v1/sandboxes/abc/processes", "{\"command\":\"sh\"}");
    EXPECT_FALSE(exchange.finished && exchange.status == 200U);
    EXPECT_NE(exchange.out.find("interrupted"), std::string::npos) << exchange.out;
    EXPECT_EQ(exchange.out.find("exited"), std::string::npos);
  }
}

TEST_F(SpaceApiTest, AClientThatLeavesEndsTheStreamToTheWorker) {
  std::shared_ptr<hop::Channel> kept;
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    kept = std::move(channel);
  };
  FakeExchange exchange("POST", "/space/v1/sandboxes/abc/processes", "{\"command\":\"sh\"}");
  TaskScope tasks(world_);
  tasks.spawn("handle", api_.handle(exchange));
  world_.run_for(seconds(2));
  ASSERT_TRUE(kept && exchange.gone);
  exchange.gone();
  EXPECT_TRUE(world_.run(tasks.join(), seconds(10)));
  world_.run_for(seconds(1));
  EXPECT_TRUE(kept->over());
}

TEST_F(SpaceApiTest, P18_AClientThatLeavesWhileItsUploadIsBlockedGivesItUp) {
  std::shared_ptr<hop::Channel> kept;  // reads nothing, so that the window fills
  w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
    kept = std::move(channel);
  };
  FakeExchange exchange("PUT", kFiles + "?path=/f", std::string(8U << 20, 'x'));
  TaskScope tasks(world_);
  tasks.spawn("handle", api_.handle(exchange));
  world_.run_for(seconds(300));
  ASSERT_TRUE(kept && !kept->over() && exchange.gone);
  exchange.gone();
  EXPECT_TRUE(world_.run(tasks.join(), seconds(10)));
  world_.run_for(seconds(1));
  EXPECT_TRUE(kept->over());
}

TEST_F(SpaceApiTest, HostileProcessEventsEndTheStreamWithAnError) {
  for (const auto& bytes : {Bytes(8, std::byte{0xff}), to_bytes(std::string("\0\0\0\1x", 5))}) {
    w1_.operate = [&](std::shared_ptr<hop::Channel> channel, const frame::Open&) {
      w1_.part.tasks().spawn("send", send_all(std::move(channel), bytes, frame::End{}));
    };
    const auto exchange = run("POST", "/space/v1/sandboxes/abc/processes", "{\"command\":\"sh\"}");
    EXPECT_NE(exchange.out.find("malformed_events"), std::string::npos) << exchange.out;
  }
}

TEST_F(SpaceApiTest, ParametersBeyondTheBoundOfARecordAreRefusedAndHarmNobody) {
  const std::string body =
      "{\"template\":\"host\",\"metadata\":{\"a\":\"" + std::string(64 << 10, 'x') + "\"}}";
  const auto created = run("POST", "/space/v1/sandboxes", body);
  EXPECT_EQ(created.status, 413U) << created.out;
  EXPECT_TRUE(gateway_.control_connected());
}

TEST_F(SpaceApiTest, LifecycleCallsReachTheControlPlaneWithTheirParameters) {
  std::vector<std::string> seen;
  control_.intercept = [&](hop::Channel& channel, const frame::Open& open) {
    using enum policy::Operation;
    wire::SandboxInfo info;
    info.sandbox = abc();
    info.state = wire::SandboxState::kRunning;
    info.generation = {9};
    if (open.operation == kSandboxCreate) {
      const auto request = *wire::decode<wire::SandboxCreateRequest>(open.metadata);
      seen.push_back("create " + request.template_name + " " + request.worker->text() + " " +
                     std::to_string(request.memory_bytes >> 20));
    } else if (open.operation == kSandboxResume) {
      const auto request = *wire::decode<wire::SandboxResumeRequest>(open.metadata);
      seen.push_back("resume " + request.worker->text() + " " + std::to_string(*request.timeout_s));
      testing::answer(channel, wire::encode(wire::SandboxResumeResult{info, true}));
      return true;
    } else if (open.operation == kSandboxKill) {
      testing::refuse(channel, frame::Outcome::kConflict, "paused");
      return true;
    } else {
      return false;
    }
    testing::answer(channel, wire::encode(info));
    return true;
  };
  const auto created =
      run("POST", "/space/v1/sandboxes",
          "{\"template\":\"host\",\"worker\":\"w2\",\"memory_mb\":64,\"metadata\":{\"a\":\"b\"}}");
  EXPECT_EQ(created.status, 201U);
  EXPECT_NE(created.out.find("\"id\":\"abc\""), std::string::npos);
  const auto resumed =
      run("POST", "/space/v1/sandboxes/abc/resume", "{\"timeout_s\":60,\"worker\":\"w1\"}");
  EXPECT_EQ(resumed.status, 200U);
  const auto killed = run("DELETE", "/space/v1/sandboxes/abc");
  EXPECT_EQ(killed.status, 409U);
  EXPECT_NE(killed.out.find("paused"), std::string::npos);
  EXPECT_EQ(seen, (std::vector<std::string>{"create host w2 64", "resume w1 60"}));
}

}  // namespace
}  // namespace space::node_api
