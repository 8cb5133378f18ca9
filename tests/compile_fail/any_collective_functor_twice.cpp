// expect: ccl: two functors in Reductions have one `name`, and a call could not tell which it means; give each its own
#include <ccl/algo/ring.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/proto/ll.hpp>

struct OwnSum : ccl::Sum {};
using Bad = ccl::AnyCollective<ccl::AllReduce, ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::LL>>,
                               ccl::Types<float>, ccl::Reductions<ccl::Max, ccl::Sum, OwnSum>>;
static_assert(sizeof(Bad) > 0);
