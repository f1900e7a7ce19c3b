#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "core/policy/operations.h"

namespace space::policy {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string access_text(identity::AccessSet access) {
  constexpr std::pair<identity::Access, const char*> kNames[] = {
      {identity::Access::kFilesRead, "files-read"},
      {identity::Access::kFilesWrite, "files-write"},
      {identity::Access::kProcessRead, "process-read"},
      {identity::Access::kProcessWrite, "process-write"},
      {identity::Access::kWatch, "watch"},
      {identity::Access::kServicePort, "service-port"},
  };
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if (!access.has(bit)) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text.empty() ? "-" : text;
}

std::string_view kind_text(Kind kind) {
  switch (kind) {
    case Kind::kUnary:
      return "unary";
    case Kind::kUpload:
      return "upload";
    case Kind::kDownload:
      return "download";
    case Kind::kStream:
      return "stream";
  }
  std::unreachable();
}

std::string_view replay_text(Replay replay) {
  switch (replay) {
    case Replay::kNever:
      return "never";
    case Replay::kBeforeFirstByte:
      return "before the first byte";
    case Replay::kIdempotent:
      return "any time";
  }
  std::unreachable();
}

TEST(Docs, RC5_ProtocolShowsTheOperationTableOfTheCode) {
  std::ostringstream table;
  table << "| number | operation | kind | access | repairable | sent again after a transport "
           "failure |\n"
        << "|---|---|---|---|---|---|\n";
  for (const auto& op : operations()) {
    table << "| " << static_cast<unsigned>(op.operation) << " | " << op.name << " | "
          << kind_text(op.kind) << " | " << access_text(op.access) << " | "
          << (op.repairable ? "yes" : "no") << " | " << replay_text(op.replay) << " |\n";
  }
  const auto page = read_file(SPACE_SOURCE_DIR "/docs/protocol.md");
  const std::string begin = "<!-- operations:begin -->\n";
  const auto from = page.find(begin);
  const auto to = page.find("<!-- operations:end -->");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), table.str());
}

}  // namespace
}  // namespace space::policy
