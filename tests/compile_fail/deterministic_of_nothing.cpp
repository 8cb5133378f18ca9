// expect: ccl: AutoOf and DeterministicOf list at least one candidate, such as Candidate<Ring, LL>; Auto and Deterministic are ccl's own lists
#include <ccl/ccl.hpp>
template class ccl::Collective<ccl::AllReduce, ccl::DeterministicOf<>, ccl::Simple>;
