// The header of the operation is enough for its call.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/all_to_all_v.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

ccl::Result<void> all_to_all_v(const ccl::Communicator& comm, float* data) {
  using Call = ccl::Collective<ccl::AllToAllV, ccl::Pairwise, ccl::Simple, ccl::LoopbackTransport>;
  CCL_TRY(const auto call, Call::create(comm));
  return call(data, {}, {}, data + 100, {}, {});
}
