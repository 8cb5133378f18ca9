// expect: ccl: Avg divides by the number of ranks, an int, and the accumulate type has no such operator/; give it one, or use Sum
#include <ccl/detail/numeric/reduction.hpp>

struct Bits {
  unsigned long long value;
  friend CCL_HD constexpr Bits operator+(Bits a, Bits b) { return {a.value | b.value}; }
};
Bits last(const ccl::detail::Reduction<ccl::Avg, Bits>& reduction, Bits value) {
  return reduction.finish(value);
}
