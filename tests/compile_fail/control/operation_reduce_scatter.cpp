// The header of the operation is enough for its call.
#include <ccl/algo/pat.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

ccl::Result<void> reduce_scatter(const ccl::Communicator& comm, float* data) {
  using Call = ccl::Collective<ccl::ReduceScatter, ccl::Pat, ccl::Simple, ccl::LoopbackTransport>;
  CCL_TRY(const auto call, Call::create(comm));
  return call(data, data + 100, 10, ccl::Sum{});
}
