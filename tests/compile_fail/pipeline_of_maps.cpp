// expect: ccl: a Pipeline has a stage On some level; a Map alone needs no ranks
#include <ccl/ccl.hpp>

using Bad = ccl::Pipeline<ccl::Map<ccl::Convert<ccl::bfloat16>>>;
static_assert(sizeof(Bad) > 0);
