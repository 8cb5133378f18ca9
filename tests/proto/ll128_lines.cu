// Lanes that come from different branches store and load a line.
#include <ccl/detail/lanes/device_lanes.cuh>
#include <ccl/proto/ll128.hpp>

__global__ void lines(ccl::Packet* tile, const ccl::Word* from, ccl::Word* to, int some) {
  using Lane = ccl::LL128::Lane<ccl::detail::WarpLanes>;
  const Lane lane{ccl::detail::WarpLanes{}};
  const int at = int(threadIdx.x);
  Lane::Fragment f{};
  if (at < some) f.word[0] = from[at];
  lane.store(tile, f, 1);
  if (at < some) to[at] = 0;
  const auto arrival = lane.load(tile);
  if (lane.agree(lane.has_arrived(arrival, 1))) to[at] = lane.unpack(arrival).word[0];
}
