// expect: ccl: this operation reduces, so AnyCollective needs Types<...> and Reductions<...>: there is code for each pair of these and no other
#include <ccl/algo/ring.hpp>
#include <ccl/any_collective.hpp>
#include <ccl/proto/ll.hpp>

using Bad = ccl::AnyCollective<ccl::AllReduce, ccl::Candidates<ccl::Candidate<ccl::Ring, ccl::LL>>>;
static_assert(sizeof(Bad) > 0);
