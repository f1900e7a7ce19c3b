#include "adapters/sqlite/control_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

#include "ports/testing/control_store_conformance.h"

namespace space::testing {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "space-store-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path file() const { return path_ / "space.db"; }

 private:
  std::filesystem::path path_;
};

struct SqliteFactory {
  std::unique_ptr<ControlStore> open() {
    auto store = sqlite::SqliteControlStore::open(folder.file());
    EXPECT_TRUE(store) << store.error();
    return *std::move(store);
  }
  Folder folder;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Sqlite, StoreConformance, SqliteFactory);

identity::TeamId team() { return *identity::TeamId::parse("team-a"); }

TEST(SqliteControlStore, IsPrivateAndKeepsWhatWasCommitted) {
  Folder folder;
  const ApiKeyRow row{id_of<CredentialHash>(1), team(), at(0), std::nullopt};
  {
    const auto store = sqlite::SqliteControlStore::open(folder.file());
    ASSERT_TRUE(store) << store.error();
    ASSERT_TRUE(complete((*store)->add_api_key(row)));
    for (const auto& entry : std::filesystem::directory_iterator(folder.file().parent_path())) {
      struct stat status = {};
      ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777U, 0600U) << entry.path();
    }
    // A second process, while the first has it open: `--create-key`.
    const auto other = sqlite::SqliteControlStore::open(folder.file());
    ASSERT_TRUE(other) << other.error();
    ASSERT_TRUE(
        complete((*other)->add_api_key({id_of<CredentialHash>(2), team(), at(0), std::nullopt})));
    EXPECT_EQ(complete((*store)->list_api_keys())->size(), 2U);
  }
  const auto store = sqlite::SqliteControlStore::open(folder.file());
  ASSERT_TRUE(store) << store.error();
  EXPECT_EQ(complete((*store)->list_api_keys())->front(), row);
}

TEST(SqliteControlStore, P34_UsesWalAndFullSynchronisation) {
  Folder folder;
  const auto store = sqlite::SqliteControlStore::open(folder.file());
  ASSERT_TRUE(store);
  SQLite::Database look(folder.file().string());
  EXPECT_EQ(look.execAndGet("PRAGMA journal_mode").getString(), "wal");
}

TEST(SqliteControlStore, RefusesAnotherSchemaAForeignDatabaseAndGarbage) {
  Folder folder;
  ASSERT_TRUE(sqlite::SqliteControlStore::open(folder.file()));
  for (const auto& [version, word] : {std::pair{"999", "newer"}, std::pair{"1", "begin anew"}}) {
    SQLite::Database database(folder.file().string(), SQLite::OPEN_READWRITE);
    database.exec(std::string("PRAGMA user_version = ") + version);
    const auto other = sqlite::SqliteControlStore::open(folder.file());
    ASSERT_FALSE(other);
    EXPECT_NE(other.error().find(word), std::string::npos) << other.error();
  }

  Folder foreign;
  {
    SQLite::Database database(foreign.file().string(),
                              SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    database.exec("CREATE TABLE somebody_elses(x)");
  }
  EXPECT_FALSE(sqlite::SqliteControlStore::open(foreign.file()));

  Folder garbage;
  std::ofstream(garbage.file()) << std::string(8192, 'x');
  EXPECT_FALSE(sqlite::SqliteControlStore::open(garbage.file()));

  EXPECT_FALSE(sqlite::SqliteControlStore::open("/nonexistent/space.db"));
}

TEST(SqliteControlStore, ACorruptRowIsAnErrorNotACrash) {
  Folder folder;
  const auto store = sqlite::SqliteControlStore::open(folder.file());
  ASSERT_TRUE(store);
  ASSERT_TRUE(
      complete((*store)->add_api_key({id_of<CredentialHash>(1), team(), at(0), std::nullopt})));
  fleet::Sandbox sandbox;
  sandbox.id = *identity::SandboxId::parse("aaa");
  sandbox.team = team();
  ASSERT_TRUE(complete((*store)->insert_sandbox(sandbox)));
  {
    SQLite::Database database(folder.file().string(), SQLite::OPEN_READWRITE);
    database.exec("UPDATE sandboxes SET body = x'0102'");
  }
  EXPECT_EQ(complete((*store)->load(sandbox.id)).error().error, StoreError::kFailed);
  fleet::Filter filter;
  filter.team = team();
  EXPECT_EQ(complete((*store)->list(filter, std::nullopt, 10)).error().error, StoreError::kFailed);
}

TEST(SqliteControlStore, AStatementThatFailsRollsBackTheWholeTransaction) {
  Folder folder;
  const auto store = sqlite::SqliteControlStore::open(folder.file());
  ASSERT_TRUE(store);
  fleet::Sandbox sandbox;
  sandbox.id = *identity::SandboxId::parse("aaa");
  sandbox.team = team();  // which does not exist
  EXPECT_EQ(complete((*store)->insert_sandbox(sandbox)).error().error, StoreError::kFailed);
  EXPECT_EQ(complete((*store)->load(sandbox.id)).error().error, StoreError::kNotFound);
}

}  // namespace
}  // namespace space::testing
