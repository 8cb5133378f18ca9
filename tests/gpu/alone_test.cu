// A rank that is alone scales its data by a kernel. `create` loads that, so that its first launch
// does not wait for kernels that run: one of them may wait for what the program does next. Kernels
// are loaded when they are first needed here.
#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 1000;

__global__ void hold(const volatile int* go, long long longest_ns) {
  long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (*go == 0 && now - begin < longest_ns);
}

/// Calls with elements of `T`, whose kernel no other call has loaded.
template <class Algo, class Proto, class T>
void calls_beside_a_kernel(const Communicator& comm) {
  const auto sum = must(Collective<AllReduce, Algo, Proto>::create(comm));
  cudaStream_t stream, other;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  T* data = nullptr;
  int* go = nullptr;
  MUST_CUDA(cudaMalloc(&data, count * sizeof *data));
  MUST_CUDA(cudaHostAlloc(&go, sizeof *go, cudaHostAllocMapped));
  *go = 0;
  MUST_CUDA(cudaMemset(data, 0, count * sizeof *data));
  MUST_CUDA(cudaDeviceSynchronize());
  hold<<<1, 32, 0, other>>>(go, 4'000'000'000);
  MUST_CUDA(cudaGetLastError());
  must(sum(data, data, count, PreMulSum{2.0}, stream));
  drain(stream, 15);
  check(cudaStreamQuery(other) == cudaErrorNotReady, "%s waited for a kernel", sum.name().c_str());
  *const_cast<volatile int*>(go) = 1;
  MUST_CUDA(cudaStreamSynchronize(other));
  MUST_CUDA(cudaFreeHost(go));
  MUST_CUDA(cudaFree(data));
  MUST_CUDA(cudaStreamDestroy(other));
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  as_processes(1, {}, [](const Communicator& comm) {
    calls_beside_a_kernel<Ring, Simple, float>(comm);
    calls_beside_a_kernel<OneShot, LL128, double>(comm);
  });
  return result("A rank alone", ranks.gpus);
}
