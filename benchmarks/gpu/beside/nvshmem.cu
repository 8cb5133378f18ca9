// Put with signal by NVSHMEM between two GPUs, as `device_bench` measures ccl's: a word and its
// notice go there and back in one kernel. A process for each GPU. Prints one line of JSON for each
// way. It is not part of the build, because it wants NVSHMEM:
//   nvcc -O3 -std=c++17 -arch=sm_90 -rdc=true -I$NVSHMEM/include nvshmem.cu -o one_way
//     -L$NVSHMEM/lib -lnvshmem_host -lnvshmem_device -lcuda
//   NVSHMEM_DISABLE_NVLS=1 ./one_way [rounds]
// Exits with 1 if a result is wrong.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <nvshmem.h>
#include <nvshmemx.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

void must(bool ok, const char* what, int line) {
  if (ok) return;
  std::printf("line %d: %s failed\n", line, what);
  std::fflush(stdout);
  std::_Exit(1);
}
#define MUST(call) must((call) == 0, #call, __LINE__)

enum class Notice { thread, warp, word };

/// A word goes from PE 0 to PE 1 and back, `rounds` times, by one warp.
template <Notice how>
__global__ void ping_pong(std::uint64_t* to, std::uint64_t* from, std::uint64_t* signal, int rounds,
                          std::uint64_t base, unsigned* wrong) {
  const int me = nvshmem_my_pe(), peer = 1 - me;
  unsigned bad = 0;
  for (std::uint64_t n = base; n < base + std::uint64_t(rounds); ++n) {
    const auto send = [&] {
      if constexpr (how == Notice::word) {
        if (threadIdx.x == 0) nvshmem_uint64_p(to, n, peer);
      } else {
        if (threadIdx.x == 0) *from = 3 * n;
        __syncwarp();
        if constexpr (how == Notice::warp) {
          nvshmemx_putmem_signal_warp(to, from, sizeof *from, signal, n, NVSHMEM_SIGNAL_SET, peer);
        } else if (threadIdx.x == 0) {
          nvshmem_putmem_signal(to, from, sizeof *from, signal, n, NVSHMEM_SIGNAL_SET, peer);
        }
      }
    };
    const auto wait = [&] {
      if (threadIdx.x == 0) {
        if constexpr (how == Notice::word) {
          nvshmem_uint64_wait_until(to, NVSHMEM_CMP_EQ, n);
        } else {
          nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, n);
          bad += *static_cast<volatile std::uint64_t*>(to) != 3 * n;
        }
      }
      __syncwarp();
    };
    if (me == 0) send();
    wait();
    if (me == 1) send();
  }
  if (bad != 0) *wrong = bad;
}

bool run(int rank, int rounds, const nvshmemx_uniqueid_t& id) {
  MUST(cudaSetDevice(rank));
  nvshmemx_init_attr_t with = NVSHMEMX_INIT_ATTR_INITIALIZER;
  MUST(nvshmemx_set_attr_uniqueid_args(rank, 2, &id, &with));
  MUST(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &with));
  auto* const words = static_cast<std::uint64_t*>(nvshmem_calloc(64, sizeof(std::uint64_t)));
  unsigned* wrong;
  MUST(cudaMalloc(&wrong, sizeof *wrong));
  MUST(cudaMemset(wrong, 0, sizeof *wrong));
  cudaStream_t stream;
  MUST(cudaStreamCreate(&stream));
  cudaEvent_t begin, end;
  MUST(cudaEventCreate(&begin));
  MUST(cudaEventCreate(&end));
  std::uint64_t base = 1;
  bool right = true;
  const auto measure = [&](const char* how, auto kernel) {
    double best = 0;
    for (int i = 0; i < 7; ++i, base += std::uint64_t(rounds)) {
      nvshmem_barrier_all();
      MUST(cudaEventRecord(begin, stream));
      kernel<<<1, 32, 0, stream>>>(words, words + 16, words + 32, rounds, base, wrong);
      MUST(cudaEventRecord(end, stream));
      MUST(cudaEventSynchronize(end));
      float ms = 0;
      MUST(cudaEventElapsedTime(&ms, begin, end));
      if (i == 1 || (i > 1 && ms < best)) best = ms;
    }
    unsigned found = 0;
    MUST(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDefault));
    right = right && found == 0;
    if (rank != 0) return;
    std::printf("{\"of\":\"one_way\",\"by\":\"NVSHMEM, %s\",\"us\":%.3f,\"ok\":%s}\n", how,
                best * 1e3 / rounds / 2, found == 0 ? "true" : "false");
    std::fflush(stdout);
  };
  measure("put with signal by a thread", ping_pong<Notice::thread>);
  measure("put with signal by a warp", ping_pong<Notice::warp>);
  measure("a word that is its own notice", ping_pong<Notice::word>);
  nvshmem_free(words);
  nvshmem_finalize();
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  auto* const id = new (::mmap(nullptr, sizeof(nvshmemx_uniqueid_t), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0))
      nvshmemx_uniqueid_t(NVSHMEMX_UNIQUEID_INITIALIZER);
  int ready[2];
  MUST(::pipe(ready));
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    must(::read(ready[0], &byte, 1) == 1, "read", __LINE__);
    std::_Exit(run(1, rounds, *id) ? 0 : 1);
  }
  MUST(nvshmemx_get_uniqueid(id));
  must(::write(ready[1], "r", 1) == 1, "write", __LINE__);
  const bool right = run(0, rounds, *id);
  int status = 0;
  ::waitpid(child, &status, 0);
  return right && status == 0 ? 0 : 1;
}
