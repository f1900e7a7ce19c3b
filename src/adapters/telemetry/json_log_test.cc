#include "adapters/telemetry/json_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace space::telemetry {
namespace {

TEST(JsonLog, ValuesCannotEndALineOrLeaveTheirString) {
  EXPECT_EQ(json_string("a\"b\\c\nd\x1b[31m\x7f"), R"("a\"b\\c\nd\u001b[31m\u007f")");
  EXPECT_EQ(json_string("caf\xC3\xA9 \xF0\x9F\x98\x80"), "\"caf\xC3\xA9 \xF0\x9F\x98\x80\"");
}

TEST(JsonLog, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(json_string("x\xFFy"), "\"x" + bad + "y\"");
  EXPECT_EQ(json_string("\xC3"), "\"" + bad + "\"");                      // cut sequence
  EXPECT_EQ(json_string("\xC0\x80"), "\"" + bad + bad + "\"");            // overlong NUL
  EXPECT_EQ(json_string("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");  // surrogate
}

TEST(JsonLog, TimesAreRfc3339WithMilliseconds) {
  EXPECT_EQ(rfc3339(WallTime(std::chrono::milliseconds(1'767'323'045'678))),
            "2026-01-02T03:04:05.678Z");
  EXPECT_EQ(rfc3339(WallTime(std::chrono::milliseconds(0))), "1970-01-01T00:00:00.000Z");
}

TEST(JsonLog, AnEventIsOneLineWithItsFieldsInOrder) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  JsonLog log("tester", Level::kInfo, ends[1]);
  log.event(Level::kDebug, "not.shown", {});
  log.event(Level::kWarning, "install.done", {{"sandbox", "abc"}, {"generation", 8}});
  ::close(ends[1]);
  std::array<char, 4096> buffer{};
  const auto count = ::read(ends[0], buffer.data(), buffer.size());
  ::close(ends[0]);
  ASSERT_GT(count, 0);
  const std::string line(buffer.data(), static_cast<std::size_t>(count));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_NE(line.find(R"("level":"warning","event":"install.done","part":"tester",)"
                      R"("sandbox":"abc","generation":"8"})"),
            std::string::npos)
      << line;
}

}  // namespace
}  // namespace space::telemetry
