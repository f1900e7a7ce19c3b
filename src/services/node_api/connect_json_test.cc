#include "services/node_api/connect_json.h"

#include <gtest/gtest.h>

namespace space::node_api {
namespace {

TEST(ConnectJson, C065_TheWayAProcessEndedIsSaidInGosWords) {
  EXPECT_EQ(status_text({0, 0, false, false, false}), "exit status 0");
  EXPECT_EQ(status_text({137, 0, false, false, false}), "exit status 137");
  EXPECT_EQ(status_text({137, 9, false, false, false}), "signal: killed");
  EXPECT_EQ(status_text({143, 15, false, false, false}), "signal: terminated");
  EXPECT_EQ(status_text({139, 11, true, false, false}), "signal: segmentation fault (core dumped)");
  EXPECT_EQ(status_text({163, 35, false, false, false}), "signal: signal 35");
  EXPECT_EQ(process_event({wire::ProcessExited{137, 9, false, true, false}}).text(),
            R"x({"event":{"end":{"error":"signal: killed (out of memory)","exitCode":137,)x"
            R"("exited":false,"status":"signal: killed"}}})");
  EXPECT_EQ(process_event({wire::ProcessExited{}}).text(),
            R"({"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}})");
}

TEST(ConnectJson, PermissionsLookAsLsShowsThem) {
  EXPECT_EQ(permission_text(wire::FileType::kFile, 0644), "-rw-r--r--");
  EXPECT_EQ(permission_text(wire::FileType::kDirectory, 0755), "drwxr-xr-x");
  EXPECT_EQ(permission_text(wire::FileType::kSymlink, 0777), "Lrwxrwxrwx");
  EXPECT_EQ(permission_text(wire::FileType::kDirectory, 01777), "dtrwxrwxrwx");
  EXPECT_EQ(permission_text(wire::FileType::kFile, 06750), "ugrwxr-x---");
  EXPECT_EQ(permission_text(wire::FileType::kOther, 0), "?---------");
}

TEST(ConnectJson, ASymlinkTellsItsTarget) {
  wire::FileEntry entry;
  entry.type = wire::FileType::kSymlink;
  entry.symlink_target = "/to";
  const auto text = entry_info(entry).text();
  EXPECT_NE(text.find(R"("symlinkTarget":"/to")"), std::string::npos);
  EXPECT_NE(text.find(R"("type":"FILE_TYPE_SYMLINK")"), std::string::npos);
}

}  // namespace
}  // namespace space::node_api
