// Calls of a Hierarchical in turns on two streams, eager and in graphs that are replayed on two
// streams. Levels are communicators of their own, and a call must not overwrite another's data in
// the scratch between them. Graphs outlive the composition. Other collectives of the communicator
// run in between.
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "communicator.cuh"

using namespace ccl;
using namespace ccl::test;

namespace {
using Rings = Hierarchical<Ring, Ring>;
using Pairs = Hierarchical<Pairwise, Pairwise>;
template <class Op, class Algo>
using Levels = Collective<Op, Algo, Simple, DefaultTransport>;

constexpr int calls = 4, rounds = 3;

/// An operation in calls of their own data, by turns on two streams.
struct BySequence : Rank {
  cudaStream_t other;
  const char* what;
  Index large;          // of the first stream's calls; the second's are smaller
  Index in_runs, runs;  // of `count` elements, in the input and in the output
  /// True if this rank has the result of a call.
  std::function<bool(int)> contains = [](int) { return true; };

  cudaStream_t on(int k) const { return k % 2 == 0 ? stream : other; }
  Index count(int k) const { return k % 2 == 0 ? large : k % 4 == 1 ? 101 : large / 2 - 1; }

  /// Runs `call(in, out, count, k, stream)` of the result of `made()`, and checks `want(k, count,
  /// i)`.
  template <class Make, class Call, class Want>
  void play(Make make, Call call, Want want) const {
    std::vector<std::unique_ptr<Buffer<float>>> in, out, kept;
    for (int k = 0; k < calls; ++k) {
      in.push_back(std::make_unique<Buffer<float>>(count(k) * in_runs, 0));
      in.back()->fill([&](Index i) { return value(rank + k, i); }, stream);
      out.push_back(std::make_unique<Buffer<float>>(count(k) * runs, 0));
    }
    for (int k = 0; k < calls * rounds; ++k) {
      kept.push_back(std::make_unique<Buffer<float>>(count(k % calls) * runs, 0));
    }
    std::optional made{must(make())};
    const auto one = [&](int k) {
      must(call(*made, in[size_t(k)]->get(), out[size_t(k)]->get(), count(k), k, on(k)));
    };
    // On the stream of the call, so that the next one may overwrite what this one left.
    const auto keep = [&](int k, int round) {
      MUST_CUDA(cudaMemcpyAsync(kept[size_t(round * calls + k)]->get(), out[size_t(k)]->get(),
                                size_t(count(k) * runs) * sizeof(float), cudaMemcpyDeviceToDevice,
                                on(k)));
    };
    if (!graph) {
      for (int round = 0; round < rounds; ++round) {
        for (int k = 0; k < calls; ++k) {
          one(k);
          keep(k, round);
        }
      }
      compare(kept, want);
      return;
    }
    cudaGraphExec_t ready[calls];
    for (int k = 0; k < calls; ++k) {
      cudaGraph_t captured;
      MUST_CUDA(cudaStreamBeginCapture(on(k), cudaStreamCaptureModeThreadLocal));
      one(k);
      MUST_CUDA(cudaStreamEndCapture(on(k), &captured));
      MUST_CUDA(cudaGraphInstantiate(&ready[k], captured, 0));
      MUST_CUDA(cudaGraphDestroy(captured));
    }
    made.reset();  // the graphs hold what they use
    for (int round = 0; round < rounds; ++round) {
      for (int k = 0; k < calls; ++k) {
        MUST_CUDA(cudaGraphLaunch(ready[k], on(k)));
        keep(k, round);
      }
    }
    compare(kept, want);
    for (const auto exec : ready) MUST_CUDA(cudaGraphExecDestroy(exec));
  }

  template <class Want>
  void compare(const std::vector<std::unique_ptr<Buffer<float>>>& kept, Want want) const {
    MUST_CUDA(cudaStreamSynchronize(stream));
    MUST_CUDA(cudaStreamSynchronize(other));
    for (int k = 0; k < calls * rounds; ++k) {
      const int c = k % calls;
      if (!contains(c)) continue;
      const Index n = count(c);
      const long wrong = kept[size_t(k)]->wrong(
          n * runs, [&](Index i) { return want(c, n, i); }, stream);
      check(wrong == 0, "%s%s, rank %d, round %d, call %d: %ld of %ld wrong", what,
            graph ? " in graphs" : "", rank, k / calls, c, wrong, long(n * runs));
    }
  }
};

/// A collective of all ranks on one stream reads the levels' results of another stream.
void with_others(const Rank& rank, cudaStream_t other) {
  const auto levels = must(Levels<AllReduce, Rings>::create(rank.comm));
  const auto ring = must(Levels<AllReduce, Ring>::create(rank.comm));
  constexpr Index count = 300'001;
  constexpr int times = 8;
  Buffer<float> between{count, 0};
  std::vector<std::unique_ptr<Buffer<float>>> in, out;
  for (int k = 0; k < times; ++k) {
    in.push_back(std::make_unique<Buffer<float>>(count, 0));
    in.back()->fill([&](Index i) { return value(rank.rank + k, i); }, rank.stream);
    out.push_back(std::make_unique<Buffer<float>>(count, 0));
  }
  for (std::size_t k = 0; k < times; ++k) {
    must(levels(in[k]->get(), between.get(), count, Sum{}, rank.stream));
    must(ring(between.get(), out[k]->get(), count, Sum{}, other));
  }
  for (int k = 0; k < times; ++k) {
    const auto want = [&](Index i) {
      double sum = 0;
      for (int r = 0; r < rank.ranks; ++r) sum += value(r + k, i);
      return sum * rank.ranks;
    };
    const long wrong = out[std::size_t(k)]->wrong(count, want, other);
    check(wrong == 0, "a ring after two levels, rank %d, call %d: %ld wrong", rank.rank, k, wrong);
  }
}

void suite(const Communicator& comm) {
  cudaStream_t first{}, second{};
  MUST_CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  MUST_CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  const int ranks = comm.ranks(), me = comm.rank();
  const auto sum = [ranks](int k, Index i) {
    double s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r + k, i);
    return s;
  };
  for (const bool graph : {false, true}) {
    const Rank rank{comm, first, graph};
    // Counts too small for whole lines, and no equal shares: the data goes through the scratch.
    const BySequence all_reduce{rank, second, "all_reduce", 32'001, 1, 1};
    all_reduce.play([&] { return Levels<AllReduce, Rings>::create(comm); },
                    [](const auto& c, const float* in, float* out, Index n, int, cudaStream_t s) {
                      return c(in, out, n, Sum{}, s);
                    },
                    [&](int k, Index, Index i) { return sum(k, i); });
    const BySequence scatter{rank, second, "reduce_scatter", 100'000, ranks, 1};
    scatter.play([&] { return Levels<ReduceScatter, Rings>::create(comm); },
                 [](const auto& c, const float* in, float* out, Index n, int, cudaStream_t s) {
                   return c(in, out, n, Sum{}, s);
                 },
                 [&](int k, Index n, Index i) { return sum(k, me * n + i); });
    const auto root = [ranks](int k) { return k / 2 * (ranks - 1) % ranks; };
    const BySequence reduce{
        rank, second, "reduce", 200'000, 1, 1, [&](int k) { return root(k) == me; }};
    reduce.play([&] { return Levels<Reduce, Rings>::create(comm); },
                [&](const auto& c, const float* in, float* out, Index n, int k, cudaStream_t s) {
                  return c(in, out, n, Sum{}, root(k), s);
                },
                [&](int k, Index, Index i) { return sum(k, i); });
    const BySequence all_to_all{rank, second, "all_to_all", 50'000, ranks, ranks};
    all_to_all.play([&] { return Levels<AllToAll, Pairs>::create(comm); },
                    [](const auto& c, const float* in, float* out, Index n, int, cudaStream_t s) {
                      return c(in, out, n, s);
                    },
                    [&](int k, Index n, Index i) { return value(int(i / n) + k, me * n + i % n); });
  }
  with_others({comm, first}, second);
  MUST_CUDA(cudaStreamDestroy(first));
  MUST_CUDA(cudaStreamDestroy(second));
}

}  // namespace

int main() {
  const Ranks ranks = find_ranks();
  if (ranks.gpus == 0) return skipped();
  // Two ranks on each of two hosts share GPUs if there are too few, and wait for each other. No
  // kernel may be loaded while one waits.
  ::setenv("CCL_TIMEOUT", "20", 0);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  ::setenv("CCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  as_processes(std::max(4, ranks.count), Config{}, suite, 2);
  return result("Hierarchical", ranks.gpus);
}
