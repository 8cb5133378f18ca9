// Sum of every rank's data on GPUs. Each rank is a process that torchrun, mpirun or srun starts;
// without a launcher there is one rank on one GPU.
#include <ccl/ccl.cuh>

#include <cstdio>
#include <vector>

using SumRing = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::LL128, ccl::DefaultTransport>;

ccl::Result<void> run(cudaStream_t stream) {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  if (comm.device() < 0) return ccl::fail(ccl::Errc::not_supported, "this machine has no GPU");
  cudaSetDevice(comm.device());
  CCL_TRY(const auto all_reduce, SumRing::create(comm));
  std::vector<float> host(1000, float(comm.rank() + 1));
  float* data = nullptr;
  cudaMalloc(&data, host.size() * sizeof(float));
  cudaMemcpy(data, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
  CCL_CHECK(all_reduce(data, data, ccl::Index(host.size()), ccl::Sum{}, stream));
  cudaStreamSynchronize(stream);
  cudaMemcpy(host.data(), data, host.size() * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(data);
  std::printf("rank %d of %d: the sum is %g\n", comm.rank(), comm.ranks(), host[999]);
  return comm.finalize();
}

int main() {
  const auto done = run(nullptr);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
