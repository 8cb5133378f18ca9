// Several calls as one launch, in other orders on other ranks, eager and in graphs.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class Op, class Algo, class Proto>
using Default = Collective<Op, Algo, Proto, DefaultTransport>;

struct Suite : Rank {
  Default<AllReduce, Ring, LL> ring = must(Default<AllReduce, Ring, LL>::create(comm));
  Default<AllReduce, Tree, Simple> tree = must(Default<AllReduce, Tree, Simple>::create(comm));
  Default<AllGather, Ring, Simple> gather = must(Default<AllGather, Ring, Simple>::create(comm));
  Default<Broadcast, Ring, LL> broadcast = must(Default<Broadcast, Ring, LL>::create(comm));
  Default<AllToAll, Pairwise, LL> all_to_all = must(Default<AllToAll, Pairwise, LL>::create(comm));

  double sum(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  }
  void wired(Index n, Index m) const {
    Buffer<float> a{n, n % 2}, a_out{n, n % 2}, c{m, 0}, c_out{m * ranks, 0}, d{n, 0};
    Buffer<int> b{m, 0}, b_out{m, 0};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank, i); }, stream);
    c.fill([&](Index i) { return value(rank, i); }, stream);
    const int root = int((n + m) % ranks);
    const auto one = ring.bind(a.get(), a_out.get(), n);
    const auto two = tree.bind(b.get(), b_out.get(), m, Sum{});
    const auto three = gather.bind(c.get(), c_out.get(), m);
    const auto four = broadcast.bind(a.get(), d.get(), n, root);
    go([&] {
      return rank % 2 == 0 ? group(stream, one, two, three, four)
                           : group(stream, four, two, one, three);
    });
    check(a_out.wrong(
              n, [&](Index i) { return sum(i); }, stream) == 0,
          "all_reduce over a ring, %ld and %ld, rank %d", long(n), long(m), rank);
    check(b_out.wrong(
              m, [&](Index i) { return sum(i); }, stream) == 0,
          "all_reduce over trees, %ld and %ld, rank %d", long(n), long(m), rank);
    check(c_out.wrong(
              m * ranks, [&](Index i) { return value(int(i / m), i % m); }, stream) == 0,
          "all_gather, %ld and %ld, rank %d", long(n), long(m), rank);
    check(d.wrong(
              n, [&](Index i) { return value(root, i); }, stream) == 0,
          "broadcast, %ld and %ld, rank %d", long(n), long(m), rank);
  }
  void mixed(Index n) const {
    Buffer<float> a{n, 0}, a_out{n, 0}, b{n * ranks, 0}, b_out{n * ranks, 0};
    a.fill([&](Index i) { return value(rank, i); }, stream);
    b.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
    go([&] {
      return group(stream, all_to_all.bind(b.get(), b_out.get(), n),
                   ring.bind(a.get(), a_out.get(), n, Max{}));
    });
    const auto largest = [&](Index i) {
      double most = 0;
      for (int r = 0; r < ranks; ++r) most = std::max(most, value(r, i));
      return most;
    };
    check(a_out.wrong(n, largest, stream) == 0, "all_reduce beside all_to_all, %ld, rank %d",
          long(n), rank);
    check(b_out.wrong(
              n * ranks,
              [&](Index i) { return value(int(i / n) * 3 + rank, Index{rank} * n + i % n); },
              stream) == 0,
          "all_to_all beside all_reduce, %ld, rank %d", long(n), rank);
  }
  /// All calls over wires are one kernel.
  void count_kernels() const {
    Buffer<float> a{1000, 0}, a_out{1000, 0}, c_out{Index{1000} * ranks, 0};
    cudaGraph_t graph;
    MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const auto one = ring.bind(a.get(), a_out.get(), 1000);
    const auto three = gather.bind(a.get(), c_out.get(), 1000);
    must(group(stream, one, three));
    MUST_CUDA(cudaStreamEndCapture(stream, &graph));
    size_t count = 0;
    MUST_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    MUST_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
    int kernels = 0;
    for (const auto node : nodes) {
      cudaGraphNodeType type;
      MUST_CUDA(cudaGraphNodeGetType(node, &type));
      kernels += type == cudaGraphNodeTypeKernel;
    }
    MUST_CUDA(cudaGraphDestroy(graph));
    static_assert(group_kernels<decltype(one), decltype(three)> == 1);
    check(kernels == 1, "a group of two calls is %d kernels", kernels);
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    Suite rank{{comm, stream}};
    for (const bool graph : {false, true}) {
      rank.graph = graph;
      for (const auto& [n, m] : {std::pair<Index, Index>{1, 1},
                                 {1000, 1'000'000},
                                 {0, 7},
                                 {300'001, 5},
                                 {2'000'000, 2'000'000}}) {
        rank.wired(n, m);
      }
      rank.mixed(1000);
      rank.mixed(200'001);
    }
    rank.count_kernels();
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}
}  // namespace

int main() {
  score();
  const int gpus = count_gpus();
  if (gpus == 0) {
    std::printf("SKIP: no GPU\n");
    return 77;
  }
  ::setenv("CCL_TIMEOUT", "20", 0);
  int ranks = gpus;
  if (gpus == 1) {
    ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    ranks = 2;
  }
  Config config;
  config.memory_budget_bytes = Index{1} << 30;  // for many compositions at once
  as_threads(ranks, config, suite);
  as_processes(ranks, config, suite);
  return result("Groups", gpus);
}
