// expect: ccl: AnyOf needs at least one transport
#include <ccl/transport/any_of.hpp>
static_assert(sizeof(ccl::AnyOf<>) > 0);
