// expect: ccl: a tile has at least one row and one column
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

using Bad = ccl::Tiles<Lane, float, ccl::TileShape<0, 8>>;
static_assert(sizeof(Bad) > 0);
