// expect: ccl: switches compare 16-bit floats and integers of 4 and 8 bytes, and no other elements; use TwoShot or Direct on one host, Ring or Tree on several
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/proto/ll128.hpp>

using namespace ccl;
using Emulated = detail::UnicastMulticast<detail::HostMemory>;
using Bad =
    detail::MulticastBody<AllReduce, Nvls, Simple, Emulated, 1, detail::Reduction<Max, float>>;
static_assert(sizeof(Bad) > 0);
