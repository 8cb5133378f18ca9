// Random mix of many kinds of collectives, sizes, streams and graphs for SOAK_S seconds (4 by
// default). All results are checked, and no device memory is lost. The seed (SOAK_SEED) is printed.
#include <chrono>
#include <random>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

double seconds = 4;
unsigned seed = 1;
int ranks_on_gpu = 1;

template <class Op, class Algo, class Proto>
using Default = Collective<Op, Algo, Proto, DefaultTransport>;

/// Calls that are captured repeatedly, on a stream of their own.
struct Replayed {
  cudaGraphExec_t ready = nullptr;
  Index n = 0;
};

struct Soak : Rank {
  static constexpr Index most = 1 << 18;
  cudaStream_t streams[3];
  Buffer<float> in{most, 0}, out{most, 0}, all_in{most * 8, 0}, all_out{most * 8, 0};

  explicit Soak(const Communicator& comm, cudaStream_t stream) : Rank{comm, stream} {
    for (auto& s : streams) MUST_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    in.fill([&](Index i) { return value(rank, i); }, stream);
    all_in.fill([&](Index i) { return value(rank, i); }, stream);
  }
  ~Soak() {
    for (auto& s : streams) MUST_CUDA(cudaStreamDestroy(s));
  }
  double sum(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  }

  void run() {
    const auto ring_ll = must(Default<AllReduce, Ring, LL>::create(comm));
    const auto ring_simple = must(Default<AllReduce, Ring, Simple>::create(comm));
    const auto tree = must(Default<AllReduce, Tree, LL128>::create(comm));
    const auto gather = must(Default<AllGather, Ring, LL128>::create(comm));
    const auto scatter = must(Default<ReduceScatter, Ring, Simple>::create(comm));
    const auto all_to_all = must(Default<AllToAll, Pairwise, Simple>::create(comm));
    const auto broadcast = must(Default<Broadcast, Tree, LL>::create(comm));
    const bool peers = ranks > 1 && ranks <= max_view_ranks;
    std::optional<Default<AllReduce, OneShot, LL128>> one;
    std::optional<Default<AllReduce, TwoShot, LL128>> two;
    if (peers) one = must(Default<AllReduce, OneShot, LL128>::create(comm));
    if (peers) two = must(Default<AllReduce, TwoShot, LL128>::create(comm));

    // Replayed on their own streams, between whatever else is going on.
    Replayed graphs[2];
    for (int g = 0; g < 2; ++g) {
      graphs[g].n = g == 0 ? 5000 : 70001;
      cudaGraph_t captured;
      MUST_CUDA(cudaStreamBeginCapture(streams[g], cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < 3; ++i) {
        must(ring_ll(in.get(), out.get(), graphs[g].n, Sum{}, streams[g]));
        must(tree(in.get(), out.get(), graphs[g].n, Sum{}, streams[g]));
        if (two) must((*two)(in.get(), out.get(), graphs[g].n, Sum{}, streams[g]));
      }
      MUST_CUDA(cudaStreamEndCapture(streams[g], &captured));
      MUST_CUDA(cudaGraphInstantiate(&graphs[g].ready, captured, 0));
      MUST_CUDA(cudaGraphDestroy(captured));
    }

    std::mt19937 random{seed};  // the same on all ranks
    std::size_t free_before = 0, free_after = 0, total = 0;
    MUST_CUDA(cudaMemGetInfo(&free_before, &total));
    const auto begin = std::chrono::steady_clock::now();
    Buffer<int> more{1, 0};
    const auto vote = must(Default<Broadcast, Ring, LL>::create(comm));
    for (long step = 0;; ++step) {
      if (step % 64 == 0) {  // rank 0's clock ends it for all
        const double gone =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        more.fill([&](Index) { return double(gone < seconds); }, stream);
        must(vote(more.get(), more.get(), 1, 0, stream));
        if (more.wrong(
                1, [](Index) { return 1.0; }, stream) != 0)
          break;
      }
      const int kind = int(random() % 11);
      const cudaStream_t s = streams[random() % 3];
      Index n = Index(random() % (random() % 4 == 0 ? most : 4096));
      int burst = 1 + int(random() % 4);
      const int root = int(random() % unsigned(ranks));
      if (kind >= 9 || (kind >= 7 && !peers)) {
        const Replayed& graph = graphs[kind % 2];
        n = graph.n;
        while (burst-- > 0) MUST_CUDA(cudaGraphLaunch(graph.ready, s));
      }
      for (; burst > 0; --burst) {
        switch (kind) {
          case 0:
            must(ring_ll(in.get(), out.get(), n, Sum{}, s));
            break;
          case 1:
            must(ring_simple(in.get(), out.get(), n, Sum{}, s));
            break;
          case 2:
            must(tree(in.get(), out.get(), n, Sum{}, s));
            break;
          case 3:
            must(gather(in.get(), all_out.get(), n, s));
            break;
          case 4:
            must(scatter(all_in.get(), out.get(), n, Sum{}, s));
            break;
          case 5:
            must(all_to_all(all_in.get(), all_out.get(), n, s));
            break;
          case 6:
            must(broadcast(in.get(), out.get(), n, root, s));
            break;
          case 7:
            if (one) must((*one)(in.get(), out.get(), n, Sum{}, s));
            break;
          case 8:
            if (two) must((*two)(in.get(), out.get(), n, Sum{}, s));
            break;
          default:
            break;
        }
      }
      // A sample is compared at once, because the next call can be on another stream.
      long wrong = 0;
      if (kind == 3) {
        wrong = all_out.wrong(
            n * ranks, [&](Index i) { return value(int(i / n), i % n); }, s);
      } else if (kind == 4) {
        wrong = out.wrong(
            n, [&](Index i) { return sum(rank * n + i); }, s);
      } else if (kind == 5) {
        wrong = all_out.wrong(
            n * ranks, [&](Index i) { return value(int(i / n), rank * n + i % n); }, s);
      } else if (kind == 6) {
        wrong = out.wrong(
            n, [&](Index i) { return value(root, i); }, s);
      } else {
        wrong = out.wrong(
            n, [&](Index i) { return sum(i); }, s);
      }
      check(wrong == 0, "step %ld kind %d count %ld rank %d: %ld wrong", step, kind, long(n), rank,
            wrong);
      if (wrong == 0) continue;
      if (const auto well = comm.status(); !well)
        std::printf("%s\n", well.error().message().c_str());
      std::fflush(stdout);
      std::_Exit(2);
    }
    MUST_CUDA(cudaMemGetInfo(&free_after, &total));
    check(free_after + (std::size_t(ranks_on_gpu) * 64 << 20) >= free_before,
          "%ld bytes of device memory are gone", long(free_before) - long(free_after));
    for (auto& graph : graphs) MUST_CUDA(cudaGraphExecDestroy(graph.ready));
    MUST_CUDA(cudaDeviceSynchronize());
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    Soak soak{comm, stream};
    soak.run();
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  if (const char* s = std::getenv("SOAK_S")) seconds = std::atof(s);
  if (const char* s = std::getenv("SOAK_SEED")) seed = unsigned(std::atoi(s));
  std::printf("seed %u, %.0f s as threads and as long as processes\n", seed, seconds);
  ranks_on_gpu = (ranks.count + ranks.gpus - 1) / ranks.gpus;
  ::setenv("CCL_TIMEOUT", "10", 0);
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  both_ways(ranks, config, suite, 4);
  return result("Soak", ranks.gpus);
}
