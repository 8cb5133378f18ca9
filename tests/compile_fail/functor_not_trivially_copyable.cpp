// expect: ccl: a reduction functor must be trivially copyable (kernels take it by value); let it hold plain values or pointers
#include <ccl/detail/numeric/reduction.hpp>

#include <string>

struct NamedSum {
  std::string name;
  float operator()(float a, float b) const { return a + b; }
};
static_assert(sizeof(ccl::detail::Reduction<NamedSum, float>) > 0);
