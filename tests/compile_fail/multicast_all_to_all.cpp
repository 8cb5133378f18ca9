// expect: ccl: this algorithm does not run this operation over multicast memory; see `supports` in its header for those that it does
#include <ccl/algo/nvls.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/multicast/body.hpp>
#include <ccl/proto/ll128.hpp>

using namespace ccl;
using Emulated = detail::UnicastMulticast<detail::HostMemory>;
using Bad = detail::MulticastBody<AllToAll, Nvls, Simple, Emulated, 1, detail::Bytes>;
static_assert(sizeof(Bad) > 0);
