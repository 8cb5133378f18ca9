// expect: ccl: Sum, Avg and PreMulSum want the accumulate type's operator+, Prod its operator*, Min and Max its operator<; give it one, or a functor of your own
#include <ccl/detail/numeric/reduction.hpp>

struct Point {
  float x, y;
};
static_assert(sizeof(ccl::detail::Reduction<ccl::Sum, Point>) > 0);
