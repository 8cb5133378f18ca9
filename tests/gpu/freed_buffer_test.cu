// Memory that peers have mapped by Direct comes back soon after cudaFree. The second rank receives
// into more than half of its GPU's memory, frees it, and allocates as much again. Where the GPU is
// almost full, peers have it mapped no more, and it comes back at once.
#include <chrono>

#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index count = 8 << 20;  // bytes of a message

/// Messages of the first rank into a buffer of the second, which the first one's thread maps.
template <class Call>
void messages(const Call& move, bool receives, char* data) {
  for (int i = 0; i < 10; ++i) {
    must(receives ? move.recv(data, count, 0) : move.send(data, count, 1));
    MUST_CUDA(cudaDeviceSynchronize());
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
}
std::size_t free_bytes(std::size_t* all = nullptr) {
  std::size_t free = 0, ignored = 0;
  MUST_CUDA(cudaMemGetInfo(&free, all != nullptr ? all : &ignored));
  return free;
}

template <class Call>
void soon(const Call& move, bool receives) {
  const std::size_t big = receives ? free_bytes() / 10 * 6 : std::size_t{8} << 20;
  char* data = nullptr;
  MUST_CUDA(cudaMalloc(&data, big));
  messages(move, receives, data);
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

/// Where the GPU is almost full, memory is free at once.
template <class Call>
void at_once(const Communicator& comm, const Call& move, bool receives) {
  std::size_t all = 0;
  const std::size_t free = free_bytes(&all), big = all / 32;
  char *data = nullptr, *filler = nullptr;
  if (receives) MUST_CUDA(cudaMalloc(&filler, free - big - all / 100));
  MUST_CUDA(cudaMalloc(&data, receives ? big : std::size_t{count}));
  must(comm.barrier());
  messages(move, receives, data);
  MUST_CUDA(cudaFree(data));
  if (!receives) return;
  const cudaError_t again = cudaMalloc(&data, big);
  check(again == cudaSuccess, "%zu MiB of a full GPU do not come back at once: %s", big >> 20,
        cudaGetErrorString(again));
  if (again == cudaSuccess) MUST_CUDA(cudaFree(data));
  MUST_CUDA(cudaFree(filler));
}

void suite(Communicator comm) {
  if (comm.rank() > 1) return;
  const auto move = must(Collective<SendRecv, Direct, Simple, DefaultTransport>::create(comm));
  const bool receives = comm.rank() == 1;
  soon(move, receives);
  must(comm.barrier());
  at_once(comm, move, receives);
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
