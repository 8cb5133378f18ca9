// expect: ccl: the third argument of Fused must be an epilogue (StoreRows, AddRmsNorm, or a model of Epilogue); the compiler's notes name the missing member
#include <ccl/ccl.hpp>

struct Hasty {
  template <class Row>
  CCL_HD void operator()(Row& row) const {
    (void)row.sum(1);
  }
};
using Sum = ccl::Collective<ccl::AllReduce, ccl::OneShot, ccl::LL128, ccl::P2pTransport>;
using Bad = ccl::Fused<ccl::AsIs<float>, Sum, Hasty>;
static_assert(sizeof(Bad) > 0);
