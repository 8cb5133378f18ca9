// expect: ccl: the receive buffer must not be const, because the call writes into it
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::SendRecv>& messages, const float* data) {
  return messages.recv(data, 10, 0);
}
