// expect: ccl: AnyCollective takes an operation, Candidates<Candidate<Ring, LL>, ...>, Types<float, ...> and Reductions<Sum, ...>, in this order
#include <ccl/algo/ring.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/proto/ll.hpp>

using Bad = ccl::AnyCollective<ccl::AllReduce, ccl::Candidate<ccl::Ring, ccl::LL>,
                               ccl::Types<float>, ccl::Reductions<ccl::Sum>>;
static_assert(sizeof(Bad) > 0);
