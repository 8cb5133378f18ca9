// An all-reduce of each size by `Nvls` whose multicast is emulated by loads and stores to peers,
// beside `OneShot` and `TwoShot`: ranks as threads of one process, calls in a graph, bfloat16.
// Prints one line of JSON for each size, on rank 0: medians over rounds, in us (0: not measured).
// Results are checked.
//   nvls_bench [min bytes] [max bytes] [ranks]
// Exits with 1 if a result is wrong.
#include <ccl/ccl.cuh>
// after the header that suppresses warnings
#include <ccl/algo/nvls.hpp>
#include <ccl/transport/nvls.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "machine.cuh"

using namespace ccl;
using bench::must;

namespace {

std::atomic<bool> all_good{true};

__global__ void fill(bfloat16* to, Index count, int rank) {
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < count;
       i += Index{gridDim.x} * blockDim.x) {
    to[i] = bfloat16(float((i + rank) % 7));
  }
}
__global__ void compare(const bfloat16* got, Index count, int ranks, unsigned* wrong) {
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < count;
       i += Index{gridDim.x} * blockDim.x) {
    float want = 0;
    for (int r = 0; r < ranks; ++r) want += float((i + r) % 7);
    if (float(got[i]) != want) atomicAdd(wrong, 1u);
  }
}

class Rank {
 public:
  Rank(const Communicator& comm, Index max_bytes) : comm_{comm} {
    MUST(cudaSetDevice(comm.device()));
    MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST(cudaMalloc(&in_, size_t(max_bytes)));
    MUST(cudaMalloc(&out_, size_t(max_bytes)));
    MUST(cudaMalloc(&wrong_, sizeof *wrong_));
    MUST(cudaEventCreate(&begin_));
    MUST(cudaEventCreate(&end_));
  }

  void measure(Index bytes) {
    const Index count = bytes / Index{sizeof(bfloat16)};
    fill<<<256, 512, 0, stream_>>>(in_, count, comm_.rank());
    const double nvls = time<Nvls, Simple, EmulatedNvlsTransport>(count);
    const double one = bytes <= Index{1} << 20 ? time<OneShot, LL128, DefaultTransport>(count) : 0;
    const double two = time<TwoShot, LL128, DefaultTransport>(count);
    if (comm_.rank() != 0) return;
    std::printf(
        "{\"bytes\":%lld,\"nvls_emulated_us\":%.2f,\"one_shot_us\":%.2f,"
        "\"two_shot_us\":%.2f,\"ok\":%s}\n",
        static_cast<long long>(bytes), nvls, one, two, all_good ? "true" : "false");
    std::fflush(stdout);
  }

 private:
  static constexpr int calls = 20, rounds = 9;

  /// Returns the median microseconds of a call.
  template <class Algo, class Proto, class Transports>
  double time(Index count) {
    const auto call = must(Collective<AllReduce, Algo, Proto, Transports>::create(comm_));
    MUST(cudaMemsetAsync(out_, 0, size_t(count) * sizeof(bfloat16), stream_));
    cudaGraph_t captured;
    cudaGraphExec_t ready;
    MUST(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int n = 0; n < calls; ++n) must(call(in_, out_, count, Sum{}, stream_));
    MUST(cudaStreamEndCapture(stream_, &captured));
    MUST(cudaGraphInstantiate(&ready, captured, 0));
    std::vector<double> us;
    for (int round = 0; round < rounds + 2; ++round) {
      must(comm_.barrier());
      MUST(cudaEventRecord(begin_, stream_));
      MUST(cudaGraphLaunch(ready, stream_));
      MUST(cudaEventRecord(end_, stream_));
      MUST(cudaEventSynchronize(end_));
      float ms = 0;
      MUST(cudaEventElapsedTime(&ms, begin_, end_));
      if (round >= 2) us.push_back(double(ms) * 1000 / calls);
    }
    check(count);
    must(comm_.barrier());
    MUST(cudaGraphExecDestroy(ready));
    MUST(cudaGraphDestroy(captured));
    std::nth_element(us.begin(), us.begin() + rounds / 2, us.end());
    return us[rounds / 2];
  }
  void check(Index count) {
    unsigned wrong = 0;
    MUST(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_));
    compare<<<256, 512, 0, stream_>>>(out_, count, comm_.ranks(), wrong_);
    MUST(cudaMemcpyAsync(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost, stream_));
    MUST(cudaStreamSynchronize(stream_));
    if (wrong != 0) all_good = false;
  }

  const Communicator& comm_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  bfloat16 *in_ = nullptr, *out_ = nullptr;
  unsigned* wrong_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("SKIP: no GPU\n");
    return 77;
  }
  const Index min = argc > 1 ? std::atoll(argv[1]) : 256;
  const Index max = argc > 2 ? std::atoll(argv[2]) : Index{64} << 20;
  const int ranks = argc > 3 ? std::atoi(argv[3]) : std::max(gpus, 2);
  auto comms = must(Communicator::create_all(ranks));
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&comm, min, max] {
      Rank rank{comm, max};
      for (Index bytes = min; bytes <= max; bytes *= 4) rank.measure(bytes);
    });
  }
  for (auto& thread : threads) thread.join();
  return all_good ? 0 : 1;
}
