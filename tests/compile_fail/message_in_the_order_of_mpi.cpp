// expect: ccl: the call takes (send, send_count, to, recv, recv_count, from); a message one way is send(data, count, to) at one rank and recv(data, count, from) at the other
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::SendRecv>& exchange, const float* send,
                       float* recv) {
  return exchange(send, recv, 10, 1, 0);
}
