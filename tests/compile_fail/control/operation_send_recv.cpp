// The header of the operation is enough for its call.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/loopback.hpp>

ccl::Result<void> send_recv(const ccl::Communicator& comm, float* data) {
  using Call = ccl::Collective<ccl::SendRecv, ccl::Pairwise, ccl::Simple, ccl::LoopbackTransport>;
  CCL_TRY(const auto call, Call::create(comm));
  return call(data, 10, 0, data + 10, 10, 0);
}
