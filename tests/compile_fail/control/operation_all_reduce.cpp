// The header of the operation is enough for its call.
#include <ccl/algo/tree.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

ccl::Result<void> all_reduce(const ccl::Communicator& comm, float* data) {
  using Call = ccl::Collective<ccl::AllReduce, ccl::Tree, ccl::Simple, ccl::LoopbackTransport>;
  CCL_TRY(const auto call, Call::create(comm));
  return call(data, data, 10, ccl::Sum{});
}
