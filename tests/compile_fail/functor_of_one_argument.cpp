// expect: ccl: a reduction functor must be callable as Acc(Acc, Acc) const
#include <ccl/detail/numeric/reduction.hpp>

struct Negate {
  float operator()(float a) const { return -a; }
};
static_assert(sizeof(ccl::detail::Reduction<Negate, float>) > 0);
