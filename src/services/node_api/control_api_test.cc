#include "services/node_api/control_api.h"

#include <gtest/gtest.h>

#include "services/node_api/e2b.h"
#include "services/node_api/testing/fake_exchange.h"
#include "services/node_api/testing/fake_platform.h"

namespace space::node_api {
namespace {

using std::chrono::seconds;
using testing::FakeExchange;
using wire::SandboxState;

// A control plane that has sandbox "abc" of the team with key e2b_aa, and writes down what it is
// asked.
class ControlApiTest : public testing::PlatformTest {
 protected:
  ControlApiTest() {
    info_.sandbox = abc();
    info_.state = SandboxState::kRunning;
    info_.template_name = "base";
    info_.cpu_millis = 1500;
    info_.memory_bytes = 512U << 20;
    info_.disk_bytes = 1024U << 20;
    info_.access_token = "sat_secret";
    control_.intercept = [this](hop::Channel& channel, const frame::Open& open) {
      return serve(channel, open);
    };
  }

  void run(FakeExchange& exchange) { EXPECT_TRUE(world_.run(api_.handle(exchange), seconds(60))); }
  FakeExchange run(std::string method, const std::string& target, std::string body = {}) {
    FakeExchange exchange(std::move(method), target, std::move(body));
    run(exchange);
    return exchange;
  }

  wire::SandboxInfo info_;
  bool resumes_ = false;
  wire::SandboxListResult listed_;
  std::optional<frame::End> refusal_;  // of every operation on a sandbox
  std::vector<std::string> asked_;
  wire::SandboxCreateRequest created_;
  wire::SandboxListRequest list_;
  ControlApi api_{gateway_, log_, "space.test"};

 private:
  // Whether the request was answered already: a sandbox of nobody or of another team.
  template <class Request>
  std::optional<Request> about_abc(hop::Channel& channel, const frame::Open& open) {
    auto request = *wire::decode<Request>(open.metadata);
    if (request.sandbox == abc() && request.session == testing::FakeControl::session(1)) {
      return request;
    }
    testing::refuse(channel, frame::Outcome::kNotFound, "no such sandbox here");
    return std::nullopt;
  }
  template <class Request>
  bool answer_info(hop::Channel& channel, const frame::Open& open, const std::string& what) {
    const auto request = about_abc<Request>(channel, open);
    if (!request) return true;
    std::string text = what;
    if constexpr (requires { request->timeout_s + 0; }) {
      text += " " + std::to_string(request->timeout_s) + (request->only_extend ? " extend" : "");
    }
    asked_.push_back(std::move(text));
    testing::answer(channel, wire::encode(info_));
    return true;
  }
  bool serve(hop::Channel& channel, const frame::Open& open) {
    using enum policy::Operation;
    if (open.operation == kSessionOpen) return false;
    if (refusal_) {
      asked_.push_back("refused");
      testing::refuse(channel, refusal_->outcome, refusal_->message);
      return true;
    }
    if (open.operation == kSandboxGet)
      return answer_info<wire::SandboxRequest>(channel, open, "get");
    if (open.operation == kSandboxKill) {
      return answer_info<wire::SandboxRequest>(channel, open, "kill");
    }
    if (open.operation == kSandboxPause) {
      return answer_info<wire::SandboxPauseRequest>(channel, open, "pause");
    }
    if (open.operation == kSandboxSetTimeout) {
      return answer_info<wire::SandboxTimeoutRequest>(channel, open, "timeout");
    }
    if (open.operation == kSandboxResume) {
      const auto request = about_abc<wire::SandboxResumeRequest>(channel, open);
      if (!request) return true;
      asked_.push_back("resume " +
                       (request->timeout_s ? std::to_string(*request->timeout_s) : "none"));
      testing::answer(channel, wire::encode(wire::SandboxResumeResult{info_, resumes_}));
      return true;
    }
    if (open.operation == kSandboxCreate) {
      created_ = *wire::decode<wire::SandboxCreateRequest>(open.metadata);
      asked_.emplace_back("create");
      testing::answer(channel, wire::encode(info_));
      return true;
    }
    if (open.operation == kSandboxList) {
      list_ = *wire::decode<wire::SandboxListRequest>(open.metadata);
      asked_.emplace_back("list");
      testing::answer(channel, wire::encode(listed_));
      return true;
    }
    return false;
  }
};

Json::Object object(const FakeExchange& exchange) {
  auto json = parse_json(exchange.out);
  EXPECT_TRUE(json && json->object()) << exchange.out;
  return json && json->object() ? *json->object() : Json::Object{};
}

TEST_F(ControlApiTest, C106_BothGenerationsOfTheWireCreate) {
  // npm e2b 2.45: everything spelled out. npm e2b 2.51: only what the user set.
  const auto old = run("POST", "/sandboxes",
                       R"({"templateID":"base","timeout":300,"secure":true,)"
                       R"("allow_internet_access":true,"autoPause":false})");
  EXPECT_EQ(old.status, 201U) << old.out;
  EXPECT_EQ(created_.timeout_s, 300U);
  const auto current = run("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  EXPECT_EQ(current.status, 201U) << current.out;
  EXPECT_EQ(created_.timeout_s, 300U);
  EXPECT_EQ(old.out, current.out);
  const auto made = object(current);
  EXPECT_EQ(made.at("sandboxID"), Json("abc"));
  EXPECT_EQ(made.at("templateID"), Json("base"));
  EXPECT_EQ(made.at("envdVersion"), Json("0.5.2"));
  EXPECT_EQ(made.at("envdAccessToken"), Json("sat_secret"));
  EXPECT_EQ(made.at("domain"), Json("space.test"));
  EXPECT_EQ(current.header("content-type"), "application/json");
  EXPECT_EQ(current.header("cache-control"), "no-store");
  ASSERT_EQ(run("POST", "/sandboxes", R"({"templateID":"base"})").status, 201U);
  EXPECT_EQ(created_.timeout_s, 15U);
}

TEST_F(ControlApiTest, TheDomainOfASandboxHasThePortThatTheClientReached) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"api.space.test", "space.test"},      {"api.space.test:8443", "space.test:8443"},
      {"127.0.0.1:3000", "space.test:3000"}, {"[::1]", "space.test"},
      {"[::1]:3000", "space.test:3000"},
  };
  for (const auto& [host, domain] : cases) {
    FakeExchange exchange("GET", "/sandboxes/abc");
    exchange.head().headers.push_back({"host", host});
    run(exchange);
    EXPECT_EQ(object(exchange).at("domain"), Json(domain)) << host;
  }
}

TEST_F(ControlApiTest, BodiesArriveChunkedOrNotAtAll) {
  FakeExchange chunked("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  chunked.head().content_length.reset();
  run(chunked);
  EXPECT_EQ(chunked.status, 201U);
  for (const auto* body : {"", "{}", R"({"memory":true})"}) {  // 2.9.1, 2.51, 2.45
    EXPECT_EQ(run("POST", "/sandboxes/abc/pause", body).status, 204U) << body;
  }
  FakeExchange large("POST", "/v2/sandboxes", std::string(kMaxJsonBytes + 1, ' '));
  large.head().content_length.reset();
  run(large);
  EXPECT_EQ(large.status, 413U);
  EXPECT_EQ(object(large).at("code"), Json(413));
}

TEST_F(ControlApiTest, C106_C108_UnknownAndUnsupportedRoutesNameThemselves) {
  struct Case {
    std::string method, target;
    unsigned status;
  };
  const std::vector<Case> cases{
      {"GET", "/", 404},
      {"GET", "/health", 404},
      {"POST", "/v3/sandboxes", 404},
      {"POST", "/sandboxes/abc/nope", 404},
      {"PATCH", "/v2/sandboxes", 405},
      {"PUT", "/sandboxes/abc", 405},
      {"POST", "/sandboxes/abc/fork", 501},
      {"POST", "/sandboxes/abc/snapshots", 501},
      {"PUT", "/sandboxes/abc/network", 501},
      {"GET", "/sandboxes/abc/metrics", 501},
      {"GET", "/sandboxes/metrics?sandbox_ids=abc", 501},
      {"GET", "/sandboxes/abc/logs", 501},
      {"GET", "/v2/sandboxes/abc/logs", 501},
      {"GET", "/snapshots?limit=1", 501},
      {"GET", "/templates", 501},
      {"DELETE", "/templates/a%3Ab", 501},
      {"GET", "/templates/aliases/base", 501},
      {"GET", "/templates/t/builds/b/status?logsOffset=0", 501},
      {"POST", "/v3/templates", 501},
      {"GET", "/volumes", 501},
      {"PUT", "/volumecontent/v/file", 501},
      {"GET", "/secrets/s", 501},
      {"GET", "/teams", 501},
      {"GET", "/api-keys", 501},
  };
  for (const auto& one : cases) {
    const auto exchange = run(one.method, one.target, one.method == "GET" ? "" : "{}");
    EXPECT_EQ(exchange.status, one.status) << one.target << exchange.out;
    const auto body = object(exchange);
    EXPECT_EQ(body.at("code"), Json(one.status));
    const auto& message = *body.at("message").string();
    const auto path = one.target.substr(0, one.target.find('?'));
    EXPECT_NE(message.find(one.method + " " + path), std::string::npos) << message;
    if (one.status != 501) EXPECT_NE(message.find("2.45 to 2.51"), std::string::npos) << message;
    EXPECT_EQ(exchange.header("allow").empty(), one.status != 405);
  }
  EXPECT_TRUE(asked_.empty());
}

TEST_F(ControlApiTest, C108_UnsupportedFieldsAre501AndOthers400WithTheirNames) {
  struct Case {
    std::string target, body;
    unsigned status;
    std::string says;
  };
  const std::vector<Case> cases{
      {"/v2/sandboxes", R"({"templateID":"base","mcp":{}})", 201, ""},
      {"/v2/sandboxes", R"({"templateID":"base","mcp":{"a":{"b":1}}})", 501, "mcp"},
      {"/v2/sandboxes", R"({"templateID":"base","colour":1})", 400, "colour"},
      {"/v2/sandboxes", R"({"templateID":"base","timeout":1.5})", 400, "number"},
      {"/v2/sandboxes", R"({"templateID":"base","templateID":"x"})", 400, "duplicate key"},
      {"/v2/sandboxes", R"({})", 400, "templateID"},
      {"/v2/sandboxes", R"([])", 400, "object"},
      {"/v2/sandboxes?x=1", R"({"templateID":"base"})", 400, "\"x\""},
      {"/sandboxes/abc/pause", R"({"memory":false})", 501, "memory"},
      {"/v2/sandboxes/abc/connect", R"({"memory":false})", 501, "memory"},
      {"/sandboxes/abc/resume", R"({"memory":false})", 501, "memory"},
      {"/sandboxes/abc/resume", R"({"autoPause":true})", 501, "autoPause"},
      {"/sandboxes/abc/timeout", R"({})", 400, "timeout"},
      {"/sandboxes/abc/refreshes", R"({"duration":3601})", 400, "duration"},
  };
  for (const auto& one : cases) {
    const auto exchange = run("POST", one.target, one.body);
    EXPECT_EQ(exchange.status, one.status) << one.body << exchange.out;
    if (one.status == 201) continue;
    const auto body = object(exchange);
    EXPECT_EQ(body.at("code"), Json(one.status));
    EXPECT_NE(body.at("message").string()->find(one.says), std::string::npos) << exchange.out;
  }
  FakeExchange key("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  key.head().headers.push_back({"idempotency-key", "k"});
  run(key);
  EXPECT_EQ(key.status, 501U);
  EXPECT_NE(key.out.find("Idempotency-Key"), std::string::npos);
}

TEST_F(ControlApiTest, P31_ARequestNeedsOneValidApiKey) {
  struct Case {
    HttpHeaders headers;
    unsigned status;
  };
  const std::vector<Case> cases{
      {{}, 401},
      {{{"x-api-key", "e2b_zz"}}, 401},
      {{{"x-api-key", "sat_00"}}, 401},
      {{{"x-api-key", "e2b_a b"}}, 401},
      {{{"x-api-key", "e2b_aa"}, {"x-api-key", "e2b_aa"}}, 400},
      {{{"x-api-key", "e2b_aa"}, {"authorization", "Bearer e2b_aa"}}, 400},
      {{{"authorization", "Bearer e2b_aa"}}, 200},
      {{{"x-api-key", "e2b_aa"}}, 200},
  };
  for (const auto& one : cases) {
    FakeExchange exchange("GET", "/v2/sandboxes");
    exchange.head().headers = one.headers;
    run(exchange);
    EXPECT_EQ(exchange.status, one.status) << exchange.out;
    if (one.status != 200) EXPECT_EQ(object(exchange).at("code"), Json(one.status));
  }
}

TEST_F(ControlApiTest, C023_AForeignAndAnUnknownSandboxGetTheSameBytesAndAreNotWoken) {
  struct Case {
    std::string method, rest, body;
  };
  const std::vector<Case> routes{
      {"GET", "", ""},
      {"DELETE", "", ""},
      {"POST", "/timeout", R"({"timeout":60})"},
      {"POST", "/refreshes", R"({"duration":60})"},
      {"POST", "/connect", R"({"timeout":300})"},
      {"POST", "/resume", R"({"autoPause":false})"},
      {"POST", "/pause", ""},
  };
  for (const auto& [method, rest, body] : routes) {
    std::vector<FakeExchange> answers;
    for (const std::string id : {"abc", "zzz", "UPPER", "a_b"}) {
      answers.emplace_back(method, "/sandboxes/" + id + rest, body);
      answers.back().head().headers = {{"x-api-key", "e2b_bb"}};
      run(answers.back());
      EXPECT_EQ(answers.back().status, 404U) << rest;
      EXPECT_EQ(answers.back().out, answers.front().out) << rest;
      EXPECT_EQ(answers.back().headers, answers.front().headers) << rest;
    }
    EXPECT_EQ(object(answers.front()).at("code"), Json(404));
  }
  EXPECT_TRUE(asked_.empty());
}

TEST_F(ControlApiTest, C091_ConnectAnswersWhetherItResumedAndPassesItsTimeoutOn) {
  for (const std::string path : {"/sandboxes/abc/connect", "/v2/sandboxes/abc/connect"}) {
    resumes_ = false;
    const auto running = run("POST", path, "{}");
    EXPECT_EQ(running.status, 200U) << running.out;
    resumes_ = true;
    const auto paused = run("POST", path, R"({"timeout":7200})");
    EXPECT_EQ(paused.status, 201U);
    EXPECT_EQ(running.out, paused.out);
    EXPECT_EQ(object(paused).at("envdAccessToken"), Json("sat_secret"));
    for (const auto* bad : {R"({"timeout":0})", R"({"timeout":-1})", R"({"timeout":86401})"}) {
      EXPECT_EQ(run("POST", path, bad).status, 400U) << bad;
    }
  }
  EXPECT_EQ(asked_,
            (std::vector<std::string>{"resume none", "resume 7200", "resume none", "resume 7200"}));
}

TEST_F(ControlApiTest, TheOldResumeIs201AndKeepsWhatHappensAtTheTimeout) {
  EXPECT_EQ(run("POST", "/sandboxes/abc/resume", R"({"timeout":60,"autoPause":false})").status,
            201U);
  info_.on_timeout = wire::TimeoutAction::kPause;
  EXPECT_EQ(run("POST", "/sandboxes/abc/resume", R"({"autoPause":true})").status, 201U);
  EXPECT_EQ(run("POST", "/sandboxes/abc/resume", R"({"autoPause":false})").status, 501U);
  EXPECT_EQ(asked_, (std::vector<std::string>{"get", "resume 60", "get", "resume 15", "get"}));
}

TEST_F(ControlApiTest, C091_OnlyTimeoutSetsTheDeadlineAndRefreshesExtendIt) {
  EXPECT_EQ(run("POST", "/sandboxes/abc/timeout", R"({"timeout":60})").status, 204U);
  const auto refreshed = run("POST", "/sandboxes/abc/refreshes", R"({"duration":60})");
  EXPECT_EQ(refreshed.status, 204U);
  EXPECT_EQ(refreshed.out, "");
  EXPECT_EQ(asked_, (std::vector<std::string>{"timeout 60", "timeout 60 extend"}));
}

TEST_F(ControlApiTest, ASandboxIsShownAndEnded) {
  const auto shown = run("GET", "/sandboxes/abc");
  EXPECT_EQ(shown.status, 200U);
  const auto body = object(shown);
  EXPECT_EQ(body.at("state"), Json("running"));
  EXPECT_EQ(body.at("cpuCount"), Json(2));
  EXPECT_EQ(body.at("memoryMB"), Json(512));
  EXPECT_EQ(body.at("diskSizeMB"), Json(1024));
  EXPECT_EQ(body.at("envdAccessToken"), Json("sat_secret"));
  EXPECT_EQ(body.at("allowInternetAccess"), Json(false));
  EXPECT_EQ(body.at("space").object()->at("egress"), Json("none"));
  const auto killed = run("DELETE", "/sandboxes/abc");
  EXPECT_EQ(killed.status, 204U);
  EXPECT_EQ(killed.out, "");
  EXPECT_EQ(asked_, (std::vector<std::string>{"get", "get", "kill"}));
}

TEST_F(ControlApiTest, AFailedSandboxIsNotShownButCanBeRemoved) {
  info_.state = SandboxState::kFailed;
  const auto shown = run("GET", "/sandboxes/abc");
  EXPECT_EQ(shown.status, 404U);
  EXPECT_EQ(shown.out, run("GET", "/sandboxes/zzz").out);
  EXPECT_EQ(run("DELETE", "/sandboxes/abc").status, 204U);
}

TEST_F(ControlApiTest, C110_ListsPassTheirFilterOnAndTheirPageTokenBack) {
  auto other = info_;
  other.sandbox = *identity::SandboxId::parse("abd");
  other.state = SandboxState::kPausing;
  other.metadata = {{"a", "b"}};
  listed_ = {{info_, other}, "next", 7};
  const auto page = run("GET", "/v2/sandboxes?metadata=a%3Db&limit=2&nextToken=t&order=asc");
  EXPECT_EQ(page.status, 200U) << page.out;
  EXPECT_EQ(page.header("x-next-token"), "next");
  EXPECT_EQ(page.header("x-total-running"), "7");
  EXPECT_EQ(list_.limit, 2U);
  EXPECT_EQ(list_.cursor, "t");
  EXPECT_FALSE(list_.newest_first);
  EXPECT_EQ(list_.metadata, (std::map<std::string, std::string>{{"a", "b"}}));
  const auto json = parse_json(page.out);
  ASSERT_TRUE(json && json->array()) << page.out;
  ASSERT_EQ(json->array()->size(), 2U);
  const auto& last = *json->array()->back().object();
  EXPECT_EQ(last.at("state"), Json("paused"));
  EXPECT_EQ(last.at("metadata"), Json(Json::Object{{"a", "b"}}));
  EXPECT_EQ(page.out.find("sat_"), std::string::npos);
  listed_ = {{}, "", 0};
  const auto none = run("GET", "/v2/sandboxes");
  EXPECT_EQ(none.status, 200U);
  EXPECT_EQ(none.out, "[]\n");
  EXPECT_EQ(none.header("x-next-token"), "");
  for (const auto* query : {"?limit=101", "?state=x", "?metadata=a%3Db%26broken", "?offset=1"}) {
    EXPECT_EQ(run("GET", std::string("/v2/sandboxes") + query).status, 400U) << query;
  }
  refusal_ = frame::End{frame::Outcome::kInvalidArgument, "the page token is not of this list", {}};
  const auto forged = run("GET", "/v2/sandboxes?nextToken=x");
  EXPECT_EQ(forged.status, 400U);
  EXPECT_NE(forged.out.find("page token"), std::string::npos);
}

TEST_F(ControlApiTest, TheOldListHasNoPagesAndSaysWhenItWouldNeedThem) {
  listed_ = {{info_}, "", 1};
  EXPECT_EQ(run("GET", "/sandboxes").status, 200U);
  EXPECT_EQ(list_.limit, 0U);
  listed_ = {{info_}, "next", 200};
  const auto cut = run("GET", "/sandboxes");
  EXPECT_EQ(cut.status, 413U);
  EXPECT_NE(cut.out.find("/v2/sandboxes"), std::string::npos);
}

TEST_F(ControlApiTest, C111_WhatTheControlPlaneSaysHasAStatusAndSaysWhetherToRetry) {
  struct Case {
    frame::Outcome outcome;
    std::string message;
    unsigned status;
    std::string retry_after, should_retry;
  };
  using enum frame::Outcome;
  const std::vector<Case> cases{
      {kConflict, "paused", 409, "", ""},
      {kUnavailable, "the sandbox is resuming", 503, "1", ""},
      {kDeadlineExceeded, "too late", 504, "", "false"},
      {kInvalidArgument, "the template name is not valid", 400, "", ""},
      {kLimitReached, "the sandbox has used up its process ids", 429, "", ""},
      {kNoSpace, "disk full", 507, "", ""},
      {kInternal, "broken", 500, "", ""},
  };
  for (const auto& one : cases) {
    refusal_ = frame::End{one.outcome, one.message, {}};
    const auto exchange = run("POST", "/sandboxes/abc/pause");
    EXPECT_EQ(exchange.status, one.status) << one.message;
    EXPECT_EQ(object(exchange).at("code"), Json(one.status));
    EXPECT_NE(object(exchange).at("message").string()->find(one.message), std::string::npos);
    EXPECT_EQ(exchange.header("retry-after"), one.retry_after);
    EXPECT_EQ(exchange.header("should-retry"), one.should_retry);
  }
}

}  // namespace
}  // namespace space::node_api
