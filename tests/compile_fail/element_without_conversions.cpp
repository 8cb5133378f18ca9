// expect: ccl: the accumulate type wants Acc Element<T>::widen(T) and T Element<T>::narrow(Acc); define both, or name an accumulate type that the elements convert to and from
#include <ccl/detail/numeric/reduction.hpp>

struct Fixed {
  short value;
};
template <>
struct ccl::Element<Fixed> : ccl::Cell<Fixed> {
  using Accumulate = float;
  CCL_HD static float widen(Fixed f) { return f.value; }
  CCL_HD static int narrow(float f) { return int(f); }
};
static_assert(sizeof(ccl::detail::Reduction<ccl::Sum, Fixed>) > 0);
