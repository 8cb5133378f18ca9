// One all-reduce by Auto. check_kernels.cmake counts what nvcc makes of it.
#include <ccl/ccl.cuh>

ccl::Result<void> run(const ccl::Communicator& comm, float* data) {
  CCL_TRY(const auto all_reduce, (ccl::Collective<ccl::AllReduce>::create(comm)));
  return all_reduce(data, data, 1000, ccl::Sum{});
}
