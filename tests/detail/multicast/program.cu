// A program that calls Nvls without <ccl/nvls.cuh>. It has no instructions of NVLink multicast.
#include <ccl/collective.cuh>
// Kernels come before other headers of ccl.
#include <ccl/algo/nvls.hpp>
#include <ccl/transport/nvls.hpp>

using namespace ccl;

Result<void> sum_all(const Communicator& comm, float* data) {
  CCL_TRY(auto sums, (Collective<AllReduce, Nvls, Simple, NvlsTransport>::create(comm)));
  return sums(data, data, 1024);
}
