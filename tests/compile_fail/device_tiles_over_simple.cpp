// expect: ccl: tiles travel as packets that carry flags; the protocol is LL, LL128 or LL128Pairs
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;
#include <ccl/proto/simple.hpp>

using Bad = ccl::Tiles<Lane, float, ccl::TileShape<4, 4>, ccl::Simple>;
static_assert(sizeof(Bad) > 0);
