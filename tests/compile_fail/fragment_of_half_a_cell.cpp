// expect: ccl: a fragment must hold whole cells (a multiple of words_per_cell of the element type)
#include <ccl/detail/numeric/reduction.hpp>

struct Pair {
  double a, b;
  friend CCL_HD constexpr Pair operator+(Pair x, Pair y) { return {x.a + y.a, x.b + y.b}; }
};
static_assert(sizeof(ccl::detail::CellReducer<ccl::detail::Reduction<ccl::Sum, Pair>, 1>) > 0);
