// expect: ccl: none of the hooks receives calls; compose them with the Communicator
#include <ccl/algo/ring.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/hooked.hpp>
#include <ccl/proto/ll.hpp>

struct Stalls {
  void on_stall(const ccl::CommEvent&, const ccl::Report&) const {}
};
template class ccl::Hooked<ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL>, Stalls>;
