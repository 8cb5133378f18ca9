// Puts with signals between two GPUs of one process, through NCCL's interface: by NVIDIA's library
// or by ccl's. A thread for each rank; a message goes there and back, eagerly and in graphs. Prints
// one line of JSON for each size. Results are checked. Registrations of windows are timed first.
//   signal_bench LIBNCCL [min bytes] [max bytes]
#include <ccl/types/word.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "machine.cuh"
#include "nccl_at_run_time.hpp"

using namespace ccl;
using namespace ccl::bench;

namespace {

__global__ void write_words(unsigned* to, Index words, unsigned seed) {
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < words;
       i += Index{gridDim.x} * blockDim.x) {
    to[i] = unsigned(i) * 2654435761u + seed;
  }
}
__global__ void compare(const unsigned* got, Index words, unsigned seed, unsigned* wrong) {
  unsigned bad = 0;
  for (Index i = blockIdx.x * Index{blockDim.x} + threadIdx.x; i < words;
       i += Index{gridDim.x} * blockDim.x) {
    bad += got[i] != unsigned(i) * 2654435761u + seed;
  }
  if (bad != 0) atomicAdd(wrong, bad);
}

/// A rank, in a thread of its own.
class Rank {
 public:
  Rank(const Nccl& nccl, Nccl::Comm comm, int rank, Index max_bytes)
      : nccl_{nccl}, comm_{comm}, rank_{rank}, room_{size_t(max_bytes + 4096)} {
    MUST(cudaSetDevice(rank));
    MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST_NCCL(nccl.alloc(&from_, room_));
    MUST_NCCL(nccl.alloc(&to_, room_));
    MUST_NCCL(nccl.register_window(comm, to_, room_, &window_, Nccl::symmetric));
    MUST(cudaMalloc(&wrong_, sizeof *wrong_));
    MUST(cudaMemset(wrong_, 0, sizeof *wrong_));
    MUST(cudaDeviceSynchronize());
  }

  void register_source() {
    MUST_NCCL(nccl_.register_window(comm_, from_, room_, &source_, Nccl::symmetric));
  }
  /// Returns the microseconds to register a window of `bytes` and to end it.
  std::pair<double, double> register_us(Index bytes) {
    using Clock = std::chrono::steady_clock;
    using Us = std::chrono::duration<double, std::micro>;
    const auto begin = Clock::now();
    struct ncclWindow* window = nullptr;
    MUST_NCCL(nccl_.register_window(comm_, from_, size_t(bytes), &window, Nccl::symmetric));
    const auto registered = Clock::now();
    MUST_NCCL(nccl_.deregister_window(comm_, window));
    return {Us{registered - begin}.count(), Us{Clock::now() - registered}.count()};
  }
  /// Fills the message that goes out, and forgets the one that came in.
  void prepare(Index bytes, unsigned seed) {
    write_words<<<256, 512, 0, stream_>>>(static_cast<unsigned*>(from_), bytes / 4,
                                          seed + unsigned(rank_));
    MUST(cudaMemsetAsync(to_, 0, size_t(bytes), stream_));
    MUST(cudaStreamSynchronize(stream_));
  }
  /// There and back `times` times. Returns the first error.
  int exchange(Index bytes, int times) {
    for (int i = 0; i < times; ++i) {
      Nccl::WaitFor peer{1, 1 - rank_, 0, 0};
      if (rank_ == 1) {
        if (const int error = nccl_.wait_signal(1, &peer, comm_, stream_)) return error;
      }
      if (const int error = nccl_.put_signal(from_, size_t(bytes), Nccl::int8, 1 - rank_, window_,
                                             0, 0, 0, 0, comm_, stream_)) {
        return error;
      }
      if (rank_ == 0) {
        if (const int error = nccl_.wait_signal(1, &peer, comm_, stream_)) return error;
      }
    }
    return 0;
  }
  unsigned check(Index bytes, unsigned seed) {
    compare<<<256, 512, 0, stream_>>>(static_cast<const unsigned*>(to_), bytes / 4,
                                      seed + unsigned(1 - rank_), wrong_);
    unsigned wrong = 0;
    MUST(cudaMemcpyAsync(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost, stream_));
    MUST(cudaStreamSynchronize(stream_));
    return wrong;
  }
  cudaStream_t stream() const { return stream_; }

 private:
  const Nccl& nccl_;
  Nccl::Comm comm_;
  const int rank_;
  const size_t room_;
  cudaStream_t stream_ = nullptr;
  void *from_ = nullptr, *to_ = nullptr;
  struct ncclWindow *window_ = nullptr, *source_ = nullptr;
  unsigned* wrong_ = nullptr;
};

class Bench {
 public:
  Bench(const Nccl& nccl, Index max_bytes) : nccl_{nccl}, max_bytes_{max_bytes} {
    const int devices[] = {0, 1};
    MUST_NCCL(nccl.init_all(comms_, 2, devices));
  }

  /// What each rank's thread does.
  void run(int r, Index min_bytes) {
    Rank rank{nccl_, comms_[r], r, max_bytes_};
    time_registrations(rank, r);
    rank.register_source();
    for (const bool graph : {false, true}) {
      for (Index bytes = min_bytes; bytes <= max_bytes_; bytes *= 8) {
        if (!measure(rank, r, bytes, graph)) return;
      }
    }
  }
  bool right() const { return wrong_ == 0; }

 private:
  static constexpr int times = 20, rounds = 15;

  void time_registrations(Rank& rank, int r) {
    std::vector<double> begin, end;
    for (int round = 0; round < rounds; ++round) {
      together_.arrive_and_wait();
      const auto [registered, ended] = rank.register_us(max_bytes_);
      begin.push_back(registered);
      end.push_back(ended);
    }
    if (r != 0) return;
    std::sort(begin.begin(), begin.end());
    std::sort(end.begin(), end.end());
    std::printf(
        "{\"bench\":\"window\",\"nccl\":%d,\"bytes\":%lld,\"register_us\":%.1f,"
        "\"deregister_us\":%.1f}\n",
        nccl_.version(), static_cast<long long>(max_bytes_), begin[rounds / 2], end[rounds / 2]);
  }
  bool measure(Rank& rank, int r, Index bytes, bool graph) {
    const unsigned seed = unsigned(bytes) + (graph ? 1 : 0);
    rank.prepare(bytes, seed);
    together_.arrive_and_wait();
    cudaGraphExec_t ready = nullptr;
    if (graph) {
      cudaGraph_t captured;
      MUST(cudaStreamBeginCapture(rank.stream(), cudaStreamCaptureModeThreadLocal));
      const int error = rank.exchange(bytes, times);
      const cudaError_t ended = cudaStreamEndCapture(rank.stream(), &captured);
      if (error != 0 || ended != cudaSuccess) {
        if (r == 0) std::printf("no graphs: NCCL error %d, %s\n", error, cudaGetErrorString(ended));
        return false;
      }
      MUST(cudaGraphInstantiate(&ready, captured, 0));
      MUST(cudaGraphDestroy(captured));
    }
    std::vector<double> us;
    for (int round = 0; round < rounds + 2; ++round) {
      together_.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      if (graph) {
        MUST(cudaGraphLaunch(ready, rank.stream()));
      } else {
        MUST_NCCL(rank.exchange(bytes, times));
      }
      MUST(cudaStreamSynchronize(rank.stream()));
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      if (round >= 2) us.push_back(took.count() / times / 2);
    }
    wrong_ += rank.check(bytes, seed);
    if (graph) MUST(cudaGraphExecDestroy(ready));
    together_.arrive_and_wait();
    if (r == 0) {
      std::sort(us.begin(), us.end());
      std::printf(
          "{\"bench\":\"signal\",\"nccl\":%d,\"how\":\"%s\",\"bytes\":%lld,\"us\":%.2f,"
          "\"wrong\":%u}\n",
          nccl_.version(), graph ? "graph" : "eager", static_cast<long long>(bytes),
          us[us.size() / 2], wrong_.load());
      std::fflush(stdout);
    }
    return true;
  }

  const Nccl& nccl_;
  const Index max_bytes_;
  Nccl::Comm comms_[2] = {};
  std::barrier<> together_{2};
  std::atomic<unsigned> wrong_{0};
};

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  int gpus = 0;
  (void)cudaGetDeviceCount(&gpus);
  if (gpus < 2) {
    std::printf("SKIP: needs two GPUs, has %d\n", gpus);
    return 77;
  }
  const Nccl nccl{argc > 1 ? argv[1] : "libnccl.so.2"};
  if (nccl.put_signal == nullptr || nccl.wait_signal == nullptr) {
    std::printf("SKIP: NCCL %d has no signals\n", nccl.version());
    return 77;
  }
  const Index min = argc > 2 ? std::atoll(argv[2]) : 8;
  const Index max = argc > 3 ? std::atoll(argv[3]) : Index{16} << 20;
  Bench bench{nccl, max};
  std::thread second{[&] { bench.run(1, min); }};
  bench.run(0, min);
  second.join();
  return bench.right() ? 0 : 1;
}
