// Buffers of several cuMem handles, as those of PyTorch's expandable segments: peers map them
// while handles come and go. Their times beside buffers of cudaMalloc are printed.
#include <algorithm>
#include <chrono>

#include "comm/state.hpp"
#include "connect/registry/buffer_registry.hpp"
#include "gpu/driver.hpp"
#include "late.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr std::size_t piece = std::size_t{20} << 20;  // PyTorch's

void must_driver(CUresult code, int line = __builtin_LINE()) {
  if (code == CUDA_SUCCESS) return;
  std::printf("line %d: %s\n", line, detail::cuda_error(code, "driver").what.c_str());
  std::fflush(stdout);
  std::_Exit(1);
}

/// Addresses that handles are mapped into.
class Segment {
 public:
  Segment(int device, std::size_t pieces) : mapped_(pieces, false) {
    where_.type = CU_MEM_LOCATION_TYPE_DEVICE;
    where_.id = device;
    must_driver(cuda_.mem_address_reserve(&at_, pieces * piece, 0, 0, 0));
  }
  ~Segment() {
    for (std::size_t n = 0; n < mapped_.size(); ++n) unmap(n);
    must_driver(cuda_.mem_address_free(at_, mapped_.size() * piece));
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  void map(std::size_t first, std::size_t end) {
    CUmemAllocationProp how{};
    how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location = where_;
    how.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUmemAccessDesc access{where_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (std::size_t n = first; n < end; ++n) {
      CUmemGenericAllocationHandle handle = 0;
      must_driver(cuda_.mem_create(&handle, piece, &how, 0));
      must_driver(cuda_.mem_map(at_ + n * piece, piece, 0, handle, 0));
      must_driver(cuda_.mem_set_access(at_ + n * piece, piece, &access, 1));
      must_driver(cuda_.mem_release(handle));
      mapped_[n] = true;
    }
  }
  void unmap(std::size_t n) {
    if (mapped_[n]) must_driver(cuda_.mem_unmap(at_ + n * piece, piece));
    mapped_[n] = false;
  }
  float* at(std::size_t bytes) const { return reinterpret_cast<float*>(at_ + bytes); }

 private:
  const detail::CudaDriver& cuda_ = *must(detail::cuda_driver());
  CUmemLocation where_{};
  CUdeviceptr at_ = 0;
  std::vector<bool> mapped_;
};

struct Suite : Rank {
  using Gather = Collective<AllGather, Direct, Simple, DefaultTransport>;
  using Sums = Collective<AllReduce, Direct, Simple, DefaultTransport>;
  Gather all_gather = must(Gather::create(comm));
  Sums all_reduce = must(Sums::create(comm));
  Collective<AllGather, OneShot, LL, DefaultTransport> gather_words =
      must(Collective<AllGather, OneShot, LL, DefaultTransport>::create(comm));

  /// True if this rank can map memory of a peer: threads have no access to handles of other GPUs.
  bool can_map(int p) const {
    const PeerInfo &mine = comm.peer(rank), &theirs = comm.peer(p);
    return p != rank && (theirs.pid_hash != mine.pid_hash || theirs.bus_id == mine.bus_id);
  }
  /// Checks that this rank maps the peers' buffers within some seconds.
  void check_mapped(const float* out, std::size_t bytes, const char* what) const {
    using detail::RemoteBuffer;
    auto& registry =
        *static_cast<detail::BufferRegistry*>(detail::Access::state(comm)->device.registry.get());
    const Word mine = registry.where(reinterpret_cast<const char*>(out), Index(bytes));
    Buffer<Word> one{1, 0}, all{ranks, 0};
    MUST_CUDA(cudaMemcpy(one.get(), &mine, sizeof mine, cudaMemcpyHostToDevice));
    must(gather_words(one.get(), all.get(), 1, stream));
    auto where = std::vector<Word>(std::size_t(ranks));
    auto table = std::vector<Word>(where.size() * RemoteBuffer::slots);
    MUST_CUDA(cudaStreamSynchronize(stream));
    MUST_CUDA(
        cudaMemcpy(where.data(), all.get(), where.size() * sizeof(Word), cudaMemcpyDeviceToHost));
    const auto leads = [&](int p) {
      const std::size_t first = std::size_t(p) * RemoteBuffer::slots;
      const Word wanted = where[std::size_t(p)];
      return RemoteBuffer::leads(table[first + std::size_t(RemoteBuffer::slot(wanted))], wanted);
    };
    bool mapped = false;
    for (const double begin = now_s(); !mapped && now_s() - begin < 5;) {
      MUST_CUDA(cudaMemcpy(table.data(), registry.table(), table.size() * sizeof(Word),
                           cudaMemcpyDeviceToHost));
      mapped = true;
      for (int p = 0; p < ranks; ++p) mapped = mapped && (!can_map(p) || leads(p));
    }
    check(mapped, "%s: rank %d has not mapped the buffers of its peers", what, rank);
  }

  /// Calls into `out`, which has room for `bytes` bytes.
  void calls(float* out, std::size_t bytes, const char* what) const {
    const Index all = Index(bytes / sizeof(float)), n = all / ranks;
    Buffer<float> in{all, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    const Pinned<float> host{all};
    const auto wrong = [&](Index count, auto want) {
      MUST_CUDA(cudaMemcpyAsync(&host[0], out, std::size_t(count) * sizeof(float),
                                cudaMemcpyDeviceToHost, stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      long differ = 0;
      for (Index i = 0; i < count; ++i) differ += double(host[std::size_t(i)]) != want(i);
      return differ;
    };
    for (int turn = 0; turn < 4; ++turn) {
      MUST_CUDA(cudaMemsetAsync(out, 0xa5, bytes, stream));
      go([&] { return all_gather(in.get(), out, n, stream); });
      const long gathered = wrong(n * ranks, [&](Index i) { return value(int(i / n), i % n); });
      check(gathered == 0, "%s, rank %d turn %d: %ld gathered", what, rank, turn, gathered);
      go([&] { return all_reduce(in.get(), out, all, Sum{}, stream); });
      const long summed = wrong(all, [&](Index i) {
        double sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, i);
        return sum;
      });
      check(summed == 0, "%s, rank %d turn %d: %ld summed", what, rank, turn, summed);
      std::this_thread::sleep_for(std::chrono::milliseconds{50});  // peers map the buffer
    }
    check_mapped(out, bytes, what);
    if (graph) return;
    std::vector<double> times;
    for (int turn = 0; turn < 15; ++turn) {
      must(comm.barrier());
      const double begin = now_s();
      must(all_gather(in.get(), out, n, stream));
      drain(stream, 10);
      times.push_back(now_s() - begin);
    }
    std::sort(times.begin(), times.end());
    if (rank == 0) {
      std::printf("%s: %zu MiB gathered in %.0f us\n", what, bytes >> 20, times[7] * 1e6);
    }
  }
};

void play(const Suite& rank) {
  constexpr std::size_t half = piece / 2;
  Segment segment{rank.comm.device(), 12};
  segment.map(0, 6);
  Buffer<float> plain{Index(4 * piece / sizeof(float)), 0};
  rank.calls(plain.get(), 4 * piece, "cudaMalloc");
  rank.calls(segment.at(half), 4 * piece, "five handles");
  segment.map(6, 12);
  rank.calls(segment.at(4 * piece), 7 * piece, "a grown segment");
  rank.calls(segment.at(half), 4 * piece, "the first again");
  // Other memory comes to the same addresses. Peers may still have the old.
  for (const std::size_t n : {2, 3}) segment.unmap(n);
  segment.map(2, 4);
  rank.calls(segment.at(half), 4 * piece, "after other handles");
}

/// A graph outlives the handles of its buffer. Peers must have unmapped the old before a replay.
void replay(const Suite& rank) {
  Segment segment{rank.comm.device(), 4};
  segment.map(0, 4);
  const Index all = Index(4 * piece / sizeof(float)), n = all / rank.ranks;
  Buffer<float> in{n, 0};
  in.fill([&](Index i) { return value(rank.rank, i); }, rank.stream);
  cudaGraph_t captured;
  cudaGraphExec_t ready;
  MUST_CUDA(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
  must(rank.all_gather(in.get(), segment.at(0), n, rank.stream));
  MUST_CUDA(cudaStreamEndCapture(rank.stream, &captured));
  MUST_CUDA(cudaGraphInstantiate(&ready, captured, 0));
  const Pinned<float> host{all};
  for (int turn = 0; turn < 6; ++turn) {
    MUST_CUDA(cudaGraphLaunch(ready, rank.stream));
    MUST_CUDA(cudaMemcpyAsync(&host[0], segment.at(0), std::size_t(all) * sizeof(float),
                              cudaMemcpyDeviceToHost, rank.stream));
    MUST_CUDA(cudaStreamSynchronize(rank.stream));
    long wrong = 0;
    for (Index i = 0; i < n * rank.ranks; ++i) {
      wrong += double(host[std::size_t(i)]) != value(int(i / n), i % n);
    }
    check(wrong == 0, "replay %d of rank %d: %ld wrong", turn, rank.rank, wrong);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    if (turn != 2) continue;
    segment.unmap(1);
    segment.map(1, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds{600});
  }
  MUST_CUDA(cudaGraphExecDestroy(ready));
  MUST_CUDA(cudaGraphDestroy(captured));
}

/// Unmapped memory comes back, though peers had mapped it.
void come_back(const Suite& rank) {
  constexpr std::size_t pieces = 20;
  Segment segment{rank.comm.device(), pieces};
  segment.map(0, pieces);
  rank.calls(segment.at(0), pieces * piece, "to be freed");
  int here = 0;  // ranks of this GPU
  for (int p = 0; p < rank.ranks; ++p) {
    here += rank.comm.peer(p).bus_id == rank.comm.peer(rank.rank).bus_id;
  }
  std::size_t before = 0, now = 0, all = 0;
  must(rank.comm.barrier());
  MUST_CUDA(cudaMemGetInfo(&before, &all));
  must(rank.comm.barrier());
  for (std::size_t n = 0; n < pieces; ++n) segment.unmap(n);
  const double begin = now_s();
  const std::size_t bytes = std::size_t(here) * pieces * piece;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    MUST_CUDA(cudaMemGetInfo(&now, &all));
  } while (now < before + bytes && now_s() - begin < 10);
  check(now >= before + bytes, "%zu of %zu MiB come back", (now - before) >> 20, bytes >> 20);
  if (rank.rank == 0) {
    std::printf("%zu MiB come back after %.3f s\n", bytes >> 20, now_s() - begin);
  }
  must(rank.comm.barrier());
}

void suite(Communicator comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const bool graph : {false, true}) {
    const Suite rank{{comm, stream, graph}};
    play(rank);
    if (graph) {
      replay(rank);
    } else {
      come_back(rank);
    }
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "10", 0);
  Config config;
  config.memory_budget_bytes = Index{1} << 30;
  as_processes(ranks.count, config, suite);
  as_threads(ranks.count, config, suite);
  return result("buffers of cuMem handles", ranks.gpus);
}
