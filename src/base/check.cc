#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace space {
void assert_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: invariant does not hold: %s\n", file, line, what);
  std::abort();
}
}  // namespace space
