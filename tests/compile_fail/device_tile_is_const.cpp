// expect: ccl: the result of a tile collective is stored in the tile, which is const
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

void kernel(Session& session, const float* tile) {
  ccl::Tiles<Lane, float, ccl::TileShape<4, 4>> tiles{session};
  tiles.all_reduce(0, tile);
}
