// expect: ccl: the tile has elements of another type than its Tiles
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

void kernel(Session& session, double* tile) {
  ccl::Tiles<Lane, float, ccl::TileShape<4, 4>> tiles{session};
  tiles.all_reduce(0, tile);
}
