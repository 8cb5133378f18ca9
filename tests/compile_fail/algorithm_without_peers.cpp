// expect: ccl: an algorithm over wires must name the ranks that it talks to in `peers(positions)`, as Ring does
#include <ccl/ccl.hpp>

struct Mine {
  static constexpr const char* name = "Mine";
  static constexpr bool reorders = true, root_moves_wires = false;
  static constexpr int max_wires(int) { return 1; }
  static constexpr int wires = 2;
  template <class Op>
  static constexpr bool supports = ccl::is_one_of<Op, ccl::AllReduce>;
  template <class Context>
  static void run(ccl::AllReduce, Context&) {}
};
using Bad = ccl::Collective<ccl::AllReduce, Mine, ccl::Simple, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
