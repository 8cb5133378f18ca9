// expect: ccl: a specialization of Element<T> must derive from Cell<T>
#include <ccl/detail/numeric/reduction.hpp>

struct Fixed {
  short value;
};
template <>
struct ccl::Element<Fixed> {
  using Accumulate = float;
  CCL_HD static float widen(Fixed f) { return f.value; }
  CCL_HD static Fixed narrow(float f) { return {short(f)}; }
};
static_assert(sizeof(ccl::detail::Reduction<ccl::Sum, Fixed>) > 0);
