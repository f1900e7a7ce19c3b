#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>
#include <cstring>
#include <deque>

#include "base/text.h"
#include "services/cli/commands.h"
#include "services/cli/text.h"

namespace space::cli {
namespace {

class TestTimer final : public Timer {
 public:
  MonoTime now() const override { return MonoTime{}; }
  std::unique_ptr<Alarm> at(MonoTime, std::move_only_function<void()> action) override {
    if (fires) boost::asio::post(loop, [action = std::move(action)]() mutable { action(); });
    return std::make_unique<Alarm>();
  }
  boost::asio::any_io_executor executor() override { return loop.get_executor(); }
  boost::asio::io_context loop;
  bool fires = false;  // each alarm in the next turn, whatever its time
};

struct Reply {
  unsigned status = 200;
  std::string body;
  bool breaks_off = false;
  bool served = true;
};

class TestResponse final : public HttpResponse {
 public:
  TestResponse(Reply reply, std::size_t piece) : reply_(std::move(reply)), piece_(piece) {
    head_.status = reply_.status;
    if (reply_.served) head_.headers.push_back({"x-space-execution", "abc.8@w1"});
  }
  const HttpResponseHead& head() const override { return head_; }
  Task<IoResult<std::size_t>> read(std::span<std::byte> buffer) override {
    const std::size_t count = std::min({buffer.size(), reply_.body.size() - at_, piece_});
    if (count == 0 && reply_.breaks_off) co_return io_error(std::errc::connection_reset);
    std::memcpy(buffer.data(), reply_.body.data() + at_, count);
    at_ += count;
    co_return count;
  }

 private:
  Reply reply_;
  std::size_t piece_;
  std::size_t at_ = 0;
  HttpResponseHead head_;
};

class TestHttp final : public HttpClient {
 public:
  Task<IoResult<std::unique_ptr<HttpResponse>>> send(HttpClientRequest request,
                                                     HttpBodySource* body) override {
    std::string sent;
    std::array<std::byte, 100> buffer{};
    while (body != nullptr) {
      const auto count = co_await body->read(buffer);
      if (!count) co_return std::unexpected(count.error());
      if (*count == 0) break;
      sent += as_text(ByteView(buffer).first(*count));
    }
    requests.push_back(request.method + " " + request.target + " " + sent);
    if (replies.empty()) co_return io_error(failure);
    Reply reply = replies.front();
    replies.pop_front();
    co_return std::make_unique<TestResponse>(std::move(reply), piece);
  }
  std::deque<Reply> replies;
  std::vector<std::string> requests;
  std::errc failure = std::errc::connection_refused;
  std::size_t piece = 1'000'000;
};

class TestTerminal final : public Terminal {
 public:
  bool out(std::string_view bytes) override {
    if (closed) return false;
    stdout_text += bytes;
    return true;
  }
  void err(std::string_view bytes) override { stderr_text += bytes; }
  bool out_is_terminal() const override { return false; }
  Task<IoResult<std::size_t>> in(std::span<std::byte> buffer) override {
    const std::size_t count = std::min(buffer.size(), stdin_text.size());
    std::memcpy(buffer.data(), stdin_text.data(), count);
    stdin_text.erase(0, count);
    co_return count;
  }
  Task<int> interrupted() override {
    if (!signals.empty()) {
      const int signal = signals.front();
      signals.pop_front();
      co_return signal;
    }
    co_return 0;
  }
  void leave(int exit_code) override { left = exit_code; }
  bool closed = false;
  std::string stdout_text, stderr_text, stdin_text;
  std::deque<int> signals;
  std::optional<int> left;
};

class TestFiles final : public LocalFiles {
 public:
  IoResult<std::unique_ptr<HttpBodySource>> open(const std::string& path) override {
    if (folders.contains(path)) return io_error(std::errc::is_a_directory);
    if (!files.contains(path)) return io_error(std::errc::no_such_file_or_directory);
    return std::make_unique<BytesSource>(files[path]);
  }
  IoResult<std::unique_ptr<FileSink>> create(const std::string& path, const std::string&) override {
    class Sink final : public FileSink {
     public:
      Sink(TestFiles& all, std::string name) : all_(all), name_(std::move(name)) {}
      IoResult<void> write(ByteView bytes) override {
        content_ += as_text(bytes);
        return {};
      }
      IoResult<void> commit() override {
        all_.files[name_] = content_;
        return {};
      }

     private:
      TestFiles& all_;
      std::string name_, content_;
    };
    return std::make_unique<Sink>(*this, path);
  }
  IoResult<std::vector<LocalEntry>> walk(const std::string& path) override {
    if (!folders.contains(path)) return io_error(std::errc::not_a_directory);
    return folders[path];
  }
  // Everything that is made below is noted in `files` with the way it was made.
  IoResult<std::unique_ptr<FolderSink>> create_folder(const std::string& path,
                                                      const std::string&) override {
    class Folder final : public FolderSink {
     public:
      Folder(TestFiles& all, std::string root) : all_(all), root_(std::move(root)) {}
      IoResult<void> make_folder(const std::string& at) override {
        all_.files[root_ + "/" + at] = "(folder)";
        return {};
      }
      IoResult<std::unique_ptr<FileSink>> create(const std::string& at, std::uint32_t) override {
        return all_.create(root_ + "/" + at, "");
      }
      IoResult<void> make_symlink(const std::string& at, const std::string& target) override {
        all_.files[root_ + "/" + at] = "-> " + target;
        return {};
      }

     private:
      TestFiles& all_;
      std::string root_;
    };
    return std::make_unique<Folder>(*this, path);
  }
  std::map<std::string, std::string> files;
  std::map<std::string, std::vector<LocalEntry>> folders;
};

class CliTest : public testing::Test {
 protected:
  int run(Task<int> command) {
    int code = -1;
    boost::asio::co_spawn(timer_.loop, std::move(command),
                          [&](std::exception_ptr error, int result) {
                            EXPECT_FALSE(error);
                            code = result;
                          });
    timer_.loop.run();
    timer_.loop.restart();
    return code;
  }
  int run_exec(std::string events, bool breaks_off = false) {
    http_.replies.push_front({.status = 200, .body = std::move(events), .breaks_off = breaks_off});
    return run(exec(context_, ExecOptions{.sandbox = "abc",
                                          .command = {"prog", "-x"},
                                          .envs = {},
                                          .cwd = {},
                                          .user = {},
                                          .timeout_ms = {},
                                          .forward_stdin = forward_stdin_}));
  }
  boost::json::value document() {
    boost::system::error_code error;
    auto value = boost::json::parse(terminal_.stdout_text, error);
    EXPECT_FALSE(error) << terminal_.stdout_text;
    return value;
  }

  TestTimer timer_;
  TestHttp http_;
  TestTerminal terminal_;
  TestFiles files_;
  Context context_{.http = http_,
                   .terminal = terminal_,
                   .files = files_,
                   .timer = timer_,
                   .endpoint = {.url = "http://127.0.0.1:3000", .api_key = "e2b_00"},
                   .json = false};
  bool forward_stdin_ = false;
};

const std::string kStarted = "{\"started\":{\"pid\":7}}\n";

TEST_F(CliTest, C103_ExecPassesOnTheCodeOfTheRemoteCommand) {
  EXPECT_EQ(run_exec(kStarted + "{\"exited\":{\"exit_code\":7,\"signal\":0}}\n"), 7);
  EXPECT_EQ(run_exec(kStarted + "{\"exited\":{\"exit_code\":0,\"signal\":0}}\n"), 0);
  EXPECT_EQ(run_exec(kStarted + "{\"exited\":{\"exit_code\":137,\"signal\":9}}\n"), 137);
  EXPECT_EQ(http_.requests[0],
            "POST /space/v1/sandboxes/abc/processes {\"command\":\"prog\",\"arguments\":[\"-x\"]}");
}

TEST_F(CliTest, C103_OurOwnFailuresHaveThreeCodesThatNoCommandHas) {
  EXPECT_EQ(run_exec(kStarted, true), kOutcomeUnknown);
  EXPECT_EQ(run_exec(kStarted), kOutcomeUnknown);
  EXPECT_EQ(run_exec(kStarted + "{\"error\":{\"code\":\"unavailable\",\"message\":\"m\"}}\n"),
            kOutcomeUnknown);
  EXPECT_EQ(run_exec("{\"error\":{\"code\":\"invalid\",\"message\":\"m\"}}\n"), kFailed);
  http_.replies.clear();
  EXPECT_EQ(run(info(context_, "abc")), kFailed);  // nothing listens
  http_.failure = std::errc::timed_out;
  EXPECT_EQ(run(kill(context_, {"abc"})), kOutcomeUnknown);
  EXPECT_EQ(run(info(context_, "abc")), kFailed);
  http_.replies.push_back(
      {.status = 404, .body = "{\"code\":\"not_found\",\"message\":\"m\"}", .served = false});
  EXPECT_EQ(run(info(context_, "abc")), kNoSandbox);
  http_.replies.push_back({.status = 404, .body = "{\"code\":\"not_found\",\"message\":\"m\"}"});
  EXPECT_EQ(run(cat(context_, "abc", "/no/such/file", "")), kFailed);
  http_.replies.push_back({.status = 500, .body = "{\"code\":\"interrupted\"}"});
  EXPECT_EQ(run(kill(context_, {"abc"})), kOutcomeUnknown);
  http_.replies.push_back({.status = 502, .body = "<html>"});
  EXPECT_EQ(run(info(context_, "abc")), kFailed);
}

TEST_F(CliTest, ExecKeepsStdoutAndStderrApartAtEverySplit) {
  for (const std::size_t piece : {1U, 2U, 3U, 7U, 100'000U}) {
    http_.piece = piece;
    terminal_.stdout_text.clear();
    terminal_.stderr_text.clear();
    EXPECT_EQ(run_exec(kStarted + "{\"stdout\":\"" + to_base64(as_bytes("out\xFF\n")) +
                       "\"}\n{\"stderr\":\"" + to_base64(as_bytes("err")) +
                       "\"}\n{\"exited\":{\"exit_code\":0,\"signal\":0}}\n"),
              0);
    EXPECT_EQ(terminal_.stdout_text, "out\xFF\n");
    EXPECT_EQ(terminal_.stderr_text, "err");
  }
}

TEST_F(CliTest, ExecForwardsStdinAndItsEnd) {
  forward_stdin_ = true;
  terminal_.stdin_text = "hello";
  http_.replies.push_back({.status = 204, .body = ""});
  http_.replies.push_back({.status = 204, .body = ""});
  http_.piece = 1;
  EXPECT_EQ(run_exec(kStarted + "{\"exited\":{\"exit_code\":0,\"signal\":0}}\n"), 0);
  ASSERT_EQ(http_.requests.size(), 3U);
  EXPECT_EQ(http_.requests[1], "POST /space/v1/sandboxes/abc/processes/7/stdin hello");
  EXPECT_EQ(http_.requests[2], "POST /space/v1/sandboxes/abc/processes/7/stdin?close=true ");
}

TEST_F(CliTest, C103_CtrlCReachesTheRemoteProcessFirstAndTwiceLeaves) {
  terminal_.signals = {2};
  http_.replies.push_back({.status = 204, .body = ""});
  http_.piece = 1;
  EXPECT_EQ(run_exec(kStarted + "{\"exited\":{\"exit_code\":130,\"signal\":2}}\n"), 130);
  ASSERT_EQ(http_.requests.size(), 2U);
  EXPECT_EQ(http_.requests[1], "POST /space/v1/sandboxes/abc/processes/7/signal {\"signal\":2}");
  EXPECT_FALSE(terminal_.left);
  terminal_.signals = {2, 2};
  run_exec(kStarted, true);
  EXPECT_EQ(terminal_.left, kOutcomeUnknown);
}

TEST_F(CliTest, C104_WithJsonStdoutIsOneDocumentOnErrorsToo) {
  context_.json = true;
  EXPECT_EQ(run(info(context_, "abc")), kFailed);
  EXPECT_EQ(text_of(member(document(), "error"), "code"), "unreachable");
  EXPECT_FALSE(terminal_.stderr_text.empty());

  terminal_.stdout_text.clear();
  http_.replies.push_back({.status = 200, .body = "\x01\xFF binary"});
  EXPECT_EQ(run(cat(context_, "abc", "/f", "")), 0);
  EXPECT_EQ(text_of(document(), "base64"), to_base64(as_bytes("\x01\xFF binary")));
  EXPECT_EQ(text_of(document(), "execution"), "abc.8@w1");
}

TEST_F(CliTest, CopyGoesBothWaysAndLeavesNothingWhenCutOff) {
  files_.files["./in"] = "content";
  http_.replies.push_back({.status = 200, .body = "{}"});
  EXPECT_EQ(run(copy(context_, "./in", "abc:/tmp/", "")), 0);
  EXPECT_EQ(http_.requests[0], "PUT /space/v1/sandboxes/abc/files?path=/tmp/in content");
  http_.replies.push_back({.status = 200, .body = "back"});
  EXPECT_EQ(run(copy(context_, "abc:/a b", "out", "")), 0);
  EXPECT_EQ(http_.requests[1], "GET /space/v1/sandboxes/abc/files?path=/a%20b ");
  EXPECT_EQ(files_.files["out"], "back");
  http_.replies.push_back({.status = 200, .body = "half", .breaks_off = true});
  EXPECT_EQ(run(copy(context_, "abc:/x", "cut", "")), kFailed);
  EXPECT_FALSE(files_.files.contains("cut"));
  EXPECT_EQ(run(copy(context_, "a", "b", "")), kUsage);
  EXPECT_EQ(run(copy(context_, "abc:a", "abc:b", "")), kUsage);
}

TEST_F(CliTest, C110_LsShowsEveryPage) {
  http_.replies = {
      {.status = 200, .body = "{\"sandboxes\":[{\"id\":\"abc\"}],\"next_cursor\":\"12ab\"}"},
      {.status = 200, .body = "{\"sandboxes\":[{\"id\":\"def\"}]}"}};
  EXPECT_EQ(run(list(context_)), kOk);
  EXPECT_NE(terminal_.stdout_text.find("abc"), std::string::npos);
  EXPECT_NE(terminal_.stdout_text.find("def"), std::string::npos);
  EXPECT_EQ(http_.requests.back(), "GET /space/v1/sandboxes?cursor=12ab ");
}

TEST_F(CliTest, AReaderThatLeftIsAFailureNotACrash) {
  terminal_.closed = true;
  http_.replies.push_back({.status = 200, .body = "{\"sandboxes\":[]}"});
  EXPECT_EQ(run(list(context_)), kFailed);
}

TEST(CliText, PlacesAndTablesAreSafe) {
  EXPECT_EQ(parse_place("abc:/x:y").path, "/x:y");
  EXPECT_EQ(parse_place("./a:b").sandbox, "");
  EXPECT_EQ(parse_place("/a:b").sandbox, "");
  EXPECT_EQ(base_name("/a/b//"), "b");
  EXPECT_EQ(columns({{"a", "b"}, {"long", "c"}}), "a     b\nlong  c\n");
  EXPECT_EQ(printable("a\x1b[31m"), "a?[31m");
  EXPECT_EQ(shown(boost::json::value{{"k", "v\n"}}, "k"), "v?");
}

TEST_F(CliTest, CpTakesAFolderWithAllThatIsInItAndNamesWhatItCannotTake) {
  files_.folders["proj"] = {{"a", LocalType::kFolder, 0755},
                            {"a/run.sh", LocalType::kFile, 0755},
                            {"a/link", LocalType::kSymlink, 0777}};
  files_.files["proj/a/run.sh"] = "echo";
  http_.replies = {{.status = 404, .body = "{\"code\":\"not_found\",\"message\":\"no\"}"},
                   {.status = 201, .body = "{}"},
                   {.status = 409, .body = "{\"code\":\"already_exists\",\"message\":\"is\"}"},
                   {.status = 201, .body = "{}"}};
  EXPECT_EQ(run(copy(context_, "proj", "abc:/w", "")), kFailed);  // the symlink was left out
  EXPECT_EQ(http_.requests,
            (std::vector<std::string>{
                "GET /space/v1/sandboxes/abc/files/stat?path=/w ",
                "POST /space/v1/sandboxes/abc/directories?path=/w ",
                "POST /space/v1/sandboxes/abc/directories?path=/w/a ",
                "PUT /space/v1/sandboxes/abc/files?path=/w/a/run.sh&mode=755 echo"}));
  EXPECT_NE(terminal_.stderr_text.find("a/link"), std::string::npos);
  EXPECT_NE(terminal_.stderr_text.find("1 files, 2 folders"), std::string::npos);
}

TEST_F(CliTest, CpGivesAFolderOfASandboxNoWayOutOfTheLocalOne) {
  const auto listing = [](const std::string& entries) {
    return "{\"truncated\":false,\"entries\":[" + entries + "]}";
  };
  http_.replies = {
      {.status = 400, .body = "{\"code\":\"is_directory\",\"message\":\"m\"}"},
      {.status = 200,
       .body = listing("{\"name\":\"link\",\"type\":\"symlink\",\"symlink_target\":\"/etc\"},"
                       "{\"name\":\"../../evil\",\"type\":\"file\",\"mode\":420},"
                       "{\"name\":\"..\",\"type\":\"directory\"},"
                       "{\"name\":\"f\",\"type\":\"file\",\"mode\":420}")},
      {.status = 200, .body = "content"}};
  EXPECT_EQ(run(copy(context_, "abc:/w", "out", "")), kFailed);
  EXPECT_EQ(files_.files,
            (std::map<std::string, std::string>{{"out/f", "content"}, {"out/link", "-> /etc"}}));
  EXPECT_EQ(http_.requests.back(), "GET /space/v1/sandboxes/abc/files?path=/w/f ");
}

TEST_F(CliTest, EnvPrintsWhatTheOfficialSdksRead) {
  EXPECT_EQ(run(env(context_)), kOk);
  EXPECT_EQ(terminal_.stdout_text,
            "export SPACE_URL='http://127.0.0.1:3000'\nexport SPACE_API_KEY='e2b_00'\n"
            "export E2B_API_KEY='e2b_00'\nexport E2B_API_URL='http://127.0.0.1:3000'\n"
            "export E2B_SANDBOX_URL='http://127.0.0.1:3000'\n");
}

TEST_F(CliTest, TopShowsEachSampleAndWhatCameSinceTheOneBefore) {
  const auto status = [](int repairs) {
    return "{\"workers\":[{\"id\":\"w1\",\"reachable\":true,\"sandboxes\":1}],\"running\":1,"
           "\"paused\":0,\"node_api\":{\"admitted\":10,\"repairs\":" +
           std::to_string(repairs) + ",\"refusals\":{\"stale\":" + std::to_string(repairs) + "}}}";
  };
  const std::string list = "{\"sandboxes\":[{\"id\":\"abc\",\"state\":\"running\"}]}";
  http_.replies = {{.status = 200, .body = status(1)},
                   {.status = 200, .body = list},
                   {.status = 200, .body = status(3)},
                   {.status = 200, .body = list}};
  timer_.fires = true;
  EXPECT_EQ(run(top(context_, TopOptions{.interval = std::chrono::milliseconds(1), .samples = 2})),
            kOk);
  EXPECT_NE(terminal_.stdout_text.find("repairs 1   "), std::string::npos);
  EXPECT_NE(terminal_.stdout_text.find("repairs 3 (+2)"), std::string::npos);
  EXPECT_NE(terminal_.stdout_text.find("stale 3 (+2)"), std::string::npos);
}

}  // namespace
}  // namespace space::cli
