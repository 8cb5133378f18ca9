// expect: ccl: this operation moves data of any type, by code that is there once; leave Types and Reductions out
#include <ccl/algo/ring.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/proto/ll.hpp>

using Bad = ccl::AnyCollective<ccl::AllGather, ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::LL>>,
                               ccl::Types<float>>;
static_assert(sizeof(Bad) > 0);
