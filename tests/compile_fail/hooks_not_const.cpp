// expect: ccl: a hook takes other arguments, or is not const
#include <ccl/algo/ring.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/hooked.hpp>
#include <ccl/proto/ll.hpp>

struct Counts {
  void on_end(const ccl::CallEvent&, const ccl::Result<void>&) { ++ended; }
  int ended = 0;
};
template class ccl::Hooked<ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL>, Counts>;
