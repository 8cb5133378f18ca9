// A program that calls Nvls and includes <ccl/nvls.cuh>. Compiled, never run.
#include <ccl/nvls.cuh>

using namespace ccl;

Result<void> sum_all(const Communicator& comm, float* data) {
  CCL_TRY(auto sums, (Collective<AllReduce, Nvls, Simple, NvlsTransport>::create(comm)));
  return sums(data, data, 1024);
}
