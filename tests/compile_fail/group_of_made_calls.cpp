// expect: ccl: a group takes calls that are not made yet, or one list of them; give it all_reduce.bind(send, recv, count, op) in place of all_reduce(send, recv, ...)
#include <ccl/group.hpp>

ccl::Result<void> both(const ccl::Result<void>& first, const ccl::Result<void>& second) {
  return ccl::group(ccl::Stream{}, first, second);
}
