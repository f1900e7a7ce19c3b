// space-sim: runs workloads of the simulated fleet by seed.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "sim/workload.h"

namespace space::sim {
namespace {

constexpr Workload kWorkloads[] = {
    {"fleet",
     "moves, stale routes, connections lost mid-message, redelivered installs, restarts, clock "
     "skew",
     run_fleet},
    {"install_at_every_step",
     "one operation, with an install of the next generation at each of its suspension points",
     run_install_at_every_step},
};

// Situations that a campaign over `fleet` must have met, or it proves nothing.
constexpr std::string_view kRequired[] = {
    "refused.stale",
    "refused.not_here",
    "repaired",
    "revoked",
    "renewed",
    "moved",
    "paused",
    "resumed",
    "killed",
    "redelivered",
    "install.installed",
    "install.behind_floor",
    "activate.proof_failed",
    "intrusion_refused",
    "paused_by_time",
    "written_by_token",
};

struct Arguments {
  std::string workload = "fleet";
  std::uint64_t seed = 1;
  std::uint64_t count = 1;
  bool trace = false;
  bool twice = false;     // each seed, and the digests must agree
  bool campaign = false;  // kRequired
  std::string saved;      // file of seeds to run first
  std::string plant;
};

int usage() {
  std::fprintf(
      stderr,
      "usage: space-sim [--workload W] [--seed N] [--count K] [--trace] [--twice] [--campaign]\n"
      "                 [--saved FILE] [--plant BUG] | --list\n");
  return 2;
}

const Workload* find(std::string_view name) {
  for (const auto& workload : kWorkloads) {
    if (workload.name == name) return &workload;
  }
  return nullptr;
}

class Campaign {
 public:
  explicit Campaign(const Arguments& arguments) : arguments_(arguments) {}

  bool run(const Workload& workload, std::uint64_t seed) {
    const auto result = workload.run({seed, arguments_.trace});
    ++runs_;
    steps_ += result.steps;
    for (const auto& [name, count] : result.counts) counts_[name] += count;
    if (result.violation) return failed(workload, seed, *result.violation);
    if (arguments_.twice) {
      const auto again = workload.run({seed, false});
      if (again.digest != result.digest || again.steps != result.steps) {
        return failed(workload, seed, "two runs of this seed differ");
      }
    }
    digest_ = digest_ * 31 + result.digest;
    return true;
  }
  void report() const {
    std::printf("%llu runs, %llu steps, digest %016llx\n", static_cast<unsigned long long>(runs_),
                static_cast<unsigned long long>(steps_), static_cast<unsigned long long>(digest_));
    for (const auto& [name, count] : counts_) {
      std::printf("  %-40s %llu\n", name.c_str(), static_cast<unsigned long long>(count));
    }
  }
  bool met_all() const {
    bool all = true;
    for (const auto name : kRequired) {
      if (counts_.contains(std::string(name))) continue;
      std::printf("FAILED: the campaign never met '%s'\n", std::string(name).c_str());
      all = false;
    }
    return all;
  }

 private:
  static bool failed(const Workload& workload, std::uint64_t seed, const std::string& why) {
    std::printf("FAILED: %s\nreproduce: ./dev sim --workload %s --seed %llu --trace\n", why.c_str(),
                std::string(workload.name).c_str(), static_cast<unsigned long long>(seed));
    return false;
  }
  Arguments arguments_;
  std::uint64_t runs_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t digest_ = 0;
  std::map<std::string, std::uint64_t> counts_;
};

int run(int argc, char** argv) {
  Arguments arguments;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    if (word == "--list") {
      for (const auto& workload : kWorkloads) {
        std::printf("%-24s %s\n", std::string(workload.name).c_str(),
                    std::string(workload.about).c_str());
      }
      return 0;
    }
    if (word == "--trace") {
      arguments.trace = true;
    } else if (word == "--twice") {
      arguments.twice = true;
    } else if (word == "--campaign") {
      arguments.campaign = true;
    } else if (i + 1 == words.size()) {
      return usage();
    } else if (word == "--workload") {
      arguments.workload = words[++i];
    } else if (word == "--saved") {
      arguments.saved = words[++i];
    } else if (word == "--plant") {
      arguments.plant = words[++i];
    } else if (word == "--seed" || word == "--count") {
      const auto number = parse_decimal(words[++i]);
      if (!number) return usage();
      (word == "--seed" ? arguments.seed : arguments.count) = *number;
    } else {
      return usage();
    }
  }
  if (!arguments.plant.empty()) {
    // A planted bug is a program of its own; this one contains none.
    auto program = std::string(argv[0]) + "-planted-" + arguments.plant;
    std::vector<char*> rest{program.data()};
    for (int i = 1; i < argc; ++i) {
      if (std::string_view(argv[i]) == "--plant") {
        ++i;
      } else {
        rest.push_back(argv[i]);
      }
    }
    rest.push_back(nullptr);
    ::execv(program.c_str(), rest.data());
    std::fprintf(stderr, "no such planted bug: %s\n", arguments.plant.c_str());
    return 2;
  }
  const auto* workload = find(arguments.workload);
  if (workload == nullptr) {
    std::fprintf(stderr, "no such workload: %s\n", arguments.workload.c_str());
    return usage();
  }
  Campaign campaign(arguments);
  if (!arguments.saved.empty()) {
    std::ifstream file(arguments.saved);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", arguments.saved.c_str());
      return 2;
    }
    std::string line;
    while (std::getline(file, line)) {
      if (line.empty() || line.starts_with('#')) continue;
      std::istringstream words_of(line);
      std::string name;
      std::uint64_t seed = 0;
      words_of >> name >> seed;
      const auto* saved = find(name);
      if (saved == nullptr || !words_of) {
        std::fprintf(stderr, "%s: not 'workload seed': %s\n", arguments.saved.c_str(),
                     line.c_str());
        return 2;
      }
      if (!campaign.run(*saved, seed)) return 1;
    }
  }
  for (std::uint64_t i = 0; i < arguments.count; ++i) {
    if (!campaign.run(*workload, arguments.seed + i)) return 1;
  }
  campaign.report();
  return !arguments.campaign || campaign.met_all() ? 0 : 1;
}

}  // namespace
}  // namespace space::sim

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return space::sim::run(argc, argv);
}
