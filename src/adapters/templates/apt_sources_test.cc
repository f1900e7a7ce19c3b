#include "adapters/templates/apt_sources.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace space::templates {
namespace {
namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string pattern = "/tmp/space-apt-XXXXXX";
    path = ::mkdtemp(pattern.data());
    fs::create_directory(path / "sources.list.d");
  }
  ~Folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
  fs::path path;
};

TEST(AptSources, OneLineSourcesAreReadWithTheirOptions) {
  const auto sources = parse_one_line_sources(
      "# deb http://off.example bookworm main\n"
      "deb http://a.example/debian bookworm main contrib # here\n"
      "deb-src http://a.example/debian bookworm main\n"
      "deb [arch=amd64 signed-by=/keys/a.gpg trusted=yes] http://b.example x/updates main\n"
      "deb http://flat.example ./\n"
      "deb http://short.example\n");
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_EQ(sources[0],
            (AptSource{"http://a.example/debian", "bookworm", {"main", "contrib"}, "", false}));
  EXPECT_EQ(sources[1],
            (AptSource{"http://b.example", "x/updates", {"main"}, "/keys/a.gpg", true}));
  EXPECT_EQ(sources[2].components, std::vector<std::string>{});
}

TEST(AptSources, StanzasAreReadWithContinuedLinesAndDisabledOnesAreSkipped) {
  const auto sources = parse_deb822_sources(
      "Types: deb deb-src\n# a comment\nURIs: http://a.example\nSuites: bookworm\n"
      "  bookworm-updates\nComponents: main\nsigned-by: /keys/a.gpg\n"
      "\n \n"
      "Types: deb\nURIs: http://b.example\nSuites: s\nComponents: main\nEnabled: no\n\n"
      "Types: deb-src\nURIs: http://c.example\nSuites: s\nComponents: main\n\n"
      "Types: deb\nURIs: http://d.example\nSuites: s\nComponents: main\nTrusted: yes\nSigned-By:\n"
      " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n -----END PGP PUBLIC KEY BLOCK-----\n");
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_EQ(sources[0],
            (AptSource{"http://a.example", "bookworm", {"main"}, "/keys/a.gpg", false}));
  EXPECT_EQ(sources[1].suite, "bookworm-updates");
  EXPECT_EQ(sources[2], (AptSource{"http://d.example", "s", {"main"}, "", true}));
}

TEST(AptSources, OnlyTheMachinesOwnSuiteIsTakenAndEachPlaceOnce) {
  const Folder apt;
  apt.write("sources.list", "deb http://a.example bookworm main non-free\n");
  apt.write("sources.list.d/1.sources",
            "Types: deb\nURIs: http://a.example http://b.example\n"
            "Suites: bookworm bookworm-security bookworm-backports\nComponents: main\n"
            "Signed-By: /k.gpg\n");
  apt.write("sources.list.d/2.list",
            "deb http://vendor.example nodistro main\ndeb http://d.example bookworm stable\n"
            "deb http://a.example bookworm main\n");
  apt.write("sources.list.d/2.list.save", "deb http://old.example bookworm main\n");
  EXPECT_EQ(machine_sources(apt.path, "bookworm"),
            "deb http://a.example bookworm main\n"
            "deb [signed-by=/k.gpg] http://a.example bookworm main\n"
            "deb [signed-by=/k.gpg] http://a.example bookworm-security main\n"
            "deb [signed-by=/k.gpg] http://b.example bookworm main\n"
            "deb [signed-by=/k.gpg] http://b.example bookworm-security main\n");
}

TEST(AptSources, FixesWithoutTheSuiteItselfAreNoSource) {
  const Folder apt;
  apt.write("sources.list", "deb http://a.example bookworm-updates main\n");
  EXPECT_EQ(machine_sources(apt.path, "bookworm"), "");
  EXPECT_EQ(machine_sources(apt.path / "none", "bookworm"), "");
}

}  // namespace
}  // namespace space::templates
