#pragma once

// The checks of our own invariants. Never for input: input errors are values.
namespace space {
[[noreturn]] void assert_failed(const char* file, int line, const char* what);
}  // namespace space

// Always on; aborts. For what would make memory or authority unsafe.
#define SPACE_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::space::assert_failed(__FILE__, __LINE__, #condition))
