// expect: ccl: put copies bytes, so its elements must be trivially copyable
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/tiles.hpp>

using Lane = ccl::detail::SoloLane;
using Session = ccl::TeamSession<Lane>;

struct Owner {
  ~Owner() {}
};
void kernel(Session& session, const Owner* from) {
  session.put(1, 0, from, 1);
}
