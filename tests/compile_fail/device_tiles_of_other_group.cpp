// expect: ccl: Tiles take the TeamSession of their own group and kind of team
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Pair = ccl::detail::ThreadLanes<2>;

void kernel(ccl::TeamSession<Pair>& session, float* tile) {
  ccl::Tiles<Lane, float, ccl::TileShape<4, 4>> tiles{session};
  tiles.all_reduce(0, tile);
}
