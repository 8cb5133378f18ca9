// OneShot and TwoShot through the public interface: threads and processes, eager and in graphs.
// Messages fit into the scratch, or need several launches. TEST_RANKS=3, 5, 6 and 7 run ranks in
// kernels of more.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

struct Suite : Rank {
  std::optional<Plan> plan{};

  template <class Algo, class Proto, class T>
  void all_reduce(const std::vector<Index>& counts) const {
    const auto op = must(Collective<AllReduce, Algo, Proto, DefaultTransport>::create(comm, plan));
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < ranks; ++r) s += value(r, i);
      return s;
    };
    for (const Index n : counts) {
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<T> in{n, offset}, out{n, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return op(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(n, sum, stream) == 0, "%s count %ld rank %d", op.name().c_str(), long(n),
            rank);
      if (graph) continue;
      must(op(in.get(), in.get(), n, Sum{}, stream));
      check(in.wrong(n, sum, stream) == 0, "%s in place, count %ld rank %d", op.name().c_str(),
            long(n), rank);
    }
  }
  /// Reduce and Broadcast, by every rank as root in turn.
  template <class Algo, class Proto>
  void roots(const std::vector<Index>& counts) const {
    const auto reduce = must(Collective<Reduce, Algo, Proto, DefaultTransport>::create(comm, plan));
    const auto broadcast =
        must(Collective<Broadcast, Algo, Proto, DefaultTransport>::create(comm, plan));
    for (const Index n : counts) {
      const int root = int(n % ranks);
      const Index offset = n % 3 == 1 ? 1 : 0;
      Buffer<float> in{n, offset}, sum{n, offset}, copy{n, offset};
      in.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return reduce(in.get(), sum.get(), n, Sum{}, root, stream); });
      const auto reduced = [&](Index i) {
        double s = 0;
        for (int r = 0; r < ranks; ++r) s += value(r, i);
        return s;
      };
      if (rank == root) {
        check(sum.wrong(n, reduced, stream) == 0, "%s count %ld root %d", reduce.name().c_str(),
              long(n), root);
      }
      go([&] { return broadcast(in.get(), copy.get(), n, root, stream); });
      check(copy.wrong(
                n, [&](Index i) { return value(root, i); }, stream) == 0,
            "%s count %ld root %d rank %d", broadcast.name().c_str(), long(n), root, rank);
    }
  }
  template <class Proto>
  void shares(const std::vector<Index>& counts) const {
    using ccl::AllGather, ccl::ReduceScatter, ccl::AllToAll;
    const auto all_gather =
        must(Collective<AllGather, OneShot, Proto, DefaultTransport>::create(comm, plan));
    const auto reduce_scatter =
        must(Collective<ReduceScatter, OneShot, Proto, DefaultTransport>::create(comm, plan));
    const auto all_to_all =
        must(Collective<AllToAll, OneShot, Proto, DefaultTransport>::create(comm, plan));
    for (const Index n : counts) {
      Buffer<float> one{n, 0}, all{n * ranks, 0}, sum{n, 0}, mine{n * ranks, 0}, out{n * ranks, 0};
      one.fill([&](Index i) { return value(rank, i); }, stream);
      mine.fill([&](Index i) { return value(rank, i); }, stream);
      go([&] { return all_gather(one.get(), all.get(), n, stream); });
      check(all.wrong(
                n * ranks, [&](Index i) { return value(int(i / n), i % n); }, stream) == 0,
            "%s count %ld rank %d", all_gather.name().c_str(), long(n), rank);
      go([&] { return reduce_scatter(mine.get(), sum.get(), n, Sum{}, stream); });
      const auto reduced = [&](Index i) {
        double s = 0;
        for (int r = 0; r < ranks; ++r) s += value(r, rank * n + i);
        return s;
      };
      check(sum.wrong(n, reduced, stream) == 0, "%s count %ld rank %d",
            reduce_scatter.name().c_str(), long(n), rank);
      go([&] { return all_to_all(mine.get(), out.get(), n, stream); });
      const auto moved = [&](Index i) { return value(int(i / n), rank * n + i % n); };
      check(out.wrong(n * ranks, moved, stream) == 0, "%s count %ld rank %d",
            all_to_all.name().c_str(), long(n), rank);
    }
  }
};

void suite(const Communicator& comm) {
  if (comm.ranks() > max_view_ranks) {
    const auto none = Collective<AllReduce, OneShot, LL, DefaultTransport>::create(comm);
    check(!none && none.error().code == Errc::not_supported, "%d ranks have kernels", comm.ranks());
    return;
  }
  const std::vector<Index> counts{0, 1, 1023, 65536, 300001};
  // Shares of 512 KiB and more go by pairs of tiles.
  const std::vector<Index> with_pairs{1023, 300001, 1200000, 2400001};
  play_each_way<Suite>(comm, 128 << 10, [&](const Suite& rank) {
    rank.all_reduce<OneShot, LL, float>(counts);
    rank.all_reduce<OneShot, LL128, float>(counts);
    rank.all_reduce<TwoShot, LL128, float>(with_pairs);
    rank.all_reduce<TwoShot, LL128, __nv_bfloat16>(with_pairs);
    rank.all_reduce<OneShot, Sentinel, float>(counts);
    rank.all_reduce<TwoShot, Sentinel, float>(with_pairs);
    rank.all_reduce<TwoShot, Sentinel, __nv_bfloat16>(with_pairs);
    rank.shares<LL128>(counts);
    rank.roots<OneShot, LL128>(counts);
    rank.roots<TwoShot, LL128>(counts);
  });
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  both_ways(ranks, config, suite);
  return result("OneShot and TwoShot", ranks.gpus);
}
