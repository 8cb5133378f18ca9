// The header of the operation is enough for its call.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/gather.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

ccl::Result<void> gather(const ccl::Communicator& comm, float* data) {
  using Call = ccl::Collective<ccl::Gather, ccl::Pairwise, ccl::Simple, ccl::LoopbackTransport>;
  CCL_TRY(const auto call, Call::create(comm));
  return call(data, data + 10, 10, 0);
}
