#include <ccl/ccl.hpp>
#include <ccl/hierarchical.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

// Hierarchical over ranks of several hosts, and its errors if it cannot work.
using namespace ccl;
using namespace ccl::test;

namespace {

int number(Index rank, Index i) {
  return int(i % 1013) * 3 + int(rank) * 1000;
}

/// Every operation of one composition, at counts that fit its shares and at such that do not, in
/// place and not. Empty if all is right.
template <class Algo, class Proto>
struct Sweep {
  const Communicator& comm;
  std::string wrong{};

  template <class Op>
  using C = Collective<Op, Algo, Proto, DefaultTransport>;

  void expect(const char* what, Index count, bool truth) {
    if (!truth) {
      wrong +=
          fmt::format("{} {} of {} is wrong on rank {}; ", what, Algo::name, count, comm.rank());
    }
  }

  Result<std::string> all(bool even = true) {
    // Counts from zero through less than one element each to more than the scratch memory holds.
    const std::vector<Index> counts{0, 1, 5, 24, 1000, 4096, 70'001};
    const Index ranks = comm.ranks(), me = comm.rank();
    const auto sum = [&](Index i) {
      Index s = 0;
      for (int r = 0; r < ranks; ++r) s += number(r, i);
      return s;
    };
    if constexpr (Algo::template supports<AllReduce>) {
      CCL_TRY(const auto all_reduce, C<AllReduce>::create(comm));
      for (const Index n : counts) {
        for (const bool in_place : {false, true}) {
          std::vector<int> in(n), out(n, -1);
          for (Index i = 0; i < n; ++i) in[i] = number(me, i);
          auto& to = in_place ? in : out;
          CCL_CHECK(all_reduce(in.data(), to.data(), n));
          bool good = true;
          for (Index i = 0; i < n; ++i) good = good && to[i] == sum(i);
          expect("all_reduce", n, good);
        }
      }
    }
    if constexpr (Algo::template supports<Broadcast>) {
      CCL_TRY(const auto broadcast, C<Broadcast>::create(comm));
      for (const Index n : counts) {
        const int root = int((n + 2) % ranks);
        std::vector<int> in(n), out(n, -1);
        for (Index i = 0; i < n; ++i) in[i] = number(me, i);
        CCL_CHECK(broadcast(in.data(), out.data(), n, root));
        bool good = true;
        for (Index i = 0; i < n; ++i) good = good && out[i] == number(root, i);
        expect("broadcast", n, good);
      }
    }
    if (!even) return wrong;
    if constexpr (Algo::template supports<Reduce>) {
      CCL_TRY(const auto reduce, C<Reduce>::create(comm));
      for (const Index n : {Index{7}, Index{4096}, Index{400'000}}) {
        const int root = int(n % ranks);
        std::vector<int> in(n), out(n, -1);
        for (Index i = 0; i < n; ++i) in[i] = number(me, i);
        CCL_CHECK(reduce(in.data(), out.data(), n, Sum{}, root));
        bool good = true;
        for (Index i = 0; i < n; ++i) good = good && out[i] == (me == root ? sum(i) : -1);
        expect("reduce", n, good);
      }
    }
    if constexpr (Algo::template supports<AllGather>) {
      CCL_TRY(const auto all_gather, C<AllGather>::create(comm));
      for (const Index n : counts) {
        for (const bool in_place : {false, true}) {
          std::vector<int> in(n), out(n * ranks, -1);
          for (Index i = 0; i < n; ++i) in[i] = out[me * n + i] = number(me, i);
          CCL_CHECK(all_gather(in_place ? out.data() + me * n : in.data(), out.data(), n));
          bool good = true;
          for (Index i = 0; i < n * ranks; ++i) good = good && out[i] == number(i / n, i % n);
          expect("all_gather", n, good);
        }
      }
    }
    if constexpr (Algo::template supports<AllToAll>) {
      CCL_TRY(const auto all_to_all, C<AllToAll>::create(comm));
      for (const Index n : {Index{0}, Index{1}, Index{1000}, Index{70'001}}) {
        std::vector<int> in(n * ranks), out(n * ranks, -1);
        for (Index i = 0; i < n * ranks; ++i) in[i] = number(me, i);
        CCL_CHECK(all_to_all(in.data(), out.data(), n));
        bool good = true;
        for (Index i = 0; i < n * ranks; ++i) {
          good = good && out[i] == number(i / n, me * n + i % n);
        }
        expect("all_to_all", n, good);
      }
    }
    if constexpr (Algo::template supports<ReduceScatter>) {
      CCL_TRY(const auto reduce_scatter, C<ReduceScatter>::create(comm));
      for (const Index n : {Index{0}, Index{1}, Index{1000}, Index{140'001}}) {
        for (const bool in_place : {false, true}) {
          std::vector<int> in(n * ranks), out(n, -1);
          for (Index i = 0; i < n * ranks; ++i) in[i] = number(me, i);
          int* const to = in_place ? in.data() + me * n : out.data();
          CCL_CHECK(reduce_scatter(in.data(), to, n));
          bool good = true;
          for (Index i = 0; i < n; ++i) good = good && to[i] == sum(me * n + i);
          expect("reduce_scatter", n, good);
        }
      }
    }
    return wrong;
  }
};

static_assert(Hierarchical<Pairwise, Pairwise>::supports<AllToAll>);
static_assert(!Hierarchical<Ring, Pairwise>::supports<AllToAll>);
using Rings = Hierarchical<Ring, Ring>;
using Trees = Hierarchical<Tree, Tree>;

Answer both(const Communicator& comm) {
  CCL_TRY(std::string rings, (Sweep<Rings, Simple>{comm}.all()));
  CCL_TRY(const std::string trees, (Sweep<Trees, Simple>{comm}.all()));
  CCL_TRY(const std::string pairs, (Sweep<Hierarchical<Pairwise, Pairwise>, Simple>{comm}.all()));
  return rings + trees + pairs;
}

/// Element that records whether a rank supplied it, and a functor that counts elements that none
/// supplied.
struct Given {
  static constexpr int right = 0x51a7e;
  int mark, value;
};
struct AddGiven {
  static inline std::atomic<int> others{0};
  Given operator()(const Given& a, const Given& b) const {
    others += (a.mark != Given::right) + (b.mark != Given::right);
    return {Given::right, a.value + b.value};
  }
};

std::function<void(int)> hosts(const std::string& names) {
  return [names](int r) { on_host(names.substr(std::size_t(r), 1)); };
}

}  // namespace

TEST_CASE("hierarchical: two hosts, their ranks numbered host by host and around") {
  for (const char* const names : {"AABB", "ABAB", "AAABBB"}) {
    INFO(names);
    for (const std::string& wrong : run(int(std::strlen(names)), hosts(names), both)) {
      CHECK(wrong == "");
    }
  }
}

TEST_CASE("hierarchical: one rank on each host, or all on one") {
  for (const char* const names : {"ABC", "AAA", "A"}) {
    INFO(names);
    for (const std::string& wrong : run(int(std::strlen(names)), hosts(names), both)) {
      CHECK(wrong == "");
    }
  }
}

TEST_CASE("hierarchical: three hosts, other algorithms and protocols at each level") {
  const auto mixed = [](const Communicator& comm) -> Answer {
    using Pats = Hierarchical<Pat, With<Ring, LL128>>;
    using Mixed = Hierarchical<With<Ring, LL>, Tree>;
    CCL_TRY(std::string pats, (Sweep<Pats, Simple>{comm}.all()));
    CCL_TRY(const std::string rest, (Sweep<Mixed, Simple>{comm}.all()));
    return pats + rest;
  };
  for (const std::string& wrong : run(6, hosts("AABBCC"), mixed)) CHECK(wrong == "");
}

TEST_CASE("hierarchical: averages and scaled sums go through both levels once") {
  const auto averages = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    CCL_TRY(const auto scatter, (Collective<ReduceScatter, Rings, Simple>::create(comm)));
    const int ranks = comm.ranks(), me = comm.rank();
    std::string wrong;
    for (const Index n : {Index{3}, Index{4096}}) {
      std::vector<int> in(n), out(n);
      std::vector<half> halves(n), mean(n);
      for (Index i = 0; i < n; ++i) {
        in[i] = int(i) + me * 3;
        halves[i] = half{30000.f};  // whose sum is out of range
      }
      CCL_CHECK(rails(in.data(), out.data(), n, Avg{}));
      CCL_CHECK(rails(halves.data(), mean.data(), n, Avg{}));
      for (Index i = 0; i < n; ++i) {
        const int sum = ranks * int(i) + 3 * ranks * (ranks - 1) / 2;
        if (out[i] != sum / ranks) wrong += fmt::format("avg {} is {}; ", i, out[i]);
        if (float(mean[i]) < 29900 || float(mean[i]) > 30100) {
          wrong += fmt::format("mean {} is {}; ", i, float(mean[i]));
        }
        if (wrong.size() > 100) return wrong;
      }
      CCL_CHECK(rails(in.data(), out.data(), n, PreMulSum{me + 1}));
      for (Index i = 0; i < n && wrong.empty(); ++i) {
        int want = 0;
        for (int r = 0; r < ranks; ++r) want += (int(i) + r * 3) * (r + 1);
        if (out[i] != want) wrong += fmt::format("mulsum {} is {}; ", i, out[i]);
      }
      std::vector<int> all(n * ranks, me), one(n);
      CCL_CHECK(scatter(all.data(), one.data(), n, Avg{}));
      for (const int x : one) {
        if (x != ranks * (ranks - 1) / 2 / ranks) wrong = "an average of a scatter";
      }
    }
    return wrong;
  };
  for (const std::string& wrong : run(4, hosts("AABB"), averages)) CHECK(wrong == "");
}

TEST_CASE(
    "hierarchical: a long message crosses between hosts while its next part is reduced inside") {
  const auto long_ones = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    HostStream stream;
    std::string wrong;
    // Messages of two parts, of the maximum number of parts, and with a rest that does not fill its
    // shares.
    for (const Index n : {Index{1} << 19, Index{3} << 20, Index{1'300'003}}) {
      for (const bool queued : {false, true}) {
        std::vector<int> in(n), out(n, -1);
        for (Index i = 0; i < n; ++i) in[i] = number(comm.rank(), i);
        CCL_CHECK(rails(in.data(), out.data(), n, Sum{}, queued ? Stream{stream} : Stream{}));
        if (queued) CCL_CHECK(rails(in.data(), in.data(), n, Sum{}, stream));
        CCL_CHECK(stream.synchronize());
        for (Index i = 0; i < n && wrong.empty(); ++i) {
          int sum = 0;
          for (int r = 0; r < comm.ranks(); ++r) sum += number(r, i);
          if (out[i] != sum) wrong = fmt::format("{} of {} is {}", i, n, out[i]);
          if (queued && in[i] != sum) wrong = fmt::format("in place, {} of {} is {}", i, n, in[i]);
        }
      }
    }
    return wrong;
  };
  for (const char* const names : {"AABB", "ABAB", "AAABBB"}) {
    INFO(names);
    for (const std::string& wrong : run(int(std::strlen(names)), hosts(names), long_ones)) {
      CHECK(wrong == "");
    }
  }
}

namespace {
/// Element for which a share that goes in parts has less than 128 elements in each.
struct Wide {
  int value[2048];
};
struct AddWide {
  Wide operator()(const Wide& a, const Wide& b) const {
    Wide sum;
    for (int i = 0; i < 2048; ++i) sum.value[i] = a.value[i] + b.value[i];
    return sum;
  }
};
}  // namespace

TEST_CASE("hierarchical: a long message of few large elements crosses in parts, too") {
  const auto wide = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    constexpr Index n = 256;
    std::vector<Wide> x(n);
    for (Index i = 0; i < n; ++i) std::fill_n(x[i].value, 2048, number(comm.rank(), i));
    CCL_CHECK(rails(x.data(), x.data(), n, AddWide{}));
    for (Index i = 0; i < n; ++i) {
      int sum = 0;
      for (int r = 0; r < comm.ranks(); ++r) sum += number(r, i);
      if (x[i].value[0] != sum || x[i].value[2047] != sum) return fmt::format("{} is wrong", i);
    }
    return {};
  };
  for (const std::string& wrong : run(4, hosts("AABB"), wide)) CHECK(wrong == "");
}

namespace {
/// Two are more than the scratch memory holds.
struct Huge {
  char bytes[600 << 10];
};
struct First {
  Huge operator()(const Huge& a, const Huge&) const { return a; }
};
}  // namespace

TEST_CASE("hierarchical: elements that do not fit its scratch are told what takes them") {
  const auto scatter = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<ReduceScatter, Rings, Simple>::create(comm)));
    const auto in = std::make_unique<Huge[]>(4), out = std::make_unique<Huge[]>(1);
    const auto done = rails(in.get(), out.get(), 1, First{});
    return done ? "it was fine" : done.error().message();
  };
  for (const std::string& said : run(4, hosts("AABB"), scatter)) {
    CHECK(said.find("2 elements of 614400 bytes") != said.npos);
    CHECK(said.find("name Ring") != said.npos);
    CHECK(said.find("Tree") == said.npos);
  }
}

TEST_CASE("hierarchical: calls on a stream go in order") {
  const auto queued = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    HostStream stream;
    std::vector<int> x(5000, 1);
    for (int k = 0; k < 3; ++k) CCL_CHECK(rails(x.data(), x.data(), 5000, Sum{}, stream));
    CCL_CHECK(stream.synchronize());
    for (const int n : x) {
      if (n != 64) return fmt::format("{}", n);
    }
    return {};
  };
  for (const std::string& wrong : run(4, hosts("AABB"), queued)) CHECK(wrong == "");
}

TEST_CASE("hierarchical: calls by turns on two streams share the scratch in order") {
  const auto by_turns = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    CCL_TRY(const auto scatter, (Collective<ReduceScatter, Rings, Simple>::create(comm)));
    CCL_TRY(const auto reduce, (Collective<Reduce, Rings, Simple>::create(comm)));
    CCL_TRY(const auto all_to_all,
            (Collective<AllToAll, Hierarchical<Pairwise, Pairwise>, Simple>::create(comm)));
    HostStream streams[2];
    const Index ranks = comm.ranks(), me = comm.rank();
    constexpr Index most = 30'001;
    constexpr int calls = 6;
    std::vector<int> in(most * ranks), out[calls][4];
    for (Index i = 0; i < most * ranks; ++i) in[i] = number(me, i);
    const auto count = [](int k) { return k % 2 == 0 ? most : Index{3} + k; };
    for (int k = 0; k < calls; ++k) {
      for (auto& o : out[k]) o.assign(most * ranks, -1);
      HostStream& stream = streams[k % 2];
      const Index n = count(k);
      // Each call's data are its own.
      const int* const from = in.data() + k;
      CCL_CHECK(rails(from, out[k][0].data(), n, Sum{}, stream));
      CCL_CHECK(scatter(from, out[k][1].data(), n - k, Sum{}, stream));
      CCL_CHECK(reduce(from, out[k][2].data(), n, Sum{}, k % int(ranks), stream));
      CCL_CHECK(all_to_all(from, out[k][3].data(), n - k, stream));
    }
    for (HostStream& stream : streams) CCL_CHECK(stream.synchronize());
    std::string wrong;
    for (int k = 0; k < calls; ++k) {
      const auto sum = [&](Index i) {
        int s = 0;
        for (int r = 0; r < ranks; ++r) s += number(r, i + k);
        return s;
      };
      const Index n = count(k), each = n - k;
      bool good = true;
      for (Index i = 0; i < n; ++i) {
        good = good && out[k][0][i] == sum(i);
        if (k % ranks == me) good = good && out[k][2][i] == sum(i);
      }
      for (Index i = 0; i < each; ++i) good = good && out[k][1][i] == sum(me * each + i);
      for (Index i = 0; i < each * ranks; ++i) {
        good = good && out[k][3][i] == number(i / each, me * each + i % each + k);
      }
      if (!good) wrong += fmt::format("call {} of {}; ", k, n);
    }
    return wrong;
  };
  for (const char* const names : {"AABB", "ABAB"}) {
    for (const std::string& wrong : run(4, hosts(names), by_turns)) CHECK(wrong == "");
  }
}

TEST_CASE("hierarchical: a functor sees elements that ranks gave, and no others") {
  const auto looks = [](const Communicator& comm) -> Answer {
    using Added = Collective<AllReduce, Rings, Simple>;
    CCL_TRY(const auto rails, Added::create(comm));
    // The scratch then holds values that no rank supplies.
    std::vector<int> old(20'001, 7);
    CCL_CHECK(rails(old.data(), old.data(), 20'001));
    CCL_TRY(const auto fresh, Added::create(comm));
    HostStream stream;
    std::string wrong;
    for (const auto* const sums : {&rails, &fresh}) {
      for (const Index n : {1, 2, 4, 5, 1000, 4097, 100'001, 400'000}) {
        for (const bool queued : {false, true}) {
          std::vector<Given> x(n);
          for (Index i = 0; i < n; ++i) x[i] = {Given::right, number(comm.rank(), i)};
          CCL_CHECK((*sums)(x.data(), x.data(), n, AddGiven{}, queued ? Stream{stream} : Stream{}));
          CCL_CHECK(stream.synchronize());
          bool good = true;
          for (Index i = 0; i < n; ++i) {
            int sum = 0;
            for (int r = 0; r < comm.ranks(); ++r) sum += number(r, i);
            good = good && x[i].value == sum;
          }
          if (!good) wrong += fmt::format("sums of {}; ", n);
          if (const int others = AddGiven::others.exchange(0); others > 0) {
            wrong += fmt::format("of {}, {} others; ", n, others);
          }
        }
      }
    }
    return wrong.substr(0, 500);
  };
  for (const char* const names : {"AABB", "AAABBB", "AAAABBBB"}) {
    INFO(names);
    for (const std::string& wrong : run(int(std::strlen(names)), hosts(names), looks)) {
      CHECK(wrong == "");
    }
  }
}

TEST_CASE(
    "hierarchical: uneven hosts work through one rank of each, or the error says what would") {
  const auto trees = [](const Communicator& comm) -> Answer {
    return Sweep<Trees, Simple>{comm}.all(false);
  };
  for (const std::string& wrong : run(5, hosts("AABBB"), trees)) CHECK(wrong == "");
  for (const std::string& wrong : run(4, hosts("ABBB"), trees)) CHECK(wrong == "");
  const auto rails = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto c, (Collective<AllReduce, Rings, Simple>::create(comm)));
    return c.name();
  };
  for (const std::string& said : run(5, hosts("AABBB"), rails)) {
    INFO(said);
    CHECK(said.find("not_supported") != std::string::npos);
    CHECK(said.find("equally many ranks on every host (that of rank 2 has 3, that of rank 0 2)") !=
          std::string::npos);
    CHECK(said.find("Hierarchical<Tree, ...>") != std::string::npos);
  }
  // The advised composition runs this operation.
  const auto shares = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto c, (Collective<AllGather, Rings, Simple>::create(comm)));
    return c.name();
  };
  for (const std::string& said : run(5, hosts("AABBB"), shares)) {
    INFO(said);
    CHECK(said.find("or take Ring, Pat or Doubling") != std::string::npos);
  }
}

TEST_CASE("hierarchical: ranks in no order reduce, and what lays them side by side says why not") {
  const auto irregular = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto reduce, (Collective<AllReduce, Rings, Simple>::create(comm)));
    std::vector<int> x(1001, comm.rank());
    CCL_CHECK(reduce(x.data(), x.data(), 1001));
    for (const int n : x) {
      if (n != 6) return fmt::format("{} instead of 6", n);
    }
    CCL_TRY(const auto gather, (Collective<AllGather, Rings, Simple>::create(comm)));
    return gather.name();
  };
  for (const std::string& said : run(4, hosts("ABBA"), irregular)) {
    INFO(said);
    CHECK(said.find("wants ranks numbered host by host, or around the hosts") != std::string::npos);
  }
}

TEST_CASE("hierarchical: a group refuses it by name") {
  const auto grouped = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    int x = 1;
    detail::Recorder recorder;
    const auto done = rails(&x, &x, 1, Sum{}, Stream{recorder});
    return done ? "no error" : done.error().message();
  };
  for (const std::string& said : run(2, hosts("AB"), grouped)) {
    CHECK(said.find("no part of a group") != std::string::npos);
  }
}

TEST_CASE("hierarchical: an abort ends ranks that wait in levels of which its rank is none") {
  const Index count = GENERATE(Index{1000}, Index{1} << 20);
  Shared<std::atomic<int>> ended;
  const auto late = [&](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    std::vector<int> x(count, 1);
    CCL_CHECK(rails(x.data(), x.data(), count));
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 3) {  // makes no call: rank 2 waits for it in their host, 1 in their rail
      const bool all = wait_until([&] { return ended->load() == 3; }, 60);
      return std::string{all ? "the others have ended" : "others wait"};
    }
    std::thread aborting;
    if (comm.rank() == 0) {
      aborting = std::thread{[&] {
        sleep_s(0.3);  // so that all are in their next call
        comm.abort("enough");
      }};
    }
    const auto done = rails(x.data(), x.data(), count);
    ++*ended;
    if (aborting.joinable()) aborting.join();
    return done ? "went on" : done.error().what;
  };
  const auto said = run(4, hosts("AABB"), late, false);
  CHECK(said[3] == "the others have ended");
  for (int r = 0; r < 3; ++r) {
    INFO(said[std::size_t(r)]);
    CHECK(said[std::size_t(r)].find("enough") != std::string::npos);
  }
}

TEST_CASE("hierarchical: a rank that is gone ends those of other hosts and rails, too") {
  const Index count = GENERATE(Index{1000}, Index{1} << 20);
  const auto left = [count](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, (Collective<AllReduce, Rings, Simple>::create(comm)));
    std::vector<int> x(count, 1);
    CCL_CHECK(rails(x.data(), x.data(), count));
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 3) {
      sleep_s(0.3);  // so that the others are in their next call
      comm.abort("enough");
      return std::string{"gone"};
    }
    // Rank 0 shares neither a host nor a rail with rank 3.
    const auto done = rails(x.data(), x.data(), count);
    if (done) return std::string{"went on"};
    const auto after = comm.status();
    return std::string{after ? "still well" : "notified"};
  };
  const auto said = run(4, hosts("AABB"), left, false);
  for (int r = 0; r < 3; ++r) CHECK(said[std::size_t(r)] == "notified");
}
