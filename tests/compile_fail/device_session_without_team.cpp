// expect: ccl: a session takes a Team; pass DeviceComm::team() to the kernel
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/device/device_comm.hpp>
#include <ccl/device/session.hpp>

using Lane = ccl::detail::SoloLane;
void kernel(const ccl::DeviceComm& comm) {
  ccl::TeamSession<Lane> session{Lane{}, comm, 0, 1};
}
