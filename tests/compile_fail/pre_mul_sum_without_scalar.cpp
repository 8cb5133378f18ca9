// expect: ccl: PreMulSum needs an accumulate type that converts from double (its scalar); give it that constructor, or scale the data before a Sum
#include <ccl/detail/numeric/reduction.hpp>

struct Pair {
  float a, b;
  friend CCL_HD constexpr Pair operator+(Pair x, Pair y) { return {x.a + y.a, x.b + y.b}; }
  friend CCL_HD constexpr Pair operator*(Pair x, Pair y) { return {x.a * y.a, x.b * y.b}; }
};
static_assert(sizeof(ccl::detail::Reduction<ccl::PreMulSum, Pair>) > 0);
