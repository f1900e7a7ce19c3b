#include "adapters/templates/template_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

namespace space::templates {
namespace {
namespace fs = std::filesystem;

TemplateRef ref_of(const std::string& name, char digit) { return {name, std::string(64, digit)}; }

TemplateInfo info_of(const TemplateRef& ref) { return {ref, "bookworm", "amd64", {"bash"}, {}, 0}; }

TemplateResult<void> fill(const fs::path& work) {
  fs::create_directory(work / "root");
  std::ofstream(work / "root/file") << "content\n";
  return {};
}

const TemplateStore::Users kNobody = [](const TemplateRef&) { return std::vector<std::string>{}; };

class TemplateStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/space-templates-XXXXXX";
    base_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(base_); }

  fs::path folder() const { return base_ / "templates"; }
  TemplateStore store() const { return TemplateStore(folder()); }
  TemplateResult<bool> build(const TemplateRef& ref) const {
    return store().build(info_of(ref), fill, [] {});
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) {
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }
  // Times of the file system are coarse: `ref` is older than whatever comes next.
  void make_old(const TemplateRef& ref) const {
    const fs::path manifest = folder() / ref.text() / "manifest.json";
    fs::last_write_time(manifest, fs::last_write_time(manifest) - std::chrono::hours(1));
  }

  fs::path base_;
};

TEST(TemplateNames, LeadNowhereElse) {
  for (const char* good : {"base", "a", "code-interpreter-v1", "0"}) {
    EXPECT_TRUE(valid_name(good)) << good;
  }
  for (const char* bad :
       {"", "-a", ".", "..", "../host", "a/b", "a.b", "A", "a_b", "a@b", "b\n", "\xc3\xa9"}) {
    EXPECT_FALSE(valid_name(bad)) << bad;
  }
  EXPECT_FALSE(valid_name(std::string("a\0b", 3)));
  EXPECT_TRUE(valid_name(std::string(40, 'a')));
  EXPECT_FALSE(valid_name(std::string(41, 'a')));
  const std::string hash(64, '0');
  EXPECT_EQ(TemplateRef::parse("base@" + hash), (TemplateRef{"base", hash}));
  const std::vector<std::string> bad_refs{"base",
                                          "base@",
                                          "@" + hash,
                                          "base@" + hash + "0",
                                          "base@@" + hash,
                                          "base@" + std::string(64, 'A'),
                                          "../x@" + hash,
                                          "base@" + hash + "/",
                                          "base@../" + hash.substr(3)};
  for (const auto& bad : bad_refs) {
    EXPECT_FALSE(TemplateRef::parse(bad)) << bad;
  }
}

TEST_F(TemplateStoreTest, ATemplateIsMadeOnceAndFoundAgain) {
  const auto ref = ref_of("base", '1');
  EXPECT_FALSE(store().newest("base"));
  EXPECT_TRUE(store().list()->empty());
  ASSERT_EQ(build(ref), true);
  EXPECT_EQ(build(ref), false);
  EXPECT_EQ(store().newest("base"), ref);
  EXPECT_FALSE(store().newest("bas"));
  EXPECT_TRUE(fs::exists(store().root(ref) / "file"));
  EXPECT_EQ(fs::status(folder() / ref.text()).permissions(), fs::perms::owner_all)
      << "its setuid programs are not for users of the host";
  const auto list = store().list();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 1U);
  EXPECT_EQ(list->front().ref, ref);
  EXPECT_EQ(list->front().packages, std::vector<std::string>{"bash"});
  EXPECT_GT(list->front().size_bytes, 0U);
  EXPECT_TRUE(list->front().built_at.starts_with("20")) << list->front().built_at;
  EXPECT_EQ(entries(), std::vector{ref.text()});
}

TEST_F(TemplateStoreTest, AChangedRecipeMakesANewFolderAndTheLastOneAskedForIsTheNewest) {
  const auto one = ref_of("base", '1');
  const auto two = ref_of("base", '2');
  ASSERT_EQ(build(one), true);
  make_old(one);
  ASSERT_EQ(build(two), true);
  ASSERT_EQ(build(ref_of("other", '3')), true);
  EXPECT_EQ(store().newest("base"), two);
  make_old(two);
  EXPECT_EQ(build(one), false);
  EXPECT_EQ(store().newest("base"), one);
  EXPECT_EQ(store().list()->size(), 3U);
  EXPECT_EQ(store().list()->front().ref, one);
}

TEST_F(TemplateStoreTest, AFailedBuildLeavesNothing) {
  const auto failing = [](const fs::path& work) -> TemplateResult<void> {
    static_cast<void>(fill(work));
    return failure(TemplateError::kUnavailable, "no network");
  };
  const auto built = store().build(info_of(ref_of("base", '1')), failing, [] {});
  EXPECT_EQ(built.error().message, "no network");
  EXPECT_FALSE(store().newest("base"));
  EXPECT_EQ(entries(), std::vector<std::string>{});
}

TEST_F(TemplateStoreTest, ACrashLeavesNoHalfTemplateAndItsLeftoversAreSwept) {
  const auto ref = ref_of("base", '1');
  const pid_t child = ::fork();
  if (child == 0) {
    static_cast<void>(store().build(
        info_of(ref),
        [](const fs::path& work) {
          auto made = fill(work);
          ::kill(::getpid(), SIGKILL);
          return made;
        },
        [] {}));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(store().newest("base"));
  EXPECT_EQ(entries(), std::vector<std::string>{".building.base"});
  ASSERT_EQ(build(ref), true);
  EXPECT_EQ(entries(), std::vector{ref.text()});
}

TEST_F(TemplateStoreTest, ARemovalThatACrashLeftUndecidedIsUndoneAndADecidedOneIsFinished) {
  const auto one = ref_of("base", '1');
  const auto two = ref_of("base", '2');
  ASSERT_EQ(build(one), true);
  ASSERT_EQ(build(two), true);
  fs::rename(folder() / one.text(), folder() / (".removing." + one.text()));
  fs::rename(folder() / two.text(), folder() / (".trash." + two.text()));
  ASSERT_EQ(build(ref_of("base", '3')), true);
  EXPECT_EQ(entries(), (std::vector{one.text(), ref_of("base", '3').text()}));
}

TEST_F(TemplateStoreTest, ConcurrentBuildersMakeItOnce) {
  const auto ref = ref_of("base", '1');
  std::atomic<int> made = 0;
  std::atomic<int> built = 0;
  std::vector<std::thread> builders;
  for (int i = 0; i < 4; ++i) {
    builders.emplace_back([&] {
      const auto result = store().build(
          info_of(ref),
          [&made](const fs::path& work) {
            ++made;
            ::usleep(50'000);
            return fill(work);
          },
          [] {});
      ASSERT_TRUE(result) << result.error().message;
      if (*result) ++built;
    });
  }
  for (auto& builder : builders) builder.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(built, 1);
  EXPECT_EQ(entries(), std::vector{ref.text()});
}

TEST_F(TemplateStoreTest, ATemplateInUseIsNotRemoved) {
  const auto ref = ref_of("base", '1');
  EXPECT_EQ(store().remove(ref, kNobody).error().error, TemplateError::kNoSuchTemplate);
  ASSERT_EQ(build(ref), true);
  const auto used = store().remove(
      ref, [](const TemplateRef&) { return std::vector<std::string>{"sandbox abc"}; });
  EXPECT_EQ(used.error().error, TemplateError::kInUse);
  EXPECT_NE(used.error().message.find("sandbox abc"), std::string::npos);
  EXPECT_EQ(store().newest("base"), ref);
  ASSERT_TRUE(store().remove(ref, kNobody));
  EXPECT_EQ(entries(), std::vector<std::string>{});
}

TEST_F(TemplateStoreTest, AUserThatComesWhileItIsRemovedKeepsIt) {
  const auto ref = ref_of("base", '1');
  ASSERT_EQ(build(ref), true);
  int asked = 0;
  const auto removed = store().remove(ref, [&](const TemplateRef&) {
    if (++asked == 1) return std::vector<std::string>{};
    EXPECT_FALSE(store().newest("base")) << "nobody can find it any more when they are counted";
    return std::vector<std::string>{"sandbox late"};
  });
  EXPECT_EQ(removed.error().error, TemplateError::kInUse);
  EXPECT_EQ(store().newest("base"), ref);
}

TEST_F(TemplateStoreTest, ADamagedManifestIsNamed) {
  const auto ref = ref_of("base", '1');
  ASSERT_EQ(build(ref), true);
  std::ofstream(folder() / ref.text() / "manifest.json") << "{}";
  const auto list = store().list();
  ASSERT_FALSE(list);
  EXPECT_NE(list.error().message.find(ref.text()), std::string::npos);
}

}  // namespace
}  // namespace space::templates
