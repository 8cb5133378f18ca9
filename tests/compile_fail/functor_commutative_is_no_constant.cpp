// expect: ccl: a functor's `commutative` must be static constexpr bool
#include <ccl/detail/numeric/reduction.hpp>

struct Second {
  bool commutative = false;
  float operator()(float, float b) const { return b; }
};
static_assert(sizeof(ccl::detail::Reduction<Second, float>) > 0);
