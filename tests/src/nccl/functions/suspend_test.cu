// ncclCommSuspend and ncclCommResume on GPUs, with a process for each rank: the memory that the GPU
// has back, results of calls and of a captured graph afterwards, and the time that both take.
#include <algorithm>
#include <chrono>
#include <vector>

#include "gpu/nccl.cuh"

using namespace ccl::test;

namespace {

using Clock = std::chrono::steady_clock;

float value(int rank, ccl::Index i) {
  return float(rank + 1) * float(i % 13);
}
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>{Clock::now() - begin}.count();
}
double free_mib() {
  size_t free = 0, total = 0;
  MUST_CUDA(cudaMemGetInfo(&free, &total));
  return double(free) / (1 << 20);
}
std::uint64_t statistic(ncclComm_t comm, ncclCommMemStat_t which) {
  std::uint64_t bytes = 0;
  MUST_NCCL(ncclCommMemStats(comm, which, &bytes));
  return bytes;
}

/// Memory, stream and calls of a rank.
class Rank {
 public:
  static constexpr ccl::Index longest = 1 << 20;

  Rank(int rank, int ranks, ncclComm_t comm) : rank_{rank}, ranks_{ranks}, comm_{comm} {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    in_.fill([rank](ccl::Index i) { return value(rank, i); }, stream_);
  }
  ~Rank() { MUST_CUDA(cudaStreamDestroy(stream_)); }

  void reduce(ccl::Index n) {
    MUST_NCCL(ncclAllReduce(in_.get(), out_.get(), size_t(n), ncclFloat, ncclSum, comm_, stream_));
  }
  void gather(ccl::Index each) {
    MUST_NCCL(ncclAllGather(in_.get(), out_.get(), size_t(each), ncclFloat, comm_, stream_));
  }
  void pass_on(ccl::Index n) {
    MUST_NCCL(ncclGroupStart());
    MUST_NCCL(ncclSend(in_.get(), size_t(n), ncclFloat, (rank_ + 1) % ranks_, comm_, stream_));
    MUST_NCCL(
        ncclRecv(out_.get(), size_t(n), ncclFloat, (rank_ + ranks_ - 1) % ranks_, comm_, stream_));
    MUST_NCCL(ncclGroupEnd());
  }
  void check_sums(const char* when, ccl::Index n) {
    const auto sum = [this](ccl::Index i) {
      return float(ranks_ * (ranks_ + 1) / 2) * value(0, i);
    };
    expect(when, n, sum);
  }
  /// All kinds of calls, each with its results.
  void call_all(const char* when) {
    for (const ccl::Index n : {ccl::Index{1}, ccl::Index{5000}, longest}) {
      reduce(n);
      check_sums(when, n);
      const ccl::Index each = n / ranks_ + 1;
      gather(each);
      expect(when, each * ranks_, [each](ccl::Index i) { return value(int(i / each), i % each); });
      pass_on(n);
      const int last = (rank_ + ranks_ - 1) % ranks_;
      expect(when, n, [last](ccl::Index i) { return value(last, i); });
    }
  }
  cudaStream_t stream() const { return stream_; }

 private:
  template <class F>
  void expect(const char* when, ccl::Index n, F&& want) {
    const long wrong = out_.wrong(n, want, stream_);
    check(wrong == 0, "%s: %ld of %ld elements on rank %d of %d", when, wrong, long(n), rank_,
          ranks_);
  }

  int rank_, ranks_;
  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  Buffer<float> in_{longest + 64, 0}, out_{longest + 64, 0};
};

/// One sum of each length in a graph.
class Sums {
 public:
  explicit Sums(Rank& rank) : rank_{rank} {
    for (const ccl::Index n : {ccl::Index{100}, Rank::longest}) {
      cudaGraph_t graph;
      MUST_CUDA(cudaStreamBeginCapture(rank.stream(), cudaStreamCaptureModeThreadLocal));
      rank.reduce(n);
      MUST_CUDA(cudaStreamEndCapture(rank.stream(), &graph));
      cudaGraphExec_t ready;
      MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
      MUST_CUDA(cudaGraphDestroy(graph));
      graphs_.push_back({ready, n});
    }
  }
  ~Sums() {
    for (const auto& one : graphs_) MUST_CUDA(cudaGraphExecDestroy(one.ready));
  }
  void replay(const char* when) {
    for (const auto& one : graphs_) {
      for (int i = 0; i < 20; ++i) MUST_CUDA(cudaGraphLaunch(one.ready, rank_.stream()));
      rank_.check_sums(when, one.n);
    }
  }

 private:
  struct One {
    cudaGraphExec_t ready;
    ccl::Index n;
  };
  Rank& rank_;
  std::vector<One> graphs_;
};

void rank_of_its_own(int rank, int ranks, int gpus, const ncclUniqueId& id) {
  MUST_CUDA(cudaSetDevice(rank % gpus));
  ncclComm_t comm;
  MUST_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  {
    Rank mine{rank, ranks, comm};
    mine.call_all("before");
    Sums graphs{mine};
    graphs.replay("a graph before");
    for (int round = 0; round < 5; ++round) {
      const double can_rest = double(statistic(comm, ncclStatGpuMemSuspend)) / (1 << 20);
      const double stays = double(statistic(comm, ncclStatGpuMemPersist)) / (1 << 20);
      MUST_CUDA(cudaDeviceSynchronize());
      const double before = free_mib();
      auto begin = Clock::now();
      MUST_NCCL(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
      const double suspended = ms_since(begin), given_back = free_mib() - before;
      check(statistic(comm, ncclStatGpuMemSuspended) == 1, "rank %d is not suspended", rank);
      check(can_rest > 0, "rank %d has nothing to give back", rank);
      // Ranks that share a GPU give back at different times.
      check(ranks > gpus || given_back >= can_rest * 0.9, "rank %d got %.1f MiB of %.1f back", rank,
            given_back, can_rest);
      float* const none = nullptr;
      check(
          ncclAllReduce(none, none, 0, ncclFloat, ncclSum, comm, mine.stream()) == ncclInvalidUsage,
          "rank %d may call while it is suspended", rank);
      begin = Clock::now();
      MUST_NCCL(ncclCommResume(comm));
      const double resumed = ms_since(begin);
      graphs.replay("a graph after it rested");
      mine.call_all("after it rested");
      if (rank == 0) {
        std::printf(
            "%d ranks, %d GPUs: %.1f MiB can rest, %.1f MiB stay, the GPU has %.1f MiB more; "
            "suspend %.2f ms, resume %.2f ms\n",
            ranks, gpus, can_rest, stays, given_back, suspended, resumed);
        std::fflush(stdout);
      }
    }
  }
  MUST_NCCL(ncclCommDestroy(comm));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ncclUniqueId id;
  MUST_NCCL(ncclGetUniqueId(&id));
  fork_ranks(ranks.count, [&](int r) { rank_of_its_own(r, ranks.count, ranks.gpus, id); });
  return result("Suspended communicators", ranks.gpus);
}
