// All-reduces by Auto and Deterministic, eager and in graphs: the choice for each size, correct
// sums, and the bits that docs/guide/summation_order.md promises. TEST_RANKS=8 gives the choices of
// 8 GPUs on fewer.
#include <cmath>
#include <random>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Values whose sum depends on the order of adding.
std::vector<float> values(int rank, Index count) {
  std::mt19937 random{unsigned(rank + 1)};
  std::uniform_real_distribution<float> digits{1, 2};
  std::uniform_int_distribution<int> power{-12, 12};
  std::vector<float> all;
  for (Index i = 0; i < count; ++i) {
    all.push_back(std::ldexp(digits(random), power(random)) * (random() % 2 == 0 ? 1.F : -1.F));
  }
  return all;
}
/// ((0 + 1) + 2) + ..., as OneShot and TwoShot have it.
std::vector<float> sums_by_rank(int ranks, Index count) {
  std::vector<float> sums = values(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> more = values(r, count);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  }
  return sums;
}

struct Suite : Rank {
  /// The results of `runs` all-reduces of the first `count` values, which must all be the same.
  template <class Call>
  std::vector<float> same_bits(const Call& call, Index count, int runs) const {
    const std::vector<float> in = values(rank, count);
    Buffer<float> send{count, 0}, recv{count, 0};
    const Pinned<float> out{count};
    std::vector<float> first;
    int other = 0;
    send.fill([&](Index i) { return in[std::size_t(i)]; }, stream);
    for (int i = 0; i < runs; ++i) {
      MUST_CUDA(cudaMemsetAsync(recv.get(), 0xff, std::size_t(count) * sizeof(float), stream));
      must(call(send.get(), recv.get(), count, Sum{}, stream));
      MUST_CUDA(cudaMemcpyAsync(out.get(), recv.get(), std::size_t(count) * sizeof(float),
                                cudaMemcpyDeviceToHost, stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      if (i == 0) first.assign(out.get(), out.get() + count);
      other += std::memcmp(out.get(), first.data(), first.size() * sizeof(float)) != 0;
    }
    check(other == 0, "%d of %d runs of %ld elements differ from the first, rank %d", other, runs,
          long(count), rank);
    return first;
  }

  void deterministic() const {
    constexpr Index longest = 3'000'001;
    const auto call = must(Collective<AllReduce, Deterministic>::create(comm));
    const std::vector<float> whole = same_bits(call, longest, 5);
    // Sizes from one hop to two hops. Every size is a prefix of the longest.
    for (const Index count : {1, 63, 1024, 16384, 65536, 1'000'000}) {
      const std::vector<float> part = same_bits(call, count, count <= 65536 ? 1000 : 20);
      check(std::memcmp(part.data(), whole.data(), part.size() * sizeof(float)) == 0,
            "a part of %ld differs, rank %d", long(count), rank);
    }
    if (ranks > max_view_ranks) return;  // fewer address each other: by rank
    const std::vector<float> sums = sums_by_rank(ranks, longest);
    check(std::memcmp(sums.data(), whole.data(), sums.size() * sizeof(float)) == 0,
          "the sums are not by rank, rank %d", rank);
  }

  /// At every size that changes the composition, and at sizes that fit no tile.
  template <class T, class F>
  void at_all_sizes(const Collective<AllReduce>& call, F op) const {
    for (Index count = 16; count <= 4 << 20; count *= 4) {
      for (const Index n : {count, count + 1}) {
        const auto want = [&](Index i) {
          double result = value(0, i);
          for (int r = 1; r < ranks; ++r) result = double(op(T(result), T(value(r, i))));
          return result;
        };
        Buffer<T> in{n, 0}, out{n, 0};
        in.fill([&](Index i) { return value(rank, i); }, stream);
        go([&] { return call(in.get(), out.get(), n, op, stream); });
        check(out.wrong(n, want, stream) == 0, "%s of %ld elements of %d bytes, rank %d, graph %d",
              call.name(n * Index{sizeof(T)}).c_str(), long(n), int(sizeof(T)), rank, int(graph));
      }
    }
  }
};

void suite(const Communicator& comm) {
  cudaStream_t stream;
  MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto call = must(Collective<AllReduce>::create(comm));
  if (comm.rank() == 0) {
    for (Index bytes = 64; bytes <= Index{64} << 20; bytes *= 4) {
      std::printf("%ld: %s\n", long(bytes), call.plan(bytes).text().c_str());
    }
  }
  for (const bool graph : {false, true}) {
    const Suite rank{{comm, stream, graph}};
    rank.at_all_sizes<float>(call, Sum{});
    rank.at_all_sizes<float>(call, Max{});
    rank.at_all_sizes<int>(call, Sum{});
    if (!graph) rank.deterministic();
  }
  MUST_CUDA(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  both_ways(ranks, {}, suite, 2);
  return result("Auto", ranks.gpus);
}
