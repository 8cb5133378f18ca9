// Communicators on GPUs that grow and shrink while another one computes, with a process for each
// rank: two ranks grow to all of TEST_RANKS (4 if there are fewer GPUs), which shrink by one. The
// growing ranks' first communicator is in use throughout, by a thread of its own.
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "gpu/nccl.cuh"

using namespace ccl::test;

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>{Clock::now() - begin}.count();
}

/// What the processes share.
struct Shared {
  ncclUniqueId first, beside, grown;
  std::atomic<bool> has_grown_id;
};

/// Sums of ones over a communicator.
class Ones {
 public:
  Ones(ncclComm_t comm, ccl::Index n) : comm_{comm}, count_{n}, in_{n, 0}, out_{n, 0} {
    MUST_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    in_.fill([](ccl::Index) { return 1.0f; }, stream_);
    MUST_NCCL(ncclCommCount(comm, &ranks_));
  }
  ~Ones() { MUST_CUDA(cudaStreamDestroy(stream_)); }
  void sum(const char* what) {
    MUST_NCCL(
        ncclAllReduce(in_.get(), out_.get(), size_t(count_), ncclFloat, ncclSum, comm_, stream_));
    const long wrong = out_.wrong(
        count_, [this](ccl::Index) { return float(ranks_); }, stream_);
    check(wrong == 0, "%s: %ld of %ld elements, %d ranks", what, wrong, long(count_), ranks_);
  }

 private:
  ncclComm_t comm_;
  ccl::Index count_;
  int ranks_ = 0;
  cudaStream_t stream_ = nullptr;
  Buffer<float> in_, out_;
};

/// Calls of a communicator by a thread, until the two ranks have agreed to end.
class Beside {
 public:
  Beside(ncclComm_t comm, int gpu) : thread_{[this, comm, gpu] { run(comm, gpu); }} {}
  long end() {
    end_ = true;
    thread_.join();
    return calls_;
  }

 private:
  void run(ncclComm_t comm, int gpu) {
    MUST_CUDA(cudaSetDevice(gpu));
    Ones large{comm, 1 << 20}, small{comm, 100};
    // The sum of who wants to end is the same on both ranks.
    Buffer<float> wants{1, 0}, all{1, 0};
    cudaStream_t stream;
    MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (bool ended = false; !ended;) {
      for (int i = 0; i < 10; ++i, calls_ += 2) large.sum("beside"), small.sum("beside");
      const float want = end_ ? 1 : 0;
      float both = 0;
      MUST_CUDA(cudaMemcpyAsync(wants.get(), &want, sizeof want, cudaMemcpyHostToDevice, stream));
      MUST_NCCL(ncclAllReduce(wants.get(), all.get(), 1, ncclFloat, ncclSum, comm, stream));
      MUST_CUDA(cudaMemcpyAsync(&both, all.get(), sizeof both, cudaMemcpyDeviceToHost, stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      ended = both == 2;
    }
    MUST_CUDA(cudaStreamDestroy(stream));
  }

  std::atomic<bool> end_{false};
  long calls_ = 0;
  std::thread thread_;
};

void play(int rank, int ranks, int gpus, Shared& shared) {
  const int gpu = rank % gpus;
  MUST_CUDA(cudaSetDevice(gpu));
  ncclComm_t first = nullptr, other = nullptr, grown = nullptr, rest = nullptr;
  std::optional<Beside> beside;
  if (rank < 2) {
    MUST_NCCL(ncclCommInitRank(&first, 2, shared.first, rank));
    MUST_NCCL(ncclCommInitRank(&other, 2, shared.beside, rank));
    Ones{first, 1 << 18}.sum("before");
    beside.emplace(other, gpu);
  }
  if (rank == 0) {
    MUST_NCCL(ncclCommGetUniqueId(first, &shared.grown));
    shared.has_grown_id = true;
  }
  auto begin = Clock::now();
  while (!shared.has_grown_id && ms_since(begin) < 60e3) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  begin = Clock::now();
  MUST_NCCL(ncclCommGrow(first, ranks, rank == 0 || rank >= 2 ? &shared.grown : nullptr,
                         rank < 2 ? -1 : rank, &grown, nullptr));
  const double grew = ms_since(begin);
  for (const ccl::Index n : {1, 5000, 1 << 20}) Ones{grown, n}.sum("grown");
  if (first != nullptr) Ones{first, 1 << 18}.sum("the parent of a grown one");
  double shrank = 0;
  int excluded[] = {1};
  if (rank != 1) {
    begin = Clock::now();
    MUST_NCCL(ncclCommShrink(grown, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    shrank = ms_since(begin);
    for (const ccl::Index n : {1, 5000, 1 << 20}) Ones{rest, n}.sum("shrunk");
    MUST_NCCL(ncclCommDestroy(rest));
  }
  const long calls = beside ? beside->end() : 0;
  if (rank == 0) {
    std::printf("2 ranks grow to %d in %.1f ms and shrink to %d in %.1f ms beside %ld calls\n",
                ranks, grew, ranks - 1, shrank, calls);
    check(calls > 0, "no call ran beside");
  }
  for (ncclComm_t comm : {grown, other, first}) {
    if (comm != nullptr) MUST_NCCL(ncclCommDestroy(comm));
  }
}

}  // namespace

int main() {
  Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  if (ranks.count < 3) {
    ::setenv("TEST_RANKS", "4", 1);
    ranks = find_ranks();
  }
  auto& shared = *new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared{};
  MUST_NCCL(ncclGetUniqueId(&shared.first));
  MUST_NCCL(ncclGetUniqueId(&shared.beside));
  fork_ranks(ranks.count, [&](int r) { play(r, ranks.count, ranks.gpus, shared); });
  return result("Communicators that grow and shrink", ranks.gpus);
}
