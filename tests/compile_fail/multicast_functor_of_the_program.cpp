// expect: ccl: switches have Sum, Avg, PreMulSum, Min and Max and no other functor; use TwoShot or Direct on one host, Ring or Tree on several
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/proto/ll128.hpp>

using namespace ccl;
struct Last {
  int operator()(int, int b) const { return b; }
};
using Emulated = detail::UnicastMulticast<detail::HostMemory>;
using Bad = detail::MulticastBody<Reduce, Nvls, Simple, Emulated, 1, detail::Reduction<Last, int>>;
static_assert(sizeof(Bad) > 0);
