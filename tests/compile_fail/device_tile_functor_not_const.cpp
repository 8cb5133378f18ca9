// expect: ccl: a reduction functor must be callable as Acc(Acc, Acc) const
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

struct Counting {
  int calls = 0;
  float operator()(float a, float b) { return ++calls, a + b; }
};
void kernel(Session& session, float* tile) {
  ccl::Tiles<Lane, float, ccl::TileShape<4, 4>> tiles{session};
  tiles.all_reduce(0, tile, Counting{});
}
