#include "core/fleet/listing.h"

#include <algorithm>

namespace space::fleet {

bool matches(const Filter& filter, const Sandbox& sandbox) {
  const bool state = filter.states.empty() ||
                     std::ranges::find(filter.states, sandbox.state) != filter.states.end();
  return state && sandbox.state != SandboxState::kKilled && sandbox.team == filter.team &&
         (filter.template_name.empty() || sandbox.template_name == filter.template_name) &&
         (!filter.started_after || sandbox.started_at > *filter.started_after) &&
         std::ranges::includes(sandbox.metadata, filter.metadata);
}

Pager::Verdict Pager::offer(const Sandbox& sandbox) {
  const bool wanted = matches(filter_, sandbox);
  if (looked_at_ == scan_ || (wanted && taken_ == limit_)) {
    full_ = true;
    return Verdict::kFull;
  }
  ++looked_at_;
  if (wanted) ++taken_;
  last_ = position_of(sandbox);
  return wanted ? Verdict::kTaken : Verdict::kSkipped;
}

Position position_of(const Sandbox& sandbox) { return {sandbox.started_at, sandbox.id}; }

}  // namespace space::fleet
