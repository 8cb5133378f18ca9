// expect: ccl: switches have Sum, Avg, PreMulSum, Min and Max and no other functor; use TwoShot or Direct on one host, Ring or Tree on several
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/proto/ll128.hpp>

using namespace ccl;
using Emulated = detail::UnicastMulticast<detail::HostMemory>;
using Bad =
    detail::MulticastBody<AllReduce, Nvls, Simple, Emulated, 1, detail::Reduction<Prod, float>>;
static_assert(sizeof(Bad) > 0);
