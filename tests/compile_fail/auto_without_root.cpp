// expect: ccl: this operation's call takes other arguments after `count`; see the operation in ccl/collective.hpp
#include <ccl/ccl.hpp>

ccl::Result<void> call(const ccl::Collective<ccl::Broadcast>& broadcast, float* data) {
  return broadcast(data, data, 1);
}
