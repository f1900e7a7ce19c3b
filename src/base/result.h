#pragma once
#include <expected>
#include <utility>

#define SPACE_CAT_(a, b) a##b
#define SPACE_CAT(a, b) SPACE_CAT_(a, b)
// Evaluates `expr` (a std::expected) once; on error returns it from the enclosing function, else
// `decl` takes the value. SPACE_CO_TRY is the same inside a coroutine.
#define SPACE_TRY(decl, expr) SPACE_TRY_(SPACE_CAT(try_, __LINE__), return, decl, expr)
#define SPACE_CO_TRY(decl, expr) SPACE_TRY_(SPACE_CAT(try_, __LINE__), co_return, decl, expr)
#define SPACE_TRY_(tmp, ret, decl, expr)                 \
  auto tmp = (expr);                                     \
  if (!tmp) ret std::unexpected(std::move(tmp).error()); \
  decl = *std::move(tmp)

namespace space {
// Visits a variant with one lambda per alternative.
template <class... F>
struct Overload : F... {
  using F::operator()...;
};
}  // namespace space
