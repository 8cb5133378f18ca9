// expect: ccl: LL128Pairs wants a group of 8 lanes or more, and elements of 1, 2, 4 or 8 bytes
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Bad = ccl::Tiles<ccl::detail::SoloLane, float, ccl::TileShape<4, 4>, ccl::LL128Pairs>;
static_assert(sizeof(Bad) > 0);
