// Algorithms over wires that Auto takes on CPU ranks only, or in no list, on GPUs through the
// public interface: threads and processes, eager and in graphs, and over a network. Any TEST_RANKS.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

struct Suite : Rank {
  template <class Op, class Algo>
  auto create() const {
    return must(Collective<Op, Algo, LL, DefaultTransport>::create(comm));
  }
  double sum(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  }

  template <class Algo>
  void all_reduce(const std::vector<Index>& counts) const {
    const auto call = create<AllReduce, Algo>();
    for (const Index n : counts) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<float> in{n, offset}, out{n, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return call(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(
                n, [&](Index i) { return sum(i); }, stream) == 0,
            "%s count %ld rank %d", call.name().c_str(), long(n), rank);
      if (graph) continue;
      must(call(in.get(), in.get(), n, Sum{}, stream));
      check(in.wrong(
                n, [&](Index i) { return sum(i); }, stream) == 0,
            "%s in place, count %ld rank %d", call.name().c_str(), long(n), rank);
    }
  }
  template <class Algo>
  void reduce_scatter(const std::vector<Index>& counts) const {
    const auto call = create<ReduceScatter, Algo>();
    for (const Index n : counts) {
      Buffer<float> in{n * ranks, 0}, out{n, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return call(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(
                n, [&](Index i) { return sum(rank * n + i); }, stream) == 0,
            "%s count %ld rank %d", call.name().c_str(), long(n), rank);
    }
  }
  template <class Algo>
  void all_gather(const std::vector<Index>& counts) const {
    const auto call = create<AllGather, Algo>();
    for (const Index n : counts) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<float> in{n, offset}, out{n * ranks, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return call(in.get(), out.get(), n, stream); });
      check(out.wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "%s count %ld rank %d", call.name().c_str(), long(n), rank);
    }
  }
  template <class Algo>
  void reduce(const std::vector<Index>& counts) const {
    const auto call = create<Reduce, Algo>();
    for (const Index n : counts) {
      const int root = int(n % ranks);
      Buffer<float> in{n, 0}, out{n, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return call(in.get(), out.get(), n, Sum{}, root, stream); });
      MUST_CUDA(cudaStreamSynchronize(stream));  // the next case takes this memory
      if (rank != root) continue;
      check(out.wrong(
                n, [&](Index i) { return sum(i); }, stream) == 0,
            "%s count %ld root %d", call.name().c_str(), long(n), root);
    }
  }
  template <class Algo>
  void broadcast(const std::vector<Index>& counts) const {
    const auto call = create<Broadcast, Algo>();
    for (const Index n : counts) {
      const int root = int(n % ranks);
      Buffer<float> in{n, 0}, out{n, 0};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return call(in.get(), out.get(), n, root, stream); });
      check(out.wrong(
                n, [&](Index i) { return value(root, i); }, stream) == 0,
            "%s count %ld root %d rank %d", call.name().c_str(), long(n), root, rank);
    }
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<Index> counts{0, 1, 1023, 65536, 300001};
  for (const bool graph : {false, true}) {
    const Suite rank{{comm, stream, graph}};
    rank.all_reduce<Doubling>(counts);
    rank.all_reduce<OneTree>(counts);
    rank.all_reduce<OrderedTree>(counts);
    rank.reduce_scatter<Halving>(counts);
    rank.reduce_scatter<Pat>(counts);
    rank.reduce_scatter<OrderedChain>(counts);
    rank.all_gather<Doubling>(counts);
    rank.all_gather<Bruck>(counts);
    rank.all_gather<Pat>(counts);
    rank.reduce<Pat>(counts);
    rank.reduce<OrderedTree>(counts);
    rank.broadcast<Pat>(counts);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  both_ways(ranks, config, suite);
  as_processes(ranks.count, config, suite, 2);
  return result("Algorithms", ranks.gpus);
}
