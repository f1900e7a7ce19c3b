#include "adapters/records/file_record_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "adapters/asio/loop.h"
#include "core/identity/testing/samples.h"

namespace space::records {
namespace {

class FileRecordStoreTest : public ::testing::Test {
 protected:
  FileRecordStoreTest() {
    char name[] = "/tmp/space-records-XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ / "records";
  }
  ~FileRecordStoreTest() override { std::filesystem::remove_all(folder_); }

  static StoredRecord sample() {
    std::array<std::byte, 32> secret{};
    secret.fill(std::byte{0x5a});
    return StoredRecord{identity::testing::sample_record(),
                        GuestSecret(std::span<const std::byte, 32>(secret)), "boot"};
  }
  static Task<int> take(Task<IoResult<void>> task, IoResult<void>& result) {
    result = co_await std::move(task);
    co_return 0;
  }
  static Task<int> take_contents(RecordStore& store, IoResult<RecordStore::Contents>& result) {
    result = co_await store.load_all();
    co_return 0;
  }
  bool done(Task<IoResult<void>> task) {
    IoResult<void> result;
    loop_.run(take(std::move(task), result), {});
    return result.has_value();
  }
  IoResult<RecordStore::Contents> load() {
    FileRecordStore store(path_);
    IoResult<RecordStore::Contents> result;
    loop_.run(take_contents(store, result), {});
    return result;
  }

  asio::Loop loop_;  // outlives the stores: their thread still touches it after a task's end
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(FileRecordStoreTest, RCV6_ARecordIsThereAfterARestartWithItsSecret) {
  ASSERT_TRUE(load());
  FileRecordStore store(path_);
  ASSERT_TRUE(done(store.put(sample())));
  const auto contents = load();
  ASSERT_TRUE(contents);
  ASSERT_EQ(contents->records.size(), 1U);
  EXPECT_EQ(contents->records[0].record, sample().record);
  EXPECT_TRUE(equal(contents->records[0].secret.reveal(), sample().secret.reveal()));
  EXPECT_EQ(contents->records[0].boot_id, "boot");
}

TEST_F(FileRecordStoreTest, P13_TheFloorOutlivesTheRecord) {
  ASSERT_TRUE(load());
  FileRecordStore store(path_);
  ASSERT_TRUE(done(store.put(sample())));
  const auto id = sample().record.route.sandbox;
  ASSERT_TRUE(done(store.erase(id, {7})));
  const auto contents = load();
  ASSERT_TRUE(contents);
  EXPECT_TRUE(contents->records.empty());
  EXPECT_EQ(contents->floors.at(id).value, 7U);
}

TEST_F(FileRecordStoreTest, P6_TheBundleVersionIsKept) {
  ASSERT_TRUE(load());
  FileRecordStore store(path_);
  ASSERT_TRUE(done(store.put_bundle_version({9})));
  EXPECT_EQ(load()->bundle.value, 9U);
}

TEST_F(FileRecordStoreTest, FilesCanBeReadByTheOwnerAlone) {
  ASSERT_TRUE(load());
  FileRecordStore store(path_);
  const auto mask = ::umask(0);
  EXPECT_TRUE(done(store.put(sample())));
  ::umask(mask);
  struct stat info{};
  ASSERT_EQ(::stat((path_ / sample().record.route.sandbox.text()).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST_F(FileRecordStoreTest, DamagedContentIsRefusedNotGuessed) {
  ASSERT_TRUE(load());
  FileRecordStore store(path_);
  ASSERT_TRUE(done(store.put(sample())));
  const auto file = path_ / sample().record.route.sandbox.text();
  const auto size = std::filesystem::file_size(file);
  {
    std::fstream edit(file, std::ios::in | std::ios::out | std::ios::binary);
    edit.seekp(static_cast<std::streamoff>(size / 2));
    edit.put('!');
  }
  const auto contents = load();
  ASSERT_FALSE(contents);
  EXPECT_EQ(contents.error(), std::errc::bad_message);
}

TEST_F(FileRecordStoreTest, WhatACrashLeftHalfWrittenIsIgnored) {
  ASSERT_TRUE(load());
  FileRecordStore store(path_);
  ASSERT_TRUE(done(store.put(sample())));
  std::ofstream(path_ / (sample().record.route.sandbox.text() + ".new")) << "half";
  const auto contents = load();
  ASSERT_TRUE(contents);
  EXPECT_EQ(contents->records.size(), 1U);
}

}  // namespace
}  // namespace space::records
