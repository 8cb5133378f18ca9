// What the cases of the device-side interface do wrongly, done rightly.
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/device_comm.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
void kernel(const ccl::DeviceComm& comm, float* tile, const float* from) {
  ccl::TeamSession session{Lane{}, comm.team(), 0, 1};
  session.put_signal(1, 0, from, 1, 0);
  ccl::Tiles<Lane, float, ccl::TileShape<4, 4>> tiles{session};
  tiles.all_reduce(0, tile);
  tiles.reduce_scatter(1, from, tile, ccl::Max{});
}
