// Reductions that read the peers' buffers through the public interface: threads and processes,
// eager and in graphs, from buffers that peers map later and through scratch.
#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Elements that fill no word evenly.
struct Triple {
  float x, y, z;
  Triple() = default;
  __host__ __device__ explicit Triple(double v) : x(float(v)), y(2 * float(v)), z(0) {}
  __host__ __device__ explicit operator double() const { return x + y + z; }
  friend __host__ __device__ Triple operator+(const Triple& a, const Triple& b) {
    Triple sum{0.};
    sum.x = a.x + b.x;
    sum.y = a.y + b.y;
    sum.z = a.z + b.z;
    return sum;
  }
};

struct Suite : Rank {
  std::optional<Plan> plan{};

  template <class T>
  void reductions(Index n) const {
    const auto reduce =
        must(Collective<ccl::AllReduce, Direct, Simple, DefaultTransport>::create(comm, plan));
    const auto scatter =
        must(Collective<ccl::ReduceScatter, Direct, Simple, DefaultTransport>::create(comm, plan));
    const auto to_root =
        must(Collective<ccl::Reduce, Direct, Simple, DefaultTransport>::create(comm, plan));
    const auto sum = [&](Index i) {
      double s = 0;
      for (int r = 0; r < ranks; ++r) s += value(r, i);
      return s;
    };
    // Some ranks' buffers are not aligned, or none's.
    const Index offset = n % 2 == 1 ? rank % 2 : 0;
    Buffer<T> in{n, offset}, out{n, 0}, all{n * ranks, 0}, share{n, offset}, same{n * ranks, 0};
    in.fill([&](Index i) { return value(rank, i); }, stream);
    all.fill([&](Index i) { return value(rank, i); }, stream);
    // Peers can have mapped the buffers in later rounds.
    for (int turn = 0; turn < 4; ++turn) {
      go([&] { return reduce(in.get(), out.get(), n, Sum{}, stream); });
      check(out.wrong(n, sum, stream) == 0, "%s count %ld rank %d turn %d", reduce.name().c_str(),
            long(n), rank, turn);
      go([&] { return scatter(all.get(), share.get(), n, Sum{}, stream); });
      check(share.wrong(
                n, [&](Index i) { return sum(rank * n + i); }, stream) == 0,
            "%s count %ld rank %d turn %d", scatter.name().c_str(), long(n), rank, turn);
      const int root = turn % ranks;
      const Index at_root = rank == root ? n : 0;  // others have no output
      out.fill([](Index) { return -1.; }, stream);
      go([&] {
        return to_root(in.get(), at_root > 0 ? out.get() : nullptr, n, Sum{}, root, stream);
      });
      check(out.wrong(at_root, sum, stream) == 0, "%s to %d, count %ld rank %d turn %d",
            to_root.name().c_str(), root, long(n), rank, turn);
      if (graph) continue;
      same.fill([&](Index i) { return value(rank, i); }, stream);
      must(scatter(same.get(), same.get() + rank * n, n, Sum{}, stream));
      check(same.wrong(
                n, [&](Index i) { return sum(rank * n + i); }, stream, rank * n) == 0,
            "%s in place, count %ld rank %d turn %d", scatter.name().c_str(), long(n), rank, turn);
      same.fill([&](Index i) { return value(rank, i); }, stream);
      must(reduce(same.get(), same.get(), n * ranks, Sum{}, stream));
      check(same.wrong(n * ranks, sum, stream) == 0, "%s in place, count %ld rank %d turn %d",
            reduce.name().c_str(), long(n), rank, turn);
    }
  }
};

void suite(const Communicator& comm) {
  play_each_way<Suite>(comm, 1 << 20, [&](const Suite& rank) {
    for (const Index n : {1, 1023, 65536, 2000001}) {
      rank.reductions<float>(n);
      rank.reductions<__nv_bfloat16>(n);
    }
    rank.reductions<Triple>(65537);
  });
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "5", 0);
  Config config;
  config.memory_budget_bytes = Index{4} << 30;
  both_ways(ranks, config, suite);
  return result("reductions that read the buffers of peers", ranks.gpus);
}
