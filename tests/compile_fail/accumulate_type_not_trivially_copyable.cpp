// expect: ccl: an accumulate type must be trivially copyable (it lives in registers)
#include <ccl/detail/numeric/reduction.hpp>

struct Exact {
  Exact(float);
  Exact(const Exact&);
  operator float() const;
  friend Exact operator+(const Exact&, const Exact&);
};
static_assert(sizeof(ccl::detail::Reduction<ccl::Sum, float, Exact>) > 0);
