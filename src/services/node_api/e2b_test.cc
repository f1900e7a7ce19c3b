#include "services/node_api/e2b.h"

#include <gtest/gtest.h>

#include "core/wire/path.h"
#include "services/node_api/records_json.h"

namespace space::node_api::e2b {
namespace {

using frame::Outcome;
using wire::SandboxState;
using Pairs = std::map<std::string, std::string>;

Json json(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value) << text;
  return value.value_or(Json());
}

// The value of `metadata` in a query, as a server gets it.
std::string parameter(std::string_view query) {
  const auto pairs = wire::parse_query(query);
  EXPECT_TRUE(pairs) << query;
  return pairs && pairs->size() == 1 ? pairs->begin()->second : "";
}

TEST(E2b, C109_TheFilterOfEverySdkAndOfARawRequestNamesThePairsThatWereMeant) {
  const Pairs meant{{"build id", "rc/7 beta"}, {"p", "50%"}, {"u", "ñ+&="}, {"e", ""}};
  // As npm e2b 2.45 and 2.51 send it: encodeURIComponent, URLSearchParams, then the HTTP layer.
  const std::string javascript =
      "metadata=build%252520id%3Drc%25252F7%252520beta%26p%3D50%252525%26"
      "u%3D%2525C3%2525B1%25252B%252526%25253D%26e%3D";
  // As PyPI e2b 2.63 sends it: quote (which leaves '/'), urlencode, then httpx.
  const std::string python =
      "metadata=build%252520id%3Drc%252F7%252520beta%26p%3D50%252525%26"
      "u%3D%2525C3%2525B1%25252B%252526%25253D%26e%3D";
  // By hand: each side encoded, then the parameter.
  const std::string raw =
      "metadata=build%2520id%3Drc%252F7%2520beta%26p%3D50%2525%26u%3D%25C3%25B1%252B%2526%253D%26"
      "e%3D";
  for (const auto& query : {javascript, python, raw}) {
    const auto pairs = read_metadata(parameter(query));
    ASSERT_TRUE(pairs) << query << pairs.error();
    EXPECT_EQ(*pairs, meant) << query;
  }
  EXPECT_EQ(*read_metadata("k%2520ey=v%25261"), (Pairs{{"k ey", "v&1"}}));  // E2B.md 1.1
  EXPECT_EQ(*read_metadata(""), Pairs{});
}

TEST(E2b, C109_AMalformedFilterIsRefused) {
  for (const auto* text :
       {"a=b&broken", "=b", "a=b&", "a=%zz", "a=b&a=c", "a=b&%61=c", "a=b c", "a=%00", "&"}) {
    EXPECT_FALSE(read_metadata(text)) << text;
  }
}

TEST(E2b, C108_EveryKnownFieldOfACreateIsUsedOrRefusedByItsName) {
  struct Case {
    std::string fields;
    Outcome outcome;  // kOk: accepted
    std::string says;
  };
  constexpr auto kOk = Outcome::kOk;
  constexpr auto kBad = Outcome::kInvalidArgument;
  constexpr auto kMissing = Outcome::kUnsupported;
  const std::vector<Case> cases{
      {R"("timeout":1)", kOk, ""},
      {R"("timeout":86400)", kOk, ""},
      {R"("timeout":null)", kOk, ""},
      {R"("timeout":0)", kBad, "timeout"},
      {R"("timeout":-1)", kBad, "timeout"},
      {R"("timeout":86401)", kBad, "timeout"},
      {R"("timeout":"60")", kBad, "timeout"},
      {R"("metadata":{"a":"b"})", kOk, ""},
      {R"("metadata":{"a":1})", kBad, "metadata"},
      {R"("metadata":[])", kBad, "metadata"},
      {R"("envVars":{"A":"b"})", kOk, ""},
      {R"("envVars":{"A=B":"b"})", kBad, "envVars"},
      {R"("envVars":{"":"b"})", kBad, "envVars"},
      {R"("envVars":{"A":"\u0000"})", kBad, "envVars"},
      {R"("allow_internet_access":true)", kOk, ""},
      {R"("allow_internet_access":false)", kOk, ""},
      {R"("allow_internet_access":"no")", kBad, "allow_internet_access"},
      {R"("secure":true)", kOk, ""},
      {R"("secure":false)", kMissing, "secure"},
      {R"("autoPause":true)", kOk, ""},
      {R"("autoPause":"yes")", kBad, "autoPause"},
      {R"("autoPauseMemory":true)", kOk, ""},
      {R"("autoPauseMemory":false)", kMissing, "autoPauseMemory"},
      {R"("autoResume":{"enabled":false})", kOk, ""},
      {R"("autoResume":null)", kOk, ""},
      {R"("autoResume":{"enabled":true})", kMissing, "autoResume.enabled"},
      {R"("autoResume":{"enabled":false,"x":1})", kBad, "autoResume"},
      {R"("autoResume":true)", kBad, "autoResume"},
      {R"("network":{})", kOk, ""},
      {R"("network":{"denyOut":["0.0.0.0/0"]})", kMissing, "network"},
      {R"("network":{"allowPublicTraffic":false})", kMissing, "network"},
      {R"("mcp":null)", kOk, ""},
      {R"("mcp":{"github":{"token":"t"}})", kMissing, "mcp"},
      {R"("mcp":{"duckduckgo":{}})", kMissing, "mcp"},
      {R"("iam":{})", kOk, ""},
      {R"("iam":{"tokens":{"a":{"audience":"b"}}})", kMissing, "iam"},
      {R"("volumeMounts":[])", kOk, ""},
      {R"("volumeMounts":[{"name":"v","path":"/v"}])", kMissing, "volumeMounts"},
      {R"("colour":"red")", kBad, "2.45 to 2.51"},
      {R"("colour":"red")", kBad, "\"colour\""},
  };
  for (const auto& one : cases) {
    const auto result = read_create(json(R"({"templateID":"base",)" + one.fields + "}"), 15);
    if (one.outcome == kOk) {
      EXPECT_TRUE(result) << one.fields << (result ? "" : result.error().message);
      continue;
    }
    ASSERT_FALSE(result) << one.fields;
    EXPECT_EQ(result.error().outcome, one.outcome) << one.fields;
    EXPECT_NE(result.error().message.find(one.says), std::string::npos) << result.error().message;
  }
  EXPECT_FALSE(read_create(json("{}"), 15));
  EXPECT_FALSE(read_create(json(R"({"templateID":""})"), 15));
  EXPECT_FALSE(read_create(json("[]"), 15));
}

TEST(E2b, ACreateCarriesItsFields) {
  const auto request = read_create(
      json(R"({"templateID":"base","timeout":60,"metadata":{"a":"b"},"envVars":{"C":"d"},)"
           R"("autoPause":true,"secure":true,"allow_internet_access":true})"),
      15);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->template_name, "base");
  EXPECT_EQ(request->timeout_s, 60U);
  EXPECT_EQ(request->metadata, (Pairs{{"a", "b"}}));
  EXPECT_EQ(request->envs, (Pairs{{"C", "d"}}));
  EXPECT_EQ(request->on_timeout, wire::TimeoutAction::kPause);
  const auto least = read_create(json(R"({"templateID":"base"})"), 300);
  ASSERT_TRUE(least);
  EXPECT_EQ(least->timeout_s, 300U);
  EXPECT_EQ(least->on_timeout, wire::TimeoutAction::kKill);
}

TEST(E2b, C108_TheOtherBodiesRefuseWhatTheyDoNotDo) {
  EXPECT_TRUE(read_pause(json("{}")));
  EXPECT_TRUE(read_pause(json(R"({"memory":true,"requireHealthyGuest":false})")));
  EXPECT_EQ(read_pause(json(R"({"memory":false})")).error().outcome, Outcome::kUnsupported);
  EXPECT_EQ(read_pause(json(R"({"requireHealthyGuest":true})")).error().outcome,
            Outcome::kUnsupported);
  EXPECT_EQ(read_pause(json(R"({"x":true})")).error().outcome, Outcome::kInvalidArgument);
  EXPECT_EQ(read_connect(json("{}"))->timeout_s, std::nullopt);
  EXPECT_EQ(read_connect(json(R"({"timeout":7200,"memory":true})"))->timeout_s, 7200U);
  EXPECT_EQ(read_connect(json(R"({"memory":false})")).error().outcome, Outcome::kUnsupported);
  EXPECT_EQ(read_connect(json(R"({"autoPause":true})")).error().outcome, Outcome::kInvalidArgument);
  EXPECT_EQ(read_resume(json("{}"))->timeout_s, 15U);
  EXPECT_EQ(read_resume(json(R"({"timeout":9,"autoPause":false})"))->auto_pause, false);
  EXPECT_EQ(*read_timeout(json(R"({"timeout":60})")), 60U);
  EXPECT_EQ(*read_refresh(json(R"({"duration":3600})")), 3600U);
  EXPECT_EQ(*read_refresh(json("{}")), 15U);
  EXPECT_FALSE(read_refresh(json(R"({"duration":3601})")));
  for (const auto* body : {"{}", R"({"timeout":0})", R"({"timeout":-1})", R"({"timeout":null})",
                           R"({"timeout":86401})", R"({"timeout":true})"}) {
    EXPECT_FALSE(read_timeout(json(body))) << body;
  }
  EXPECT_FALSE(read_nothing(json(R"({"x":1})")));
}

Result<wire::SandboxListRequest> list(std::string_view query_text) {
  Query query(*wire::parse_query(query_text));
  return read_list(query);
}

TEST(E2b, C110_EveryParameterOfAListReachesItsFilter) {
  const auto plain = list("");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->limit, 100U);
  EXPECT_TRUE(plain->newest_first);
  EXPECT_EQ(plain->states.size(), 7U);
  EXPECT_TRUE(plain->metadata.empty());
  EXPECT_EQ(plain->started_after, std::nullopt);
  const auto full = list(
      "state=paused&metadata=a%3Db&template=base&startedAfter=2025-03-01T12%3A00%3A00.5%2B01%3A00"
      "&order=asc&limit=7&nextToken=abc");
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->states, (std::vector{SandboxState::kPausing, SandboxState::kPaused}));
  EXPECT_EQ(full->metadata, (Pairs{{"a", "b"}}));
  EXPECT_EQ(full->template_name, "base");
  // Strictly later than this is what started at the given time or later.
  EXPECT_EQ(time_text(*full->started_after), "2025-03-01T11:00:00.499Z");
  EXPECT_FALSE(full->newest_first);
  EXPECT_EQ(full->limit, 7U);
  EXPECT_EQ(full->cursor, "abc");
  EXPECT_EQ(list("state=running%2Cpaused")->states.size(), 7U);
  EXPECT_EQ(list("state=running")->states.size(), 5U);
  for (const auto* query : {"state=killed", "state=running%2C", "state=%2C", "order=up", "limit=0",
                            "limit=101", "limit=-1", "limit=x", "startedAfter=yesterday",
                            "metadata=a%3Db%26broken", "page=2", "limit=1&limit=2"}) {
    const auto refused = list(query);
    ASSERT_FALSE(refused) << query;
    EXPECT_EQ(refused.error().outcome, Outcome::kInvalidArgument);
  }
}

TEST(E2b, TheOldListTakesTheRunningOnesAndTheirMetadata) {
  Query query(*wire::parse_query("metadata=a%3Db"));
  const auto request = read_running_list(query);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->states.size(), 5U);
  EXPECT_EQ(request->metadata, (Pairs{{"a", "b"}}));
  Query more(*wire::parse_query("state=paused"));
  EXPECT_FALSE(read_running_list(more));
}

TEST(E2b, EveryStateIsRunningPausedOrNotShown) {
  using enum SandboxState;
  for (const auto state : {kCreating, kRunning, kResuming, kMoving, kLost}) {
    EXPECT_EQ(state_text(state), "running");
  }
  for (const auto state : {kPausing, kPaused}) EXPECT_EQ(state_text(state), "paused");
  for (const auto state : {kKilling, kKilled, kFailed}) EXPECT_EQ(state_text(state), std::nullopt);
}

TEST(E2b, ObjectsHoldEveryRequiredKeyAlsoWhenTheRecordIsBare) {
  wire::SandboxInfo info;
  info.sandbox = *identity::SandboxId::parse("abc");
  info.state = SandboxState::kRunning;
  const auto expect_keys = [](const Json& json, std::initializer_list<const char*> keys) {
    for (const auto* key : keys) EXPECT_TRUE(json.object()->contains(key)) << key;
  };
  const auto made = sandbox(info, "");
  expect_keys(made, {"templateID", "sandboxID", "clientID", "envdVersion"});
  EXPECT_TRUE(made.object()->at("domain").is_null());
  EXPECT_FALSE(made.object()->contains("envdAccessToken"));
  const auto row = listed_sandbox(info);
  const auto detail = sandbox_detail(info, "space.test");
  for (const auto& json : {row, detail}) {
    expect_keys(json, {"templateID", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount",
                       "memoryMB", "diskSizeMB", "state", "envdVersion", "metadata"});
  }
  EXPECT_EQ(row.object()->at("startedAt"), Json("1970-01-01T00:00:00.000Z"));
  expect_keys(detail, {"lifecycle", "allowInternetAccess", "domain"});
  EXPECT_EQ(detail.object()->at("domain"), Json("space.test"));
  EXPECT_EQ(*detail.object()->at("lifecycle").object(),
            (Json::Object{{"onTimeout", "kill"}, {"autoResume", false}}));
}

TEST(E2b, TheAccessTokenIsInNoList) {
  wire::SandboxInfo info;
  info.sandbox = *identity::SandboxId::parse("abc");
  info.state = SandboxState::kRunning;
  info.access_token = "sat_00";
  EXPECT_EQ(sandbox(info, "").object()->at("envdAccessToken"), Json("sat_00"));
  EXPECT_EQ(sandbox_detail(info, "").object()->at("envdAccessToken"), Json("sat_00"));
  EXPECT_EQ(listed_sandbox(info).text().find("sat_"), std::string::npos);
}

TEST(RecordsJson, TimesAreReadInEveryFormTheSdksSend) {
  const auto read = [](std::string_view text) {
    const auto time = parse_time(text);
    return time ? time_text(*time) : "none";
  };
  EXPECT_EQ(read("2025-03-01T12:00:00.000Z"), "2025-03-01T12:00:00.000Z");          // toISOString
  EXPECT_EQ(read("2025-03-01T12:00:00.123456+02:00"), "2025-03-01T10:00:00.124Z");  // isoformat
  EXPECT_EQ(read("2025-03-01T00:30:00-01:30"), "2025-03-01T02:00:00.000Z");
  EXPECT_EQ(read("2024-02-29T23:59:59.9999Z"), "2024-03-01T00:00:00.000Z");
  EXPECT_EQ(read("0001-01-01T00:00:00.000000001Z"), "0001-01-01T00:00:00.001Z");
  for (const auto* text :
       {"", "2025", "2025-03-01", "2025-03-01T12:00:00", "2025-02-29T12:00:00Z",
        "2025-03-01T24:00:00Z", "2025-03-01T12:60:00Z", "2025-03-01T12:00:60Z",
        "2025-03-01T12:00:00.Z", "2025-03-01T12:00:00.0000000000Z", "2025-03-01 12:00:00Z",
        "2025-03-01T12:00:00Z ", "2025-03-01T12:00:00+2:00", "2025-03-01T12:00:00+24:00",
        "2025-03-01T12:00:00+02:60", "+025-03-01T12:00:00Z", "2025-03-01T12:00:00 02:00"}) {
    EXPECT_EQ(read(text), "none") << text;
  }
}

}  // namespace
}  // namespace space::node_api::e2b
