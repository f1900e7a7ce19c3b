#pragma once
#include "services/cli/api.h"

// The commands about the parts of this machine.
namespace space::app {

// `space up`. Idempotent: with the platform up from the same build and configuration it only waits
// until it is ready. Then, unless told not to, it builds the template that sandboxes are made of by
// default; failing at that is a warning.
Task<int> up(cli::Context& context, bool with_template);
// `space down`. Kills the sandboxes first unless `keep`; not running is a success.
Task<int> down(cli::Context& context, bool keep);
// `space status`. kPlatformDown when it is not running.
Task<int> status(cli::Context& context);
// `space supervise`: keeps the parts running until SIGTERM. Not for people.
int supervise();

}  // namespace space::app
