#include "adapters/templates/build_progress.h"

#include <gtest/gtest.h>

namespace space::templates {
namespace {

TEST(BuildProgress, FollowsThePhasesAndTheCountedPackages) {
  BuildProgress progress;
  EXPECT_TRUE(progress.line("I: running apt-get update..."));
  EXPECT_EQ(progress.step(), "reading the package lists");
  EXPECT_FALSE(progress.line("Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]"));
  EXPECT_FALSE(progress.line("Unpacking early (1.0) ...")) << "nothing was counted yet";
  progress.line("I: installing essential packages...");
  const auto begin = progress.percent();
  EXPECT_FALSE(progress.line("0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."));
  EXPECT_TRUE(progress.line("Unpacking bash (5.2) ..."));
  progress.line("Unpacking git (2.39) ...");
  const auto half = progress.percent();
  EXPECT_GT(half, begin);
  progress.line("Setting up bash (5.2) ...");
  progress.line("Setting up git (2.39) ...");
  const auto end = progress.percent();
  EXPECT_GT(end, half);
  EXPECT_FALSE(progress.line("Setting up more (than were counted) ..."));
  progress.line("I: cleaning package lists and apt cache...");
  EXPECT_GT(progress.percent(), end);
  EXPECT_LT(progress.percent(), 100U);
}

TEST(BuildProgress, NeverGoesBack) {
  BuildProgress progress;
  progress.line("I: cleaning package lists and apt cache...");
  const auto percent = progress.percent();
  progress.line("I: running apt-get update...");
  EXPECT_EQ(progress.percent(), percent);
  progress.line("99999999999999999999999999 newly installed");
  progress.line("-1 newly installed");
  progress.line("Unpacking x");
  EXPECT_EQ(progress.percent(), percent);
}

}  // namespace
}  // namespace space::templates
