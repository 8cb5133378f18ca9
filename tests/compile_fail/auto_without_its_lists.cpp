// expect: ccl: what Auto (the default) stands for is in <ccl/auto.hpp>; include that or <ccl/ccl.hpp>
// without precompiled headers
#include <ccl/collective.hpp>
#include <ccl/detail/choose/auto_collective.hpp>

ccl::Result<void> use(const ccl::Communicator& comm, float* data) {
  CCL_TRY(const auto call, ccl::Collective<ccl::AllReduce>::create(comm));
  return call(data, data, 10);
}
