// Every collective through the front door on GPUs: threads and processes, eager and in graphs.
#include <cmath>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

struct Suite : Rank {
  template <class Algo, class Proto>
  void reductions(const std::vector<Index>& counts) const {
    const auto all_reduce =
        must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm));
    const auto reduce = must(Collective<Reduce, Algo, Proto, DefaultTransport>::create(comm));
    const auto broadcast = must(Collective<Broadcast, Algo, Proto, DefaultTransport>::create(comm));
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < ranks; ++r) s += value(r, i);
      return s;
    };
    for (const Index n : counts) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<float> in{n, offset}, out{n, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return all_reduce(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(n, sum, stream) == 0, "%s count %ld rank %d", all_reduce.name().c_str(),
            long(n), rank);
      const int root = int(n % ranks);
      Buffer<float> there{n, offset};
      go([&] { return reduce(in.get(), there.get(), n, Sum{}, root, stream); });
      if (rank == root) {
        check(there.wrong(n, sum, stream) == 0, "%s count %ld root %d", reduce.name().c_str(),
              long(n), root);
      }
      Buffer<float> copy{n, offset};
      go([&] { return broadcast(in.get(), copy.get(), n, root, stream); });
      check(copy.wrong(
                n, [&](Index i) { return value(root, i); }, stream) == 0,
            "%s count %ld root %d rank %d", broadcast.name().c_str(), long(n), root, rank);
      if (!graph) {
        must(all_reduce(in.get(), in.get(), n, Sum{}, stream));
        check(in.wrong(n, sum, stream) == 0, "%s in place, count %ld rank %d",
              all_reduce.name().c_str(), long(n), rank);
      }
    }
  }

  template <class Proto>
  void shares(const std::vector<Index>& counts) const {
    const auto all_gather =
        must(Collective<AllGather, Ring, Proto, DefaultTransport>::create(comm));
    const auto reduce_scatter =
        must(Collective<ReduceScatter, Ring, Proto, DefaultTransport>::create(comm));
    for (const Index n : counts) {
      Buffer<float> one{n, 0}, all{n * ranks, 0}, sum{n, 0};
      one.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return all_gather(one.get(), all.get(), n, stream); });
      check(all.wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "%s count %ld rank %d", all_gather.name().c_str(), long(n), rank);
      Buffer<float> mine{n * ranks, 0};
      mine.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return reduce_scatter(mine.get(), sum.get(), n, Sum{}, stream); });
      check(sum.wrong(
                n,
                [&](Index i) {
                  double s = 0;
                  for (int r = 0; r < ranks; ++r) s += value(r, rank * n + i);
                  return s;
                },
                stream) == 0,
            "%s count %ld rank %d", reduce_scatter.name().c_str(), long(n), rank);
    }
  }

  template <class Proto>
  void messages(const std::vector<Index>& counts) const {
    const auto all_to_all =
        must(Collective<AllToAll, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto gather = must(Collective<Gather, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto scatter = must(Collective<Scatter, Pairwise, Proto, DefaultTransport>::create(comm));
    const auto send_recv =
        must(Collective<SendRecv, Pairwise, Proto, DefaultTransport>::create(comm));
    for (const Index n : counts) {
      Buffer<float> in{n * ranks, 0}, out{n * ranks, 0};
      in.fill([&](Index i) { return value(rank * 3 + int(i / std::max<Index>(n, 1)), i); }, stream);
      go([&] { return all_to_all(in.get(), out.get(), n, stream); });
      check(out.wrong(
                n * ranks,
                [&](Index i) { return value(int(i / n) * 3 + rank, Index{rank} * n + i % n); },
                stream) == 0,
            "%s count %ld rank %d", all_to_all.name().c_str(), long(n), rank);
      const int root = int(n % ranks);
      Buffer<float> all{n * ranks, 0}, one{n, 0};
      go([&] { return gather(in.get(), all.get(), n, root, stream); });
      if (rank == root) {
        check(all.wrong(
                  n * ranks, [&](Index i) { return value(int(i / n) * 3, i % n); }, stream) == 0,
              "%s count %ld", gather.name().c_str(), long(n));
      }
      go([&] { return scatter(in.get(), one.get(), n, root, stream); });
      check(
          one.wrong(
              n, [&](Index i) { return value(root * 3 + rank, Index{rank} * n + i); }, stream) == 0,
          "%s count %ld rank %d", scatter.name().c_str(), long(n), rank);
      const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
      Buffer<float> got{n, 0};
      go([&] { return send_recv(in.get(), n, next, got.get(), n, before, stream); });
      check(got.wrong(
                n, [&](Index i) { return value(before * 3, i); }, stream) == 0,
            "%s count %ld rank %d", send_recv.name().c_str(), long(n), rank);
    }
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::vector<Index> counts{0, 1, 1023, 65536, 300001};
  for (const bool graph : {false, true}) {
    Suite rank{{comm, stream}};
    rank.graph = graph;
    rank.reductions<Ring, LL>(counts);
    rank.reductions<Ring, LL128>(counts);
    rank.reductions<Ring, Simple>(counts);
    rank.reductions<Tree, LL>(counts);
    rank.reductions<Tree, LL128>(counts);
    rank.reductions<Tree, Simple>(counts);
    rank.shares<LL>(counts);
    rank.shares<LL128>(counts);
    rank.shares<Simple>(counts);
    rank.messages<LL>(counts);
    rank.messages<LL128>(counts);
    rank.messages<Simple>(counts);
  }
  MUST_CUDA(cudaStreamDestroy(stream));
  if (comm.rank() == 0) {
    std::printf("memory used: %ld of %ld bytes\n", long(comm.memory_used()),
                long(comm.memory_budget()));
  }
}

}  // namespace

int main() {
  score();
  const int gpus = count_gpus();
  if (gpus == 0) {
    std::printf("SKIP: no GPU\n");
    return 77;
  }
  ::setenv("CCL_TIMEOUT", "5", 0);
  int ranks = gpus;
  if (gpus == 1) {
    ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    ranks = 2;
  }
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  as_threads(ranks, config, suite);
  as_processes(ranks, config, suite);
  as_threads(1, config, suite);
  return result("Communicator", gpus);
}
