// expect: ccl: an algorithm that states `supports_reduction` does so of each functor
#include <ccl/ccl.hpp>

struct Mine {
  static constexpr const char* name = "Mine";
  static constexpr bool reorders = true, root_moves_wires = false;
  static constexpr int max_wires(int) { return 1; }
  static constexpr int wires = 2;
  template <class Op>
  static constexpr bool supports = ccl::is_one_of<Op, ccl::AllReduce>;
  template <class Positions>
  static void peers(Positions& positions) {
    positions.from(positions.ring().prev());
    positions.to(positions.ring().next());
  }
  static constexpr bool supports_reduction = false;
  template <class Context>
  static void run(ccl::AllReduce, Context&) {}
};
using Bad = ccl::Collective<ccl::AllReduce, Mine, ccl::Simple, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
