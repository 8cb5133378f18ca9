// expect: ccl: multicast stores land in pieces, so no packet can carry a flag; use Simple
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/proto/ll128.hpp>

using namespace ccl;
using Emulated = detail::UnicastMulticast<detail::HostMemory>;
using Bad =
    detail::MulticastBody<AllReduce, Nvls, LL128, Emulated, 1, detail::Reduction<Sum, float>>;
static_assert(sizeof(Bad) > 0);
