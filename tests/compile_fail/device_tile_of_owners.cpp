// expect: ccl: the elements of a tile must be trivially copyable (they travel as bytes)
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

struct Owner {
  ~Owner() {}
};
using Bad = ccl::Tiles<Lane, Owner, ccl::TileShape<1, 1>>;
static_assert(sizeof(Bad) > 0);
