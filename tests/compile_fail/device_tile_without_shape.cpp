// expect: ccl: the shape of a tile is a TileShape<Rows, Columns>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

struct Square {};
using Bad = ccl::Tiles<Lane, float, Square>;
static_assert(sizeof(Bad) > 0);
