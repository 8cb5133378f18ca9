// expect: ccl: AnyOf lists transports (models of Transport), such as ShmTransport; the compiler's notes name the missing member
#include <ccl/transport/any_of.hpp>
static_assert(sizeof(ccl::AnyOf<ccl::ShmTransport, int>) > 0);
