// Memory that peers have mapped by Direct comes back soon after cudaFree. The second rank receives
// into more than half of its GPU's memory, frees it, and allocates as much again.
#include <chrono>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

void suite(Communicator comm) {
  if (comm.rank() > 1) return;
  const auto move = must(Collective<SendRecv, Direct, Simple, DefaultTransport>::create(comm));
  const bool receives = comm.rank() == 1;
  std::size_t free_bytes = 0, all_bytes = 0;
  MUST_CUDA(cudaMemGetInfo(&free_bytes, &all_bytes));
  const std::size_t big = receives ? free_bytes / 10 * 6 : std::size_t{8} << 20;
  char* data = nullptr;
  MUST_CUDA(cudaMalloc(&data, big));
  constexpr Index count = 8 << 20;
  for (int i = 0; i < 10; ++i) {
    must(receives ? move.recv(data, count, 0) : move.send(data, count, 1));
    MUST_CUDA(cudaDeviceSynchronize());
    std::this_thread::sleep_for(std::chrono::milliseconds{100});  // the peer's thread maps it
  }
  MUST_CUDA(cudaFree(data));
  if (!receives) return;
  const double begin = now_s();
  cudaError_t again = cudaMalloc(&data, big);
  while (again != cudaSuccess && now_s() - begin < 10) {
    (void)cudaGetLastError();
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    again = cudaMalloc(&data, big);
  }
  check(again == cudaSuccess, "%zu MiB do not come back: %s", big >> 20, cudaGetErrorString(again));
  std::printf("%zu MiB come back after %.3f s\n", big >> 20, now_s() - begin);
  if (again == cudaSuccess) MUST_CUDA(cudaFree(data));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  // Mappings of another process keep the pages; threads of one process have none. Ranks of two
  // communicators would fill the memory together.
  as_processes(2, {}, suite);
  return result("Freed buffers", ranks.gpus);
}
