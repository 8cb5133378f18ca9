// expect: ccl: a functor's `name` must be static constexpr const char*
#include <ccl/detail/numeric/reduction.hpp>

struct Second {
  static constexpr int name = 2;
  float operator()(float, float b) const { return b; }
};
static_assert(sizeof(ccl::detail::Reduction<Second, float>) > 0);
