// expect: ccl: AutoOf and DeterministicOf list candidates, such as Candidate<Ring, LL>
#include <ccl/ccl.hpp>
using Rings = ccl::AutoOf<ccl::Candidate<ccl::Ring, ccl::LL>>;
template class ccl::Collective<ccl::AllReduce, ccl::AutoOf<ccl::Candidate<Rings, ccl::LL>>>;
