#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

// Correct versions of the failing cases.
static_assert(ccl::Protocol<ccl::Simple, ccl::detail::SoloLane>);
static_assert(ccl::Protocol<ccl::LL128, ccl::detail::SoloLane>);
