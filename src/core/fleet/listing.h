#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/fleet/lifecycle.h"

// Which sandboxes a list shows, and in which order (C110).
namespace space::fleet {

struct Filter {
  TeamId team;
  std::vector<SandboxState> states;             // empty: any; never the killed ones
  std::map<std::string, std::string> metadata;  // all of these pairs
  std::string template_name;                    // empty: any
  std::optional<WallTime> started_after;
  bool newest_first = false;
  static void fields(auto& r, auto& f) {
    f(r.team, r.states, r.metadata, r.template_name, r.started_after, r.newest_first);
  }
};
bool matches(const Filter& filter, const Sandbox& sandbox);

// A place in the order of a list: the sandbox that was shown or looked at last. Nothing in it ever
// changes while the sandbox lives, so that no page repeats or misses a sandbox because others come
// and go.
struct Position {
  WallTime started_at;
  SandboxId sandbox;
  static void fields(auto& r, auto& f) { f(r.started_at, r.sandbox); }
  friend auto operator<=>(const Position&, const Position&) = default;
};
Position position_of(const Sandbox& sandbox);

struct Page {
  std::vector<Snapshot> sandboxes;
  std::optional<Position> next;  // go on after it; absent: nothing is left
};

// Chooses the sandboxes of one page among those that are offered to it in the filter's order.
class Pager {
 public:
  // At most `limit` sandboxes, and no more than `scan` looked at.
  Pager(Filter filter, std::size_t limit, std::size_t scan)
      : filter_(std::move(filter)), limit_(limit), scan_(scan) {}
  enum class Verdict : std::uint8_t { kTaken = 1, kSkipped, kFull };
  // kFull: the page is complete without this one, and there is more.
  Verdict offer(const Sandbox& sandbox);
  // Of the page, once it is complete or nothing is left.
  std::optional<Position> next() const { return full_ ? last_ : std::nullopt; }

 private:
  Filter filter_;
  std::size_t limit_;
  std::size_t scan_;
  std::size_t taken_ = 0;
  std::size_t looked_at_ = 0;
  bool full_ = false;
  std::optional<Position> last_;
};

}  // namespace space::fleet
