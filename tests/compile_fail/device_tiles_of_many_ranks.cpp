// expect: ccl: Tiles are compiled for at most 2 to 72 ranks
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

using Bad = ccl::Tiles<Lane, float, ccl::TileShape<4, 4>, ccl::LL, 73>;
static_assert(sizeof(Bad) > 0);
