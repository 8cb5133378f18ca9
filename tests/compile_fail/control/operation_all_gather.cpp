// The header of the operation is enough for its call.
#include <ccl/algo/pat.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

ccl::Result<void> all_gather(const ccl::Communicator& comm, float* data) {
  using Call = ccl::Collective<ccl::AllGather, ccl::Pat, ccl::Simple, ccl::LoopbackTransport>;
  CCL_TRY(const auto call, Call::create(comm));
  return call(data, data + 10, 10);
}
