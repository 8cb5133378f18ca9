// expect: ccl: an algorithm that states its `far_volume` or `far_part` does so as
#include <ccl/ccl.hpp>

struct Mine {
  static constexpr const char* name = "Mine";
  static constexpr bool reorders = true, root_moves_wires = false;
  static constexpr int most_wires(int) { return 1; }
  static constexpr int wires = 2;
  template <class Op>
  static constexpr bool supports = ccl::detail::one_of<Op, ccl::AllReduce>;
  template <class Seats>
  static void peers(Seats& seats) {
    seats.from(seats.ring().prev());
    seats.to(seats.ring().next());
  }
  static constexpr double far_volume(int, int hosts) { return hosts; }
  template <class Context>
  static void run(ccl::AllReduce, Context&) {}
};
using Bad = ccl::Collective<ccl::AllReduce, Mine, ccl::Simple, ccl::ShmTransport>;
static_assert(sizeof(Bad) > 0);
