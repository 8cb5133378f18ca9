// Several calls as one, on CPU lanes, for any order in which the ranks list them.
#include <ccl/ccl.hpp>

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/chosen_transport.hpp"
#include "support/error_matchers.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Ring, Simple, LoopbackTransport>;
using Trees = Collective<AllReduce, Tree, LL, LoopbackTransport>;
using Gathers = Collective<AllGather, Ring, LL128, LoopbackTransport>;
using Copies = Collective<Broadcast, Tree, LL, LoopbackTransport>;
using Alls = Collective<AllToAll, Pairwise, LL, LoopbackTransport>;
using Network = Collective<AllReduce, Ring, Simple, SocketTransport>;

constexpr Index n = 5000;

std::vector<Communicator> make(int ranks, Config config = {}) {
  if (!config.timeout_s) config.timeout_s = 60;
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms.has_value());
  return *std::move(comms);
}

/// One rank's buffers and what they must hold in the end.
struct Data {
  int rank, ranks;
  std::vector<float> a, sum, gathered, copy, mailbox, got, net;
  std::vector<double> b, tree;
  Data(int me, int all) : rank{me}, ranks{all} {
    a.assign(n, float(me + 1));
    b.assign(n / 2, double(me * 3));
    mailbox.resize(size_t(n) * all);
    for (int p = 0; p < all; ++p) std::fill_n(mailbox.begin() + p * n, n, float(me * 10 + p));
    sum.resize(n);
    net.resize(n);
    tree.resize(n / 2);
    gathered.resize(size_t(n) * all);
    copy.resize(n);
    got.resize(size_t(n) * all);
  }
  long wrong(int root) const {
    long bad = 0;
    const int each = ranks * (ranks - 1) / 2;
    for (Index i = 0; i < n; ++i) bad += sum[size_t(i)] != float(each + ranks);
    for (const double x : tree) bad += x != 3.0 * each;
    for (const float x : copy) bad += x != float(root + 1);
    for (Index i = 0; i < n * ranks; ++i) {
      bad += gathered[size_t(i)] != float(i / n + 1);
      bad += got[size_t(i)] != float(i / n * 10 + rank);
    }
    return bad;
  }
};

Errc code(const Result<void>& result) {
  return result ? Errc::ok : result.error().code;
}
}  // namespace

TEST_CASE("a group makes all its calls, whatever order each rank lists them in") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool check : {false, true}) {
      Config config;
      config.check = check;
      const auto comms = make(ranks, config);
      std::atomic<long> wrong{0};
      on_all(comms, [&](const Communicator& comm) -> Result<void> {
        CCL_TRY(auto sums, Sums::create(comm));
        CCL_TRY(auto trees, Trees::create(comm));
        CCL_TRY(auto gathers, Gathers::create(comm));
        CCL_TRY(auto copies, Copies::create(comm));
        CCL_TRY(auto alls, Alls::create(comm));
        HostStream stream;
        for (int turn = 0; turn < 8; ++turn) {
          Data d{comm.rank(), ranks};
          const int root = turn % ranks;
          const Stream on = turn % 2 == 0 ? Stream{} : Stream{stream};
          const auto sum = sums.bind(d.a.data(), d.sum.data(), n);
          const auto tree = trees.bind(d.b.data(), d.tree.data(), n / 2, Sum{});
          const auto gather = gathers.bind(d.a.data(), d.gathered.data(), n);
          const auto copy = copies.bind(d.a.data(), d.copy.data(), n, root);
          const auto all = alls.bind(d.mailbox.data(), d.got.data(), n);
          static_assert(group_kernels<decltype(sum), decltype(all), decltype(copy)> == 2);
          switch ((turn + comm.rank()) % 3) {
            case 0:
              CCL_CHECK(group(on, sum, tree, gather, copy, all));
              break;
            case 1:
              CCL_CHECK(group(on, all, copy, gather, tree, sum));
              break;
            default:
              CCL_CHECK(group(on, gather, sum, all, tree, copy));
          }
          CCL_CHECK(stream.synchronize());
          wrong += d.wrong(root);
        }
        return comm.finalize();
      });
      INFO(ranks << " ranks" << (check ? ", checked" : ""));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a group may hold calls over a network, whose proxies its threads help") {
  const auto comms = make(3);
  std::atomic<long> wrong{0};
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto network, Network::create(comm));
    for (int turn = 0; turn < 10; ++turn) {
      Data d{comm.rank(), comm.ranks()};
      const auto sum = sums.bind(d.a.data(), d.sum.data(), n, Max{});
      const auto net = network.bind(d.a.data(), d.net.data(), n, Sum{});
      CCL_CHECK(comm.rank() == 0 ? group({}, sum, net) : group(net, sum));
      for (const float x : d.sum) wrong += x != 3.f;
      for (const float x : d.net) wrong += x != 6.f;
    }
    return comm.finalize();
  });
  CHECK(wrong == 0);
}

TEST_CASE("a group may hold calls whose compositions are chosen, size by size") {
  using Chosen = Collective<AllReduce, Auto, Auto, LoopbackTransport>;
  const auto comms = make(3);
  std::atomic<long> wrong{0};
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sums, Sums::create(comm));
    CCL_TRY(auto chosen, Chosen::create(comm));
    for (const Index count : {Index{1}, Index{100}, n}) {
      Data d{comm.rank(), comm.ranks()};
      const auto sum = sums.bind(d.a.data(), d.sum.data(), n, Max{});
      const auto any = chosen.bind(d.a.data(), d.net.data(), count);
      static_assert(group_kernels<decltype(sum), decltype(any)> == 2);
      CCL_CHECK(comm.rank() == 0 ? group({}, sum, any) : group({}, any, sum));
      for (const float x : d.sum) wrong += x != 3.f;
      for (Index i = 0; i < n; ++i) wrong += d.net[size_t(i)] != (i < count ? 6.f : 0.f);
    }
    return comm.finalize();
  });
  CHECK(wrong == 0);
}

TEST_CASE("a group may hold as many calls of one kind as there are at run time") {
  for (const int ranks : {1, 3}) {
    const auto comms = make(ranks);
    std::atomic<long> wrong{0};
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto one, Sums::create(comm));
      CCL_TRY(auto other, Sums::create(comm));
      std::vector<std::vector<float>> in, out;
      for (int k = 0; k < 33; ++k) {
        in.emplace_back(std::size_t(k * 11), float(comm.rank() + k));
        out.emplace_back(std::size_t(k * 11), -1.f);
      }
      std::vector<decltype(one.bind((const float*)nullptr, (float*)nullptr, Index{0}))> calls;
      CCL_CHECK(group({}, calls));  // none
      for (std::size_t k = 0; k < in.size(); ++k) {
        const float* const from = in[k].data();
        calls.push_back((k % 3 == 0 ? other : one).bind(from, out[k].data(), Index(in[k].size())));
      }
      CCL_CHECK(group(calls));
      for (std::size_t k = 0; k < in.size(); ++k) {
        const float want = float(ranks * (ranks - 1) / 2 + ranks * int(k));
        for (const float x : out[k]) wrong += x != want;
      }
      // An error of one call is the group's.
      calls.push_back(one.bind((const float*)nullptr, out[1].data(), Index{5}));
      const auto refused = group({}, std::span{std::as_const(calls)}.last(2));
      wrong += refused.has_value();
      return comm.finalize();
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("closures that hold values reduce, alone and in groups") {
  for (const int ranks : {1, 3}) {
    const auto comms = make(ranks);
    std::atomic<long> bad{0};
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sums, Sums::create(comm));
      CCL_TRY(auto trees, Trees::create(comm));
      float half = 0.5F;
      const auto more = [half](float a, float b) { return a + b + half; };
      const std::vector<float> ones(n, 1.0F);
      std::vector<float> a(n), b(n);
      const auto count = [&] {
        const float want = 1.5F * float(ranks) - half;
        for (const auto* out : {&a, &b}) bad += n - std::count(out->begin(), out->end(), want);
        std::fill(a.begin(), a.end(), 0.0F);
        std::fill(b.begin(), b.end(), 0.0F);
      };
      CCL_CHECK(sums(ones.data(), a.data(), n, more));
      CCL_CHECK(trees(ones.data(), b.data(), n, more));
      count();
      CCL_CHECK(group({}, sums.bind(ones.data(), a.data(), n, more),
                      trees.bind(ones.data(), b.data(), n, more)));
      count();
      const std::vector both{sums.bind(ones.data(), a.data(), n, more),
                             sums.bind(ones.data(), b.data(), n, more)};
      CCL_CHECK(group({}, both));
      count();
      return {};
    });
    CHECK(bad == 0);
  }
}

TEST_CASE("calls of one composition run in the order in which a group lists them") {
  for (const int ranks : {1, 2, 3}) {
    for (const bool check : {false, true}) {
      Config config;
      config.check = check;
      const auto comms = make(ranks, config);
      std::atomic<long> wrong{0};
      on_all(comms, [&](const Communicator& comm) -> Result<void> {
        CCL_TRY(auto sums, Sums::create(comm));
        CCL_TRY(auto copies, Copies::create(comm));
        CCL_TRY(auto alls, Alls::create(comm));
        HostStream stream;
        for (int turn = 0; turn < 6; ++turn) {
          const Data d{comm.rank(), ranks};
          std::vector<float> sum[3] = {d.sum, d.sum, d.sum}, copy[2] = {d.copy, d.copy};
          std::vector<float> got[2] = {d.got, d.got};
          const Stream on = turn % 2 == 0 ? Stream{} : Stream{stream};
          // Calls of other sizes and operators: a mix-up of the two would hang or fail.
          const auto sum_0 = sums.bind(d.a.data(), sum[0].data(), n);
          const auto sum_1 = sums.bind(d.a.data(), sum[1].data(), n / 7, Max{});
          const auto sum_2 = sums.bind(d.a.data(), sum[2].data(), n / 2, Min{});
          const auto copy_0 = copies.bind(d.a.data(), copy[0].data(), n, 0);
          const auto copy_1 = copies.bind(d.a.data(), copy[1].data(), n / 3, ranks - 1);
          const auto all_0 = alls.bind(d.mailbox.data(), got[0].data(), n);
          const auto all_1 = alls.bind(d.mailbox.data(), got[1].data(), n);
          if ((turn + comm.rank()) % 2 == 0) {
            CCL_CHECK(group(on, sum_0, sum_1, copy_0, all_0, copy_1, sum_2, all_1));
          } else {
            CCL_CHECK(group(on, all_0, copy_0, sum_0, copy_1, sum_1, all_1, sum_2));
          }
          CCL_CHECK(stream.synchronize());
          const auto look = [&](const std::vector<float>& out, Index count, float value) {
            for (Index i = 0; i < n; ++i) wrong += out[size_t(i)] != (i < count ? value : 0.f);
          };
          look(sum[0], n, float(ranks * (ranks + 1)) / 2);
          look(sum[1], n / 7, float(ranks));
          look(sum[2], n / 2, 1.f);
          look(copy[0], n, 1.f);
          look(copy[1], n / 3, float(ranks));
          for (const auto& one : got) {
            for (Index i = 0; i < n * ranks; ++i) {
              wrong += one[size_t(i)] != float(i / n * 10 + comm.rank());
            }
          }
        }
        return comm.finalize();
      });
      INFO(ranks << " ranks" << (check ? ", checked" : ""));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("calls of one composition that ranks list in other orders are told apart") {
  Config config;
  config.check = true;
  const auto comms = make(2, config);
  std::vector<Result<void>> results(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto sums = Sums::create(comms[size_t(r)]);
      if (!sums) return;
      float x[4] = {1, 2, 3, 4}, y[4] = {}, z[4] = {};
      const auto longer = sums->bind(x, y, 4), shorter = sums->bind(x, z, 2);
      results[size_t(r)] = r == 0 ? group({}, longer, shorter) : group({}, shorter, longer);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    CHECK(code(result) == Errc::mismatch);
    if (!result) CHECK(mentions(result.error().what, "operation 1 differs"));
  }
}

TEST_CASE("a group refuses what cannot go together, before anything runs") {
  const auto comms = make(2);
  const auto others = make(2);
  std::vector<std::vector<Errc>> codes(2);
  std::vector<std::string> texts(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      auto sums = Sums::create(comms[size_t(r)]);
      auto more = Sums::create(comms[size_t(r)]);
      auto foreign = Sums::create(others[size_t(r)]);
      if (!sums || !more || !foreign) return;
      float x[4] = {1, 2, 3, 4}, y[4] = {}, z[4] = {};
      auto gone = sums->bind(x, y, 4);
      const auto one = std::move(gone);
      const auto two = group({}, one, foreign->bind(x, z, 4));
      if (!two) texts[size_t(r)] = two.error().message();
      codes[size_t(r)] = {code(two),
                          code(group({}, one, more->bind(static_cast<float*>(nullptr), z, 4))),
                          // NOLINTNEXTLINE(bugprone-use-after-move)
                          code(group({}, gone)), code(group({}, one, gone)),
                          code(group({}, one, more->bind(x, z, 4)))};
    });
  }
  for (auto& thread : threads) thread.join();
  for (int r = 0; r < 2; ++r) {
    INFO(texts[size_t(r)]);
    CHECK(codes[size_t(r)] == std::vector<Errc>{Errc::invalid_usage, Errc::invalid_argument,
                                                Errc::invalid_usage, Errc::invalid_usage,
                                                Errc::ok});
    CHECK(texts[size_t(r)].find("of two communicators") != std::string::npos);
  }
}

TEST_CASE("a group refuses calls of another communicator of one rank, before anything runs") {
  const auto comms = make(2);
  std::vector<std::vector<Errc>> codes(2);
  std::vector<float> first(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto single = Communicator::create_all(1);
      if (!single) return;
      auto sums = Sums::create(comms[size_t(r)]);
      auto sole = Sums::create(single->front());
      if (!sums || !sole) return;
      float x[4] = {1, 2, 3, 4}, y[4] = {}, z[4] = {};
      const auto two = sums->bind(x, y, 4), one = sole->bind(x, z, 4);
      codes[size_t(r)] = {code(group({}, two, one)), code(group({}, one, two)),
                          code(group({}, std::vector{one, two}))};
      first[size_t(r)] = y[0] + z[0];
      codes[size_t(r)].push_back(code(group({}, one, one)));
    });
  }
  for (auto& thread : threads) thread.join();
  const auto refused = Errc::invalid_usage;
  for (int r = 0; r < 2; ++r) {
    CHECK(codes[size_t(r)] == std::vector<Errc>{refused, refused, refused, Errc::ok});
    CHECK(first[size_t(r)] == 0);
  }
}

TEST_CASE("a rank that leaves ends a group everywhere") {
  auto comms = make(2);
  std::vector<Result<void>> results(2);
  std::vector<std::thread> threads;
  std::latch created{2};
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Communicator comm = std::move(comms[size_t(r)]);
      auto sums = Sums::create(comm);
      auto trees = Trees::create(comm);
      created.arrive_and_wait();
      if (!sums || !trees) return;
      if (r == 1) {
        comm.abort("enough");
        return;
      }
      float x[4] = {}, y[4] = {}, z[4] = {};
      results[0] = group({}, sums->bind(x, y, 4), trees->bind(x, z, 4));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(code(results[0]) == Errc::aborted);
}

TEST_CASE("exchanges over a peer view share a group's kernel where its arguments hold them") {
  using Exchange = Collective<AllToAll, Direct, Simple>;
  using Bound = decltype(std::declval<Exchange>().bind((float*)nullptr, (float*)nullptr, n));
  using Sum = decltype(std::declval<Sums>().bind((float*)nullptr, (float*)nullptr, n));
  STATIC_REQUIRE(group_kernels<Bound> == 1);
  STATIC_REQUIRE(group_kernels<Sum, Bound, Bound, Bound, Bound> == 1);
  STATIC_REQUIRE(group_kernels<Sum, Bound, Bound, Bound, Bound, Bound, Bound> == 7);
}
