// A ring of GPUs that sums lines of 128 bytes over RDMA alone. Devices are emulated: they copy
// between slots in pinned memory of the host. Ranks are threads, because the devices are of one
// process.
#include <ccl/transport/ib.hpp>

#include "communicator.cuh"
#include "support/fake_verbs.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

void suite(Communicator comm) {
  using Sums = Collective<AllReduce, Ring, LL128, IbTransport>;
  cudaStream_t stream{};
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto sums = must(Sums::create(comm));
  for (const Index count : {1, 1000, 300'000}) {
    Buffer<float> in{count, 0}, out{count, 0};
    in.fill([&](Index i) { return value(comm.rank(), i); }, stream);
    must(sums(in.get(), out.get(), count, Sum{}, stream));
    const auto sum = [&](Index i) {
      double all = 0;
      for (int r = 0; r < comm.ranks(); ++r) all += value(r, i);
      return all;
    };
    check(out.wrong(count, sum, stream) == 0, "%ld elements, rank %d", long(count), comm.rank());
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_IB_GPU_MEMORY", "0", 1);  // no device reads memory of a GPU here
  const FakeVerbs devices{2};
  as_threads(ranks.count, {}, suite);
  return result("Ring LL128 over emulated RDMA", ranks.gpus);
}
