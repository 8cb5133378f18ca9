#include <ccl/ccl.hpp>

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "support/catch.hpp"

using namespace ccl;

namespace {
struct Earlier {
  static constexpr bool commutative = false;
  float operator()(float a, float) const { return a; }
};

/// Another order that is the ranks'.
struct InOrderAgain : OrderedTree {
  static constexpr const char* name = "InOrderAgain";
  template <class Op>
  static constexpr SumOrder order = SumOrder::ordered_chain;
  // Faster than the other, if one may believe it.
  template <class Op>
  static constexpr CostTerms cost_terms(int) {
    return {1, 0.1};
  }
};

/// Values whose sum depends on the order of adding.
template <class T>
std::vector<T> values(int rank, Index count) {
  std::mt19937 random{unsigned(rank + 1)};
  std::uniform_real_distribution<float> digits{1, 2};
  std::uniform_int_distribution<int> power{-12, 12};
  std::vector<T> all;
  for (Index i = 0; i < count; ++i) {
    all.push_back(T(std::ldexp(digits(random), power(random)) * (random() % 2 == 0 ? 1.F : -1.F)));
  }
  return all;
}

template <class Composed>
struct OpOf;
template <class Op, class Algo, class Proto, class Transport>
struct OpOf<Collective<Op, Algo, Proto, Transport>> {
  using Type = Op;
};

/// Every rank's results of an all-reduce of the first `count` values; of a reduce to `root`; of a
/// reduce-scatter of so many for each.
template <class Composed, class T, class F = Sum>
std::vector<std::vector<T>> results(int ranks, Index count, int runs = 1, Config config = {},
                                    F functor = {}, int root = -1) {
  config.device = Config::cpu;
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms);
  const std::vector<T> none(static_cast<std::size_t>(count));
  std::vector<std::vector<T>> all(static_cast<std::size_t>(ranks), none);
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto run = [&]() -> Result<void> {
        CCL_TRY(const auto call, Composed::create((*comms)[r]));
        using Op = typename OpOf<Composed>::Type;
        const auto in = values<T>(r, std::is_same_v<Op, ReduceScatter> ? ranks * count : count);
        auto& out = all[std::size_t(r)];
        for (int i = 0; i < runs; ++i) {
          std::vector<T> again = none;
          if constexpr (std::is_same_v<Op, Reduce>) {
            CCL_CHECK(call(in.data(), again.data(), count, functor, root));
          } else {
            CCL_CHECK(call(in.data(), again.data(), count, functor));
          }
          const bool same = std::memcmp(again.data(), out.data(), again.size() * sizeof(T)) == 0;
          if (i > 0 && !same) return fail(Errc::internal, "two runs differ");
          out = again;
        }
        return {};
      };
      if (const auto done = run(); !done) errors[std::size_t(r)] = done.error().message();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) CHECK(error == "");
  return all;
}
template <class T>
bool begins_with(const std::vector<T>& longer, const std::vector<T>& shorter) {
  return std::memcmp(longer.data(), shorter.data(), shorter.size() * sizeof(T)) == 0;
}

using Det = Collective<AllReduce, Deterministic, Auto, LoopbackTransport>;
template <class Proto>
using Pinned = Collective<AllReduce, OneTree, Proto, LoopbackTransport>;
constexpr Index longest = 70001;  // several chunks
}  // namespace

TEMPLATE_TEST_CASE("a deterministic all-reduce has the same bits in every run, size and rank", "",
                   float, bfloat16, double) {
  for (const int ranks : {2, 3, 5}) {
    const auto whole = results<Det, TestType>(ranks, longest, 3);
    for (const auto& of_rank : whole) CHECK(begins_with(whole[0], of_rank));
    for (const Index count : {1, 7, 1000, 20001}) {
      const auto part = results<Det, TestType>(ranks, count);
      for (const auto& of_rank : part) CHECK(begins_with(whole[0], of_rank));
    }
  }
}

TEST_CASE("one tree gives the same bits by every protocol and number of channels") {
  const auto one = results<Pinned<Simple>, float>(5, longest);
  CHECK(begins_with(one[0], results<Pinned<LL>, float>(5, longest)[0]));
  CHECK(begins_with(one[0], results<Pinned<LL128>, float>(5, longest)[0]));
  Config config;
  config.channels = 4;
  CHECK(begins_with(one[0], results<Pinned<Simple>, float>(5, longest, 1, config)[0]));
  // Otherwise the test could not distinguish them: two trees are two orders.
  using Two = Collective<AllReduce, Tree, Simple, LoopbackTransport>;
  CHECK_FALSE(begins_with(one[0], results<Two, float>(5, longest, 1, config)[0]));
  using Rings = Collective<AllReduce, Ring, Simple, LoopbackTransport>;
  const auto ring = results<Rings, float>(5, longest);
  CHECK_FALSE(begins_with(ring[0], results<Rings, float>(5, 1000)[0]));
}

TEST_CASE("the sum is that of the documented order") {
  // A node adds its own value, then its children's (docs/guide/summation_order.md). With three
  // ranks rank 0 is the root with one child, 2, which has one child, 1.
  const auto sums = results<Det, float>(3, 1000);
  const auto a = values<float>(0, 1000), b = values<float>(1, 1000), c = values<float>(2, 1000);
  bool same = true;
  for (std::size_t i = 0; i < 1000; ++i) same = same && sums[0][i] == a[i] + (c[i] + b[i]);
  CHECK(same);
}

TEST_CASE("a functor that is not commutative has the order of the ranks, by name") {
  using Ordered = Collective<AllReduce, OrderedTree, Simple, LoopbackTransport>;
  using ToRoot = Collective<Reduce, OrderedTree, Simple, LoopbackTransport>;
  constexpr Index count = 20001;
  for (const int ranks : {2, 5}) {
    for (const auto& of_rank : results<Ordered, float, Earlier>(ranks, count)) {
      CHECK(of_rank == values<float>(0, count));
    }
    for (int root = 0; root < ranks; ++root) {
      const auto all = results<ToRoot, float, Earlier>(ranks, count, 2, {}, {}, root);
      for (int r = 0; r < ranks; ++r) {
        CHECK(all[std::size_t(r)] ==
              (r == root ? values<float>(0, count) : std::vector<float>(count)));
      }
    }
  }
  // A sum that rounds, too: any root has what all ranks of an all-reduce have.
  const auto sums = results<Ordered, float>(5, count);
  CHECK(results<ToRoot, float>(5, count, 1, {}, Sum{}, 3)[3] == sums[3]);
  CHECK(results<ToRoot, float>(5, count, 1, {}, Sum{}, 0)[0] == sums[3]);
}

TEMPLATE_TEST_CASE("Auto gives a functor that is not commutative the order of the ranks", "", Auto,
                   Deterministic) {
  constexpr Index count = 20001;
  for (const int ranks : {1, 2, 5}) {
    using AllReduces = Collective<AllReduce, TestType>;
    for (const auto& of_rank : results<AllReduces, float, Earlier>(ranks, count)) {
      CHECK(of_rank == values<float>(0, count));
    }
    for (int root = 0; root < ranks; ++root) {
      using Reduces = Collective<Reduce, TestType>;
      const auto all = results<Reduces, float, Earlier>(ranks, count, 2, {}, {}, root);
      CHECK(all[std::size_t(root)] == values<float>(0, count));
    }
    using Scatters = Collective<ReduceScatter, TestType>;
    const auto shares = results<Scatters, float, Earlier>(ranks, count, 2);
    const auto whole = values<float>(0, ranks * count);
    for (int r = 0; r < ranks; ++r) {
      CHECK(std::equal(shares[std::size_t(r)].begin(), shares[std::size_t(r)].end(),
                       whole.begin() + r * count));
    }
  }
}

TEST_CASE("Auto keeps OrderedTree for functors that are not commutative") {
  Config config;
  config.device = Config::cpu;
  const auto comms = Communicator::create_all(3, config);
  REQUIRE(comms);
  std::vector<std::string> texts(3), chosen(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const Communicator& comm = (*comms)[std::size_t(r)];
      const auto reduce = Collective<Reduce>::create(comm);
      using OrderedOnGpus = AutoOf<Candidate<Ring, Simple>, Candidate<OneShot, LL128>>;
      const auto scatter = Collective<ReduceScatter, OrderedOnGpus>::create(comm);
      using Alone = AutoOf<ForOrder<Candidate<OrderedTree, Simple>>>;
      const auto alone = Collective<AllReduce, Alone>::create(comm);
      if (!reduce || !scatter || !alone) return;
      for (Index bytes = 1; bytes < 1 << 24; bytes *= 4) {
        chosen[std::size_t(r)] += reduce->plan(bytes).composition + " ";
      }
      float x[3] = {1, 2, 3}, sum = 0;
      const auto done = (*scatter)(x, &sum, 1, Earlier{});
      if (!done && done.error().code == Errc::not_supported) {
        texts[std::size_t(r)] = done.error().message();
      }
      // Without other candidates it serves all functors.
      if (!(*alone)(x, x, 1) || x[0] != 3) texts[std::size_t(r)] += "not alone";
    });
  }
  for (auto& thread : threads) thread.join();
  for (int r = 0; r < 3; ++r) {
    CHECK(chosen[std::size_t(r)].find("Ring") != std::string::npos);
    CHECK(chosen[std::size_t(r)].find("OrderedTree") == std::string::npos);
    CHECK(texts[std::size_t(r)].find("the functor is not commutative; Ring/Simple are left); name "
                                     "an algorithm that keeps the order of the ranks") !=
          std::string::npos);
    CHECK(texts[std::size_t(r)].find("not alone") == std::string::npos);
  }
}

TEST_CASE("candidates for order alone have one order of their own") {
  // Of two candidates that keep the ranks' order for any functor, the first counts. The sum, which
  // others support, has its own.
  using Own =
      DeterministicOf<ForOrder<Candidate<OrderedTree, LL>>, Candidate<Doubling, Simple>,
                      ForOrder<Candidate<InOrderAgain, Simple>>, Candidate<OneTree, Simple>>;
  Config config;
  config.device = Config::cpu;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms);
  std::vector<std::string> names[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto own = Collective<AllReduce, Own, Auto, LoopbackTransport>::create((*comms)[r]);
      if (own) names[r] = own->compositions();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& made : names) {
    CHECK(made == std::vector<std::string>{"OrderedTree/LL", "Doubling/Simple"});
  }
}

TEST_CASE("a rank alone is refused no functor") {
  Config config;
  config.device = Config::cpu;
  auto comms = Communicator::create_all(1, config);
  REQUIRE(comms);
  const auto scatter = Collective<ReduceScatter>::create(comms->front());
  const auto det = Collective<AllReduce, Deterministic>::create(comms->front());
  const auto reduce = Collective<Reduce, Deterministic>::create(comms->front());
  REQUIRE((scatter && det && reduce));
  const float x[2] = {3, 4};
  float w[2] = {}, y[2] = {}, z[2] = {};
  CHECK((*scatter)(x, w, 2, Earlier{}));
  CHECK((w[0] == 3 && w[1] == 4));
  CHECK((*det)(x, y, 2, Earlier{}));
  CHECK((*reduce)(x, z, 2, Earlier{}, 0));
  CHECK((y[1] == 4 && z[1] == 4));
  CHECK_FALSE((*reduce)(x, z, 2, Earlier{}, 1));
}

TEST_CASE("where the reduction's order depends on the size, a candidate is left out") {
  using Own = DeterministicOf<Candidate<Ring, Simple>, Candidate<Doubling, Simple>,
                              Candidate<OneTree, Simple>>;
  Config config;
  config.device = Config::cpu;
  auto comms = Communicator::create_all(2, config);
  REQUIRE(comms);
  std::vector<std::vector<std::string>> names(2);
  std::string why[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto own = Collective<AllReduce, Own, Auto, LoopbackTransport>::create((*comms)[r]);
      if (own) names[std::size_t(r)] = own->compositions();
      using OnlyRing = DeterministicOf<Candidate<Ring, Simple>>;
      const auto none =
          Collective<AllReduce, OnlyRing, Auto, LoopbackTransport>::create((*comms)[r]);
      if (!none) why[r] = none.error().what;
    });
  }
  for (auto& thread : threads) thread.join();
  for (int r = 0; r < 2; ++r) {
    // Doubling comes first, and OneTree has another order.
    CHECK(names[std::size_t(r)] == std::vector<std::string>{"Doubling/Simple"});
    CHECK(why[r].find("Ring/Simple: its order of reduction varies with the size") !=
          std::string::npos);
  }
}
