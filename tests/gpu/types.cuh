#pragma once

// Types and reductions with algorithms, protocols, counts and alignments on GPUs, through the
// public interface. Each row of these runs with all counts and numbers of ranks. With
// CCL_TEST_ALL_TYPES all rows are compiled, a part of them in each types_<n>_test.cu; without it,
// one in `sample`.
#include "communicator.cuh"
#include "support/reference.hpp"

namespace ccl::test {

template <class O, class A>
struct Pattern {
  using Op = O;
  using Algo = A;
};
using Patterns =
    std::tuple<Pattern<AllReduce, Ring>, Pattern<AllReduce, Tree>, Pattern<AllReduce, OneShot>,
               Pattern<AllReduce, TwoShot>, Pattern<ReduceScatter, Ring>,
               Pattern<ReduceScatter, OneShot>, Pattern<Reduce, Ring>, Pattern<Reduce, Tree>>;
using Protocols = std::tuple<Simple, LL, LL128>;

enum Factor { type, functor, pattern, proto, skew, in_place, rough, memory, captured, factors };
using Levels = std::array<int, factors>;
constexpr Levels levels{int(std::tuple_size_v<Types>),
                        int(std::tuple_size_v<Functors>),
                        int(std::tuple_size_v<Patterns>),
                        int(std::tuple_size_v<Protocols>),
                        2,  // none, one element
                        2,
                        2,   // data that rounds
                        2,   // the scalar of PreMulSum
                        2};  // eager, or captured and replayed
template <int I, class List>
using At = std::tuple_element_t<size_t(I), List>;

/// Restrictions of compositions over peers only. Flags show arrived data; only floats round, and
/// only in arithmetic; a replayed graph must find its input unchanged.
constexpr bool peers_only(int pattern) {
  return pattern == 2 || pattern == 3 || pattern == 5;
}
constexpr bool rounds(int type, int functor) {
  return type >= 8 && type != 14 && functor != 2 && functor != 3 && functor != 6;
}
/// Each type with each functor and each pattern, each functor with each pattern: a formula, since
/// nvcc gives up on searching for a smaller array.
struct Rows {
  static constexpr int count = levels[type] * levels[pattern];
  static constexpr Levels at(int i) {
    Levels level{};
    const int t = i % levels[type], turn = i / levels[type];
    level[type] = t;
    level[functor] = turn % levels[functor];
    level[pattern] = (t + turn) % levels[pattern];
    level[proto] = (t + t / 3 + 2 * turn) % levels[proto];
    if (peers_only(level[pattern]) && level[proto] == 0) level[proto] = 1 + turn % 2;
    level[skew] = (t / 2 + turn) % 2;
    level[captured] = (t + turn / 2) % 2;
    level[in_place] = level[captured] == 0 && (t / 3 + turn) % 2 == 0;
    level[rough] = rounds(t, level[functor]) && (t + turn / 3) % 2 == 0;
    level[memory] = (t + turn) % 2;
    return level;
  }
  static constexpr bool cover(Factor f, Factor g) {
    for (int a = 0; a < levels[f]; ++a) {
      for (int b = 0; b < levels[g]; ++b) {
        bool found = f == pattern && g == proto && peers_only(a) && b == 0;
        for (int i = 0; i < count && !found; ++i) found = at(i)[f] == a && at(i)[g] == b;
        if (!found) return false;
      }
    }
    return true;
  }
};
static_assert(Rows::cover(functor, pattern) && Rows::cover(type, proto) &&
              Rows::cover(functor, proto) && Rows::cover(pattern, proto) &&
              Rows::cover(pattern, skew) && Rows::cover(pattern, captured) &&
              Rows::cover(pattern, in_place));

struct TypesSuite : Rank {
  template <int I>
  void row() const {
    constexpr Levels at = Rows::at(I);
    using T = At<at[type], Types>;
    using F = At<at[functor], Functors>;
    using P = At<at[pattern], Patterns>;
    using Op = typename P::Op;
    using Algo = typename P::Algo;
    if constexpr (requires { Algo::RankCounts::contains(2); }) {
      if (ranks > 1 && !Algo::RankCounts::contains(ranks)) return;
    }
    const auto collective =
        must(Collective<Op, Algo, At<at[proto], Protocols>, DefaultTransport>::create(comm));
    constexpr auto how = rules<T, F>();
    constexpr bool scatters = std::is_same_v<Op, ReduceScatter>;
    constexpr Index offset = at[skew];
    Buffer<char> scalar_at{16, 0};
    char scalar[16] = {};
    how.put_scalar(scalar);
    scalar_at.fill([&](Index i) { return scalar[i]; }, stream);
    const F op = functor_of<F, T>(at[memory] != 0 ? scalar_at.get() : nullptr);

    for (const Index n : {0, 1, 7, 64, 1023, 4099, 60001}) {
      const Index all = scatters ? n * ranks : n;
      std::vector<char> host(size_t(all * how.size) + 1);
      for (Index i = 0; i < all; ++i) how.fill(host.data() + i * how.size, rank, i, at[rough] != 0);
      Buffer<char> in{(all + offset) * how.size, 0}, apart{(n + offset) * how.size, 0};
      char* const from = in.get() + offset * how.size;
      MUST_CUDA(cudaMemcpyAsync(from, host.data(), size_t(all * how.size), cudaMemcpyHostToDevice,
                                stream));
      MUST_CUDA(cudaStreamSynchronize(stream));
      const Index mine = scatters ? rank * n : 0;
      char* const to = at[in_place] != 0 ? from + mine * how.size : apart.get() + offset * how.size;
      const int root = int(n % ranks);
      Rank runner{comm, stream};
      runner.graph = at[captured] != 0;
      runner.go([&] {
        const auto* send = reinterpret_cast<const T*>(from);
        auto* recv = reinterpret_cast<T*>(to);
        if constexpr (Op::rooted) {
          return collective(send, recv, n, op, root, stream);
        } else {
          return collective(send, recv, n, op, stream);
        }
      });
      MUST_CUDA(cudaStreamSynchronize(stream));
      must(comm.status());
      if (Op::rooted && rank != root) continue;
      std::vector<char> got(size_t(n * how.size) + 1);
      MUST_CUDA(cudaMemcpy(got.data(), to, size_t(n * how.size), cudaMemcpyDeviceToHost));
      long wrong = 0;
      for (Index i = 0; i < n; ++i) {
        wrong += !how.good(got.data() + i * how.size, ranks, mine + i, at[rough] != 0);
      }
      check(wrong == 0, "row %d: %s %s of type %d, count %ld, rank %d of %d: %ld wrong", I,
            collective.name().c_str(), std::string{detail::redop_label<F>()}.c_str(), at[type],
            long(n), rank, ranks, wrong);
    }
  }
};

/// The rows whose number is `Part` modulo `Parts`.
template <int Part, int Parts>
int run_types() {
#if defined(CCL_TEST_ALL_TYPES)
  constexpr int sample = 1;
#else
  constexpr int sample = 16;
#endif
  const int gpus = find_ranks().gpus;
  if (gpus == 0) return skipped();
  ::setenv("CCL_TIMEOUT", "20", 0);
  constexpr int step = Parts * sample, first = Part;
  constexpr int count = (Rows::count - first + step - 1) / step;
  Config config;
  config.memory_budget_bytes = Index{2} << 30;
  for (int ranks = 1; ranks <= std::max(gpus, 2); ++ranks) {
    as_threads(ranks, config, [](const Communicator& comm) {
      cudaStream_t stream;
      MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      const TypesSuite suite{{comm, stream}};
      [&]<int... K>(std::integer_sequence<int, K...>) {
        (suite.template row<K * step + first>(), ...);
      }(std::make_integer_sequence<int, count>{});
      MUST_CUDA(cudaStreamDestroy(stream));
    });
  }
  std::printf("%d of %d rows\n", count, Rows::count);
  return result("Types", gpus);
}

}  // namespace ccl::test
