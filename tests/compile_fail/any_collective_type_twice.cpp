// expect: ccl: two types in Types have one DataType, as long and long long do, and a call could not tell which it means; leave one out
#include <ccl/algo/ring.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/proto/ll.hpp>

using Bad = ccl::AnyCollective<ccl::AllReduce, ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::LL>>,
                               ccl::Types<float, long, long long>, ccl::Reductions<ccl::Sum>>;
static_assert(sizeof(Bad) > 0);
