// expect: ccl: a reduction functor must be callable as Acc(Acc, Acc) const
#include <ccl/detail/numeric/reduction.hpp>

struct Counting {
  int calls = 0;
  float operator()(float a, float b) { return ++calls, a + b; }
};
static_assert(sizeof(ccl::detail::Reduction<Counting, float>) > 0);
