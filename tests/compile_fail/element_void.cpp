// expect: ccl: a buffer of void has no element type; cast the pointer to that of its elements, or to that of char if the operation only moves bytes
#include <ccl/element/element.hpp>

static_assert(ccl::Element<void>::per_cell > 0);
