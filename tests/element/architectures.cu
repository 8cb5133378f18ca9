// Conversions and sums of narrow floats, which GPUs before sm_80 (bfloat16) and sm_89 (fp8) have no
// instructions for.
#include <ccl/element/element.hpp>

namespace {
template <class T>
__device__ void add_cell(ccl::Word* to, const ccl::Word* from) {
  float mine[ccl::Element<T>::per_cell], theirs[ccl::Element<T>::per_cell];
  ccl::Element<T>::unpack(to, mine);
  ccl::Element<T>::unpack(from, theirs);
  for (int i = 0; i < ccl::Element<T>::per_cell; ++i) mine[i] += theirs[i];
  ccl::Element<T>::pack(to, mine);
}
}  // namespace

__global__ void add_cells(ccl::Word* to, const ccl::Word* from) {
  add_cell<ccl::float16>(to, from);
  add_cell<ccl::bfloat16>(to + 1, from + 1);
  add_cell<ccl::float8_e4m3>(to + 2, from + 2);
  add_cell<ccl::float8_e5m2>(to + 3, from + 3);
  to[4] = ccl::Element<ccl::bfloat16>::add_packed(to[4], from[4]);
}
