// expect: ccl: Hooked composes a Communicator, a Collective or an AnyCollective with the type of the hooks, in this order
#include <ccl/algo/ring.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/hooked.hpp>
#include <ccl/proto/ll.hpp>

struct Calls {
  void on_call(const ccl::CallEvent&) const {}
};
template class ccl::Hooked<Calls, ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL>>;
