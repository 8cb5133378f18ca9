// expect: ccl: AutoOf and DeterministicOf list candidates, such as Candidate<Ring, LL>
#include <ccl/ccl.hpp>
template class ccl::Collective<ccl::AllReduce, ccl::AutoOf<ccl::Ring, ccl::Tree>>;
