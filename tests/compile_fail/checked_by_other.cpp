// expect: ccl: the checks of Checked are NanCheck and CallCheck
#include <ccl/algo/ring.hpp>
#include <ccl/checked.hpp>

static_assert(sizeof(ccl::Checked<ccl::Ring, ccl::Sum>) > 0);
