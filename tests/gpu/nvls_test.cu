// Nvls in kernels that emulate multicast by loads and stores to each peer: all its operations on
// GPUs through the public interface, as threads and as processes, eager and in graphs. No
// instruction of NVLink multicast runs. Any TEST_RANKS.
#include "communicator.cuh"
// after the header that suppresses warnings
#include <ccl/algo/nvls.hpp>
#include <ccl/transport/nvls.hpp>

using namespace ccl;
using namespace ccl::test;

namespace {

struct Suite : Rank {
  std::optional<Plan> plan{};

  template <class Op>
  auto create() const {
    using Of = Collective<Op, Nvls, Simple, EmulatedNvlsTransport>;
    return plan ? must(Of::create(comm, *plan)) : must(Of::create(comm));
  }
  double sum(Index i) const {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  }

  template <class T>
  void all_reduce(Index n, Index offset) const {
    const auto call = create<AllReduce>();
    Buffer<T> in{n, offset}, out{n, offset};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return call(in.get(), out.get(), n, Sum{}, stream); });
    const auto want = [&](Index i) { return sum(i); };
    check(out.wrong(n, want, stream) == 0, "all_reduce of %ld, rank %d", long(n), rank);
    if (graph) return;
    must(call(in.get(), in.get(), n, Sum{}, stream));
    check(in.wrong(n, want, stream) == 0, "all_reduce of %ld in place, rank %d", long(n), rank);
  }
  void greatest(Index n) const {
    const auto call = create<AllReduce>();
    Buffer<std::int32_t> in{n, 0}, out{n, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return call(in.get(), out.get(), n, Max{}, stream); });
    const auto want = [&](Index i) {
      double most = value(0, i);
      for (int r = 1; r < ranks; ++r) most = std::max(most, value(r, i));
      return most;
    };
    check(out.wrong(n, want, stream) == 0, "maximum of %ld, rank %d", long(n), rank);
  }
  void reduce_scatter(Index n, Index offset) const {
    const auto call = create<ReduceScatter>();
    Buffer<float> in{n * ranks, offset}, out{n, offset};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return call(in.get(), out.get(), n, Sum{}, stream); });
    const auto want = [&](Index i) { return sum(rank * n + i); };
    check(out.wrong(n, want, stream) == 0, "reduce_scatter of %ld, rank %d", long(n), rank);
  }
  void all_gather(Index n, Index offset) const {
    const auto call = create<AllGather>();
    Buffer<float> in{n, offset}, out{n * ranks, offset};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return call(in.get(), out.get(), n, stream); });
    const auto want = [&](Index i) { return value(int(i / n), i % n); };
    check(out.wrong(n * ranks, want, stream) == 0, "all_gather of %ld, rank %d", long(n), rank);
  }
  void reduce(Index n, Index offset, int root) const {
    const auto call = create<Reduce>();
    Buffer<float> in{n, offset}, out{n, offset};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return call(in.get(), out.get(), n, Sum{}, root, stream); });
    MUST_CUDA(cudaStreamSynchronize(stream));  // the next case takes this memory
    if (rank != root) return;
    const auto want = [&](Index i) { return sum(i); };
    check(out.wrong(n, want, stream) == 0, "reduce of %ld to %d", long(n), root);
  }
  void broadcast(Index n, Index offset, int root) const {
    const auto call = create<Broadcast>();
    Buffer<float> in{n, offset}, out{n, offset};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    go([&] { return call(in.get(), out.get(), n, root, stream); });
    const auto want = [&](Index i) { return value(root, i); };
    check(out.wrong(n, want, stream) == 0, "broadcast of %ld from %d, rank %d", long(n), root,
          rank);
  }

  void play() const {
    for (const Index n : {0, 1, 7, 1023, 65'536, 300'001}) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      all_reduce<float>(n, offset);
      all_reduce<bfloat16>(n, offset);
      greatest(n);
      reduce_scatter(n, offset);
      all_gather(n, offset);
      for (int root = 0; root < ranks; ++root) {
        reduce(n, offset, root);
        broadcast(n, offset, root);
      }
    }
  }
};

void suite(const Communicator& comm) {
  play_each_way<Suite>(comm, Index{32} << 10, [](const Suite& rank) { rank.play(); });
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  both_ways(ranks, config, suite);
  return result("Nvls, emulated", ranks.gpus);
}
