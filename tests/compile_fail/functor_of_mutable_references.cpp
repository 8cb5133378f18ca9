// expect: ccl: a reduction functor must be callable as Acc(Acc, Acc) const
#include <ccl/detail/numeric/reduction.hpp>

struct Adds {
  float operator()(float& a, float& b) const { return a + b; }
};
static_assert(sizeof(ccl::detail::Reduction<Adds, float>) > 0);
