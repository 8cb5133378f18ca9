// Several captures of one communicator at once, by one thread and by several. Their graphs are
// replayed on different streams, between eager launches.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op, class Algo, class Proto>
using Default = Collective<Op, Algo, Proto, DefaultTransport>;

constexpr int graphs = 3, most = 30'000;

int nodes_of(cudaGraph_t graph, cudaGraphNodeType type) {
  size_t count = 0;
  MUST_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  MUST_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  int found = 0;
  for (const auto node : nodes) {
    cudaGraphNodeType t;
    MUST_CUDA(cudaGraphNodeGetType(node, &t));
    found += t == type;
  }
  return found;
}

struct Captures : Rank {
  Default<AllReduce, Ring, LL> ring = must(Default<AllReduce, Ring, LL>::create(comm));
  Default<AllReduce, Tree, Simple> tree = must(Default<AllReduce, Tree, Simple>::create(comm));
  cudaStream_t streams[graphs];
  std::vector<std::unique_ptr<Buffer<float>>> in, middle, out;
  cudaGraphExec_t ready[graphs] = {};

  explicit Captures(const Communicator& c, cudaStream_t s) : Rank{c, s} {
    for (int g = 0; g < graphs; ++g) {
      MUST_CUDA(cudaStreamCreateWithFlags(&streams[g], cudaStreamNonBlocking));
      for (auto* list : {&in, &middle, &out}) {
        list->push_back(std::make_unique<Buffer<float>>(most, 0));
      }
      in.back()->fill([&](Index i) { return value(rank + g, i); }, stream);
    }
  }
  ~Captures() {
    for (auto& s : streams) MUST_CUDA(cudaStreamDestroy(s));
  }
  Index count(int g) const { return g == 0 ? most : 1000 * g + 1; }
  double want(int g, Index i) const {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r + g, i);
    return sum * ranks;
  }
  cudaGraph_t captured[graphs] = {};

  void begin(int g) {
    MUST_CUDA(cudaStreamBeginCapture(streams[g], cudaStreamCaptureModeThreadLocal));
  }
  void first(int g) { must(ring(in[g]->get(), middle[g]->get(), count(g), Sum{}, streams[g])); }
  void second(int g) { must(tree(middle[g]->get(), out[g]->get(), count(g), Sum{}, streams[g])); }
  void end(int g, const char* how) {
    cudaGraph_t graph;
    MUST_CUDA(cudaStreamEndCapture(streams[g], &graph));
    const int waits = nodes_of(graph, cudaGraphNodeTypeWaitEvent);
    const int records = nodes_of(graph, cudaGraphNodeTypeEventRecord);
    const int kernels = nodes_of(graph, cudaGraphNodeTypeKernel);
    check(waits == 1 && records == 1 && kernels == 2,
          "%s, graph %d: %d kernels wait %d times for their turn and give it away %d times", how, g,
          kernels, waits, records);
    captured[g] = graph;
  }
  void replay(const char* how) {
    // Graphs are instantiated only here: a thread that captures another stream must not
    // instantiate.
    for (int g = 0; g < graphs; ++g) {
      MUST_CUDA(cudaGraphInstantiate(&ready[g], captured[g], 0));
      MUST_CUDA(cudaGraphDestroy(captured[g]));
    }
    for (int turn = 0; turn < 30; ++turn) {
      for (int g = 0; g < graphs; ++g) {
        // Each graph runs on its own stream and on another's, equally on all ranks.
        MUST_CUDA(
            cudaGraphLaunch(ready[(g + turn) % graphs], streams[(g * 2 + turn / 3) % graphs]));
      }
      if (turn % 4 == 1) {
        must(ring(in[0]->get(), middle[0]->get(), count(0), Sum{}, stream));
        must(tree(middle[0]->get(), out[0]->get(), count(0), Sum{}, stream));
      }
    }
    for (auto& s : streams) MUST_CUDA(cudaStreamSynchronize(s));
    MUST_CUDA(cudaStreamSynchronize(stream));
    for (int g = 0; g < graphs; ++g) {
      check(out[g]->wrong(
                count(g), [&](Index i) { return want(g, i); }, stream) == 0,
            "%s, graph %d, rank %d", how, g, rank);
      MUST_CUDA(cudaGraphExecDestroy(ready[g]));
    }
  }

  void by_one_thread() {
    for (int g = 0; g < graphs; ++g) begin(g);
    for (int g = 0; g < graphs; ++g) first(g);
    for (int g = graphs - 1; g >= 0; --g) second(g);
    for (int g = 0; g < graphs; ++g) end(g, "captured by one thread");
    replay("captured by one thread");
  }
  /// The buffer between the two collectives is memory that the graph allocates and frees.
  void by_one_that_allocates() {
    for (int g = 0; g < graphs; ++g) {
      void* data = nullptr;
      begin(g);
      MUST_CUDA(cudaMallocAsync(&data, most * sizeof(float), streams[g]));
      must(ring(in[g]->get(), static_cast<float*>(data), count(g), Sum{}, streams[g]));
      must(tree(static_cast<const float*>(data), out[g]->get(), count(g), Sum{}, streams[g]));
      MUST_CUDA(cudaFreeAsync(data, streams[g]));
      end(g, "captured with its own memory");
    }
    replay("captured with its own memory");
  }
  void by_threads() {
    std::atomic<int> begun{0}, half{0};
    const auto meet = [](std::atomic<int>& at) {
      ++at;
      while (at.load() < graphs) std::this_thread::yield();
    };
    std::vector<std::thread> threads;
    for (int g = 0; g < graphs; ++g) {
      threads.emplace_back([&, g] {
        MUST_CUDA(cudaSetDevice(comm.device()));
        begin(g);
        meet(begun);
        first(g);
        meet(half);
        second(g);
        end(g, "captured by threads");
      });
    }
    for (auto& thread : threads) thread.join();
    replay("captured by threads");
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    Captures captures{comm, stream};
    // graphs are created and destroyed; CUDA can reuse their numbers
    for (int round = 0; round < 3; ++round) {
      captures.by_one_thread();
      captures.by_threads();
      captures.by_one_that_allocates();
    }
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}
}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  both_ways(ranks, {}, suite, 24);
  return result("Captures at once", ranks.gpus);
}
