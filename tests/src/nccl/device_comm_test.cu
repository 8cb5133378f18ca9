// Kernels that are compiled with NVIDIA's headers, over communicators and windows of ccl's libnccl:
// pointers to peers' memory, barriers, a sum in the kernel, and graphs. The ranks are threads of
// one process, then processes. Without these headers nothing is tested.
#if __has_include(<nccl_device.h>)
#  include <nccl.h>
#  include <nccl_device.h>
#  define CCL_HAS_NCCL_DEVICE
#endif

#include "gpu/nccl.cuh"

#ifdef CCL_HAS_NCCL_DEVICE
using namespace ccl::test;

namespace {

constexpr int blocks = 4, threads = 256;
constexpr int longest = 1 << 20;  // elements of a sum

ncclDevCommRequirements begun() {
#  ifdef NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER
  return NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
#  else
  return {};
#  endif
}

__device__ int* as_ints(void* at) {
  return static_cast<int*>(at);
}

/// Writes to each peer's part, by both kinds of pointers, and checks its own afterwards.
__global__ void write_to_peers(ncclDevComm comm, ncclWindow_t window, int call, int* wrong) {
  ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), 0};
  const int ranks = comm.nRanks, rank = comm.rank;
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);  // peers have read what was there
  for (int p = int(threadIdx.x); p < ranks; p += int(blockDim.x)) {
    *as_ints(ncclGetLsaPointer(window, size_t(rank) * sizeof(int), p)) = call * 1000 + rank;
    *as_ints(ncclGetPeerPointer(window, size_t(ranks + rank) * sizeof(int), p)) = call + rank;
    *as_ints(ncclGetPeerPointer(window, size_t(2 * ranks + rank) * sizeof(int), ncclTeamWorld(comm),
                                p)) = call - rank;
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  const volatile int* const mine = as_ints(ncclGetLocalPointer(window, 0));
  for (int p = int(threadIdx.x); p < ranks; p += int(blockDim.x)) {
    const bool right = mine[p] == call * 1000 + p && mine[ranks + p] == call + p &&
                       mine[2 * ranks + p] == call - p;
    if (!right) atomicAdd(wrong, 1);
    // What this rank reads of a peer is what the peer was sent.
    const volatile int* const theirs = as_ints(ncclGetLsaPointer(window, 0, p));
    if (theirs[rank] != call * 1000 + rank) atomicAdd(wrong, 1);
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);  // peers have read
}

/// Barriers of all blocks, each with a number that peers must see behind it.
__global__ void count_rounds(ncclDevComm comm, ncclDevResourceHandle counts, int begin, int rounds,
                             int* wrong) {
  ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  const int ranks = comm.nRanks, row = int(blockIdx.x) * ranks;
  const volatile int* const mine = as_ints(ncclGetResourceBufferLocalPointer(comm, counts)) + row;
  for (int round = begin + 1; round <= begin + rounds; ++round) {
    for (int p = int(threadIdx.x); p < ranks; p += int(blockDim.x)) {
      as_ints(ncclGetResourceBufferLsaPointer(comm, counts, p))[row + comm.rank] = round;
    }
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
    for (int p = int(threadIdx.x); p < ranks; p += int(blockDim.x)) {
      if (mine[p] != round) atomicAdd(wrong, 1);
    }
    barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
  }
}

/// Each rank adds up its share of all ranks' memory and writes the sums to all.
__global__ void all_reduce(ncclDevComm comm, ncclWindow_t in, size_t in_offset, ncclWindow_t out,
                           int count) {
  ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
  barrier.sync(ncclCoopCta(), cuda::memory_order_relaxed);
  const int ranks = comm.nRanks;
  const int step = int(gridDim.x * blockDim.x) * ranks;
  const int first = (int(blockIdx.x * blockDim.x) + int(threadIdx.x)) * ranks + comm.rank;
  for (int i = first; i < count; i += step) {
    float sum = 0;
    for (int p = 0; p < ranks; ++p) {
      sum += static_cast<float*>(ncclGetLsaPointer(in, in_offset, p))[i];
    }
    for (int p = 0; p < ranks; ++p) {
      static_cast<float*>(ncclGetLsaPointer(out, 0, p))[i] = sum;
    }
  }
  barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

/// Barrier of the kind that serves teams of any size. The headers before 2.29.7 do not compile it.
struct AnyBarrier {
#  if NCCL_VERSION_CODE >= 22907
  ncclBarrierSession<ncclCoopCta> session;
  __device__ AnyBarrier(ncclCoopCta all, const ncclDevComm& comm, unsigned index)
      : session{all, ncclTeamTagLsa(), comm, index} {}
  __device__ void sync(ncclCoopCta all) {
    session.sync(all, cuda::memory_order_acq_rel, ncclGinFenceLevel(0));
  }
#  else
  ncclLsaBarrierSession<ncclCoopCta> session;
  __device__ AnyBarrier(ncclCoopCta all, const ncclDevComm& comm, unsigned index)
      : session{all, comm, ncclTeamTagLsa(), index} {}
  __device__ void sync(ncclCoopCta all) { session.sync(all, cuda::memory_order_acq_rel); }
#  endif
};

/// Exchanges with all peers through lines of data and flags, with a barrier behind each round.
__global__ void exchange(ncclDevComm comm, ncclLLA2AHandle lines, int begin, int rounds,
                         int* wrong) {
  const ncclCoopCta all;
  ncclLLA2ASession<ncclCoopCta> session{all,   comm,       ncclTeamLsa(comm),
                                        lines, blockIdx.x, comm.nRanks};
  AnyBarrier barrier{all, comm, blockIdx.x};
  for (int round = begin + 1; round <= begin + rounds; ++round) {
    for (int p = int(threadIdx.x); p < comm.nRanks; p += int(blockDim.x)) {
      session.send(p, comm.rank, (unsigned long long)(round)*1000 + comm.rank);
    }
    for (int p = int(threadIdx.x); p < comm.nRanks; p += int(blockDim.x)) {
      const auto got = session.template recv<unsigned long long>(p);
      if (got != (unsigned long long)(round)*1000 + p) atomicAdd(wrong, 1);
    }
    session.endEpoch(all);
    barrier.sync(all);
  }
}

/// Finds the windows of addresses.
__global__ void find_windows(ncclDevComm comm, const void* a, ncclWindow_t is_a, const void* b,
                             ncclWindow_t is_b, int* wrong) {
  if (ncclFindWindow(ncclCoopWarp(), comm, a) != is_a) atomicAdd(wrong, 1);
  if (ncclFindWindow(ncclCoopWarp(), comm, b) != is_b) atomicAdd(wrong, 1);
}

float value(int rank, int i) {
  return float(rank + 1) * float(i % 13);
}

/// One rank: its windows, its communicator of kernels, and what they must leave.
class Rank {
 public:
  /// Processes that share a GPU take turns on it, so that each round takes milliseconds there.
  Rank(int rank, int ranks, bool share, ncclComm_t comm)
      : rank_{rank},
        ranks_{ranks},
        rounds_{share ? 10 : 1000},
        replays_{share ? 2 : 20},
        comm_{comm} {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MUST_CUDA(cudaMalloc(reinterpret_cast<void**>(&wrong_), sizeof(int)));
    MUST_CUDA(cudaMemset(wrong_, 0, sizeof(int)));
    constexpr size_t bytes = longest * sizeof(float);
    MUST_NCCL(ncclMemAlloc(reinterpret_cast<void**>(&in_), 2 * bytes));
    MUST_NCCL(ncclMemAlloc(reinterpret_cast<void**>(&out_), bytes));
    MUST_NCCL(ncclCommWindowRegister(comm, in_, 2 * bytes, &in_window_, NCCL_WIN_COLL_SYMMETRIC));
    ncclDevResourceRequirements counts{};
    counts.bufferSize = size_t(blocks * ranks) * sizeof(int);
    counts.bufferAlign = 256;
    counts.outBufferHandle = &counts_;
    ncclDevResourceRequirements lines{};
    MUST_NCCL(ncclLLA2ACreateRequirement(blocks, ncclLLA2ACalcSlots(ranks, 8), &lines_, &lines));
    counts.next = &lines;
    ncclDevCommRequirements wants = begun();
    wants.lsaBarrierCount = wants.barrierCount = blocks;
    wants.resourceRequirementsList = &counts;
    MUST_NCCL(ncclDevCommCreate(comm, &wants, &dev_comm_));
    // This one comes later into the table of windows.
    MUST_NCCL(ncclCommWindowRegister(comm, out_, bytes, &out_window_, NCCL_WIN_COLL_SYMMETRIC));
    check(in_window_ != nullptr && out_window_ != nullptr, "rank %d has no window", rank);
    host_.resize(size_t(2 * longest));
    for (int i = 0; i < longest; ++i) {
      host_[size_t(i)] = value(rank, i);
      host_[size_t(longest + i)] = value(rank, i) + 1;
    }
    MUST_CUDA(cudaMemcpy(in_, host_.data(), 2 * bytes, cudaMemcpyHostToDevice));
  }
  ~Rank() {
    MUST_CUDA(cudaStreamSynchronize(stream_));
    MUST_NCCL(ncclDevCommDestroy(comm_, &dev_comm_));
    check(ncclDevCommDestroy(comm_, &dev_comm_) == ncclInvalidArgument, "destroyed twice");
    MUST_NCCL(ncclCommWindowDeregister(comm_, in_window_));
    MUST_NCCL(ncclCommWindowDeregister(comm_, out_window_));
    MUST_NCCL(ncclMemFree(in_));
    MUST_NCCL(ncclMemFree(out_));
    MUST_CUDA(cudaFree(wrong_));
    MUST_CUDA(cudaStreamDestroy(stream_));
  }

  void run() {
    find_windows<<<1, 32, 0, stream_>>>(dev_comm_, in_ + 5, in_window_, out_ + longest - 1,
                                        out_window_, wrong_);
    expect_none("windows that kernels found");
    for (const int count : {1, 1000, longest}) {
      for (const bool second : {false, true}) {
        sum(count, second);
        expect_sums("a sum", count, second);
      }
    }
    for (int call = 1; call <= 20; ++call) {
      write_to_peers<<<1, 64, 0, stream_>>>(dev_comm_, out_window_, call, wrong_);
    }
    expect_none("values of peers");
    count_rounds<<<blocks, threads, 0, stream_>>>(dev_comm_, counts_, 0, rounds_, wrong_);
    expect_none("numbers behind barriers");
    for (const int begin : {0, rounds_}) {
      exchange<<<blocks, threads, 0, stream_>>>(dev_comm_, lines_, begin, rounds_, wrong_);
    }
    expect_none("exchanged values");
    graphs();
  }

 private:
  void sum(int count, bool second) {
    all_reduce<<<blocks, threads, 0, stream_>>>(
        dev_comm_, in_window_, second ? longest * sizeof(float) : 0, out_window_, count);
  }
  void graphs() {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    MUST_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    sum(longest, true);
    write_to_peers<<<1, 64, 0, stream_>>>(dev_comm_, in_window_, 7, wrong_);
    count_rounds<<<blocks, threads, 0, stream_>>>(dev_comm_, counts_, rounds_, rounds_, wrong_);
    exchange<<<blocks, threads, 0, stream_>>>(dev_comm_, lines_, 2 * rounds_, rounds_, wrong_);
    MUST_CUDA(cudaStreamEndCapture(stream_, &graph));
    MUST_CUDA(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < replays_; ++i) MUST_CUDA(cudaGraphLaunch(ready, stream_));
    expect_none("values of graphs");
    expect_sums("a sum of a graph", longest, true);
    MUST_CUDA(cudaGraphExecDestroy(ready));
    MUST_CUDA(cudaGraphDestroy(graph));
  }
  void expect_none(const char* what) {
    int wrong = 0;
    MUST_CUDA(cudaGetLastError());
    MUST_CUDA(cudaMemcpyAsync(&wrong, wrong_, sizeof wrong, cudaMemcpyDeviceToHost, stream_));
    MUST_CUDA(cudaStreamSynchronize(stream_));
    check(wrong == 0, "%s: %d are wrong on rank %d of %d", what, wrong, rank_, ranks_);
  }
  void expect_sums(const char* what, int count, bool second) {
    MUST_CUDA(cudaGetLastError());
    MUST_CUDA(cudaMemcpyAsync(host_.data(), out_, size_t(count) * sizeof(float),
                              cudaMemcpyDeviceToHost, stream_));
    MUST_CUDA(cudaStreamSynchronize(stream_));
    int wrong = 0;
    for (int i = 0; i < count; ++i) {
      const float want = float(ranks_ * (ranks_ + 1) / 2) * value(0, i);
      wrong += host_[size_t(i)] != want + (second ? float(ranks_) : 0.0f);
    }
    check(wrong == 0, "%s: %d of %d elements on rank %d of %d", what, wrong, count, rank_, ranks_);
  }

  int rank_, ranks_;
  int rounds_, replays_;
  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  int* wrong_ = nullptr;
  float *in_ = nullptr, *out_ = nullptr;
  ncclWindow_t in_window_ = nullptr, out_window_ = nullptr;
  ncclDevResourceHandle_t counts_ = 0;
  ncclLLA2AHandle lines_{};
  ncclDevComm dev_comm_{};
  std::vector<float> host_;
};

/// Requirements that ccl does not have fail alike on all ranks, and the communicator goes on.
void refusals(ncclComm_t comm, int rank, int ranks) {
  ncclDevComm none{};
  ncclDevCommRequirements wants = begun();
  wants.lsaMultimem = rank == 0;
  check(ncclDevCommCreate(comm, &wants, &none) == ncclInvalidUsage, "multimem on rank %d", rank);
  wants = begun();
  wants.ginSignalCount = 1;
  check(ncclDevCommCreate(comm, &wants, &none) == ncclInvalidUsage, "GIN on rank %d", rank);
  if (ranks == 1) return;
  wants = begun();
  wants.lsaBarrierCount = 1 + rank;
  check(ncclDevCommCreate(comm, &wants, &none) != ncclSuccess, "a mismatch on rank %d", rank);
}

void run_rank(int rank, int ranks, int gpus, const ncclUniqueId& id) {
  MUST_CUDA(cudaSetDevice(rank % gpus));
  ncclComm_t comm;
  MUST_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  refusals(comm, rank, ranks);
  for (int time = 0; time < 3; ++time) {
    Rank mine{rank, ranks, ranks > gpus, comm};
    mine.run();
  }
  MUST_NCCL(ncclCommDestroy(comm));
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  MUST_NCCL(ncclGetUniqueId(&id));
  return id;
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  // Kernels of threads that share a GPU can block each other: 8 ranks on 4 GPUs did not end.
  if (asked_for("threads") && !ranks.share()) {
    fork_ranks(1, [&](int) {
      const ncclUniqueId id = new_id();
      std::vector<std::thread> all;
      for (int r = 0; r < ranks.count; ++r) {
        all.emplace_back([&, r] { run_rank(r, ranks.count, ranks.gpus, id); });
      }
      for (auto& one : all) one.join();
    });
  }
  if (asked_for("processes")) {
    const ncclUniqueId id = new_id();
    fork_ranks(ranks.count, [&](int r) { run_rank(r, ranks.count, ranks.gpus, id); });
  }
  std::printf("kernels of NCCL %d: %ld cases, %ld wrong\n", NCCL_VERSION_CODE, long(score().cases),
              long(score().wrong));
  return score().wrong == 0 ? 0 : 1;
}
#else
int main() {
  std::printf("SKIP: no GPU test without NVIDIA's nccl_device.h\n");
  return 77;
}
#endif
