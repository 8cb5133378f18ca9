// expect: ccl: an algorithm over wires must state `most_wires(ranks)` (an int), `wires` and `root_moves_wires`, as Ring does
#include <ccl/ccl.hpp>

struct Mine {
  static constexpr const char* name = "Mine";
  static constexpr bool reorders = true, root_moves_wires = false;
  static constexpr int most_wires(int) { return 1; }
  template <class Op>
  static constexpr bool supports = ccl::detail::one_of<Op, ccl::AllReduce>;
  template <class Seats>
  static void peers(Seats& seats) {
    seats.from(seats.ring().prev());
    seats.to(seats.ring().next());
  }
  template <class Context>
  static void run(ccl::AllReduce, Context&) {}
};
using Bad = ccl::Collective<ccl::AllReduce, Mine, ccl::Simple, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
