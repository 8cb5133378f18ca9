// expect: ccl: this protocol needs lines that land whole, and the transport's atomic_line_bytes is too small for it; use Simple or LL
#include <ccl/ccl.hpp>

struct Words : ccl::ShmTransport {
  static constexpr int atomic_line_bytes = 8;
};
using Bad = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL128, Words>;
static_assert(sizeof(Bad) > 0);
