// Launches over emulated multicast memory over a model of memory: no execution that release and
// acquire allow shows a rank old data. Then the same code runs with an order or a wait removed,
// which the model must detect.
#include <ccl/algo/nvls.hpp>
#include <ccl/detail/multicast/body.hpp>

#include <array>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/multicast_model.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Index half_packets = 64;
constexpr int max_launches = 4;

Word input_of(int launch, int rank, Index element) {
  return 0x1000 + Word(launch) * 0x100 + Word(rank) * 0x40 + Word(element);
}

template <class Op, class Algo, int Width, Promises P>
class World {
 public:
  using R = std::conditional_t<Op::reduces, detail::Reduction<Sum, std::uint64_t>, detail::Bytes>;
  using Lanes = ModelLanes<Width, P>;
  using Body = detail::MulticastBody<Op, Algo, Simple, ModelMulticast<P>, 16, R>;
  static constexpr Index each = 2 * Width;  // words of a share: a packet for each lane
  static constexpr bool gathers = std::is_same_v<Op, AllGather>;
  static constexpr bool scatters = std::is_same_v<Op, ReduceScatter>;

  /// `roots`: root of each launch.
  World(int ranks, std::vector<int> heads, std::vector<int> roots)
      : ranks_{ranks},
        heads_{std::move(heads)},
        roots_{std::move(roots)},
        launches_{int(roots_.size())} {}

  /// Returns the number of executions.
  long explore() {
    MemoryModel checker;
    const auto prepare = [&] {
      clear();
      for (int i = 0; i < ranks_ * Width; ++i) {
        checker.add([this, r = i / Width, lane = i % Width] {
          for (int n = 0; n < launches_; ++n) launch(r, lane, n);
        });
      }
    };
    return checker.explore(prepare, [&] { check(checker); });
  }

 private:
  int shares() const {
    if (detail::HeadsOwnShares<Algo> || std::is_same_v<Op, AllReduce>) return int(heads_.size());
    return gathers || scatters ? ranks_ : 1;
  }
  int root(int launch) const { return roots_[std::size_t(launch)]; }
  Index size() const { return std::is_same_v<Op, AllReduce> ? 16 * shares() : each * shares(); }
  int own(int rank) const {
    if (!detail::HeadsOwnShares<Algo>) return rank;
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      if (heads_[i] == rank) return int(i);
    }
    return -1;
  }
  void clear() {
    reductions().clear();
    launch_counts = {counts_.data(), counts_.data() + counts_.size()};
    gates_ = {};
    counts_ = {};
    for (int r = 0; r < ranks_; ++r) {
      scratch_[r].assign(std::size_t(2 * half_packets) + 8 * sizeof(detail::Mailbox) / 16 + 8, {});
      auto* const begin = scratch_[r].data();
      table_[r] = begin + (128 - reinterpret_cast<std::uintptr_t>(begin) % 128) % 128 / 16;
      for (int n = 0; n < launches_; ++n) {
        in_[r][n].clear();
        for (Index i = 0; i < size(); ++i) in_[r][n].push_back(input_of(n, r, i));
        out_[r][n].assign(std::size_t(size()), 0);
      }
    }
  }
  void launch(int rank, int lane, int n) {
    detail::MulticastWork<R> work{reduction()};
    work.peers.set_table(table_.data());
    work.peers.half_packets = half_packets;
    work.peers.rank = rank;
    work.peers.ranks = ranks_;
    work.epoch = {&counts_[rank][lane], 1};  // each lane counts for itself
    work.watch = {&stop_, &failure_, 0, nullptr, 0};
    for (const int head : heads_) work.add_head(head);
    work.root = root(n);
    work.input = in_[rank][n].data();
    work.output = out_[rank][n].data();
    constexpr Index unit = Op::reduces ? 1 : sizeof(Word);  // what is only moved counts bytes
    const Index count = (std::is_same_v<Op, AllReduce> ? size() : each) * unit;
    work.layout = {count, scatters ? count : 0, gathers ? count : 0, std::is_same_v<Op, AllReduce>};
    const Lanes group{gates_[rank], lane};
    const Body body{work};
    const Word left = body(group, 0);
    group.sync();
    counts_[rank][lane] = (left >> 1) + (P.halves ? 0 : 1);
  }
  R reduction() const {
    if constexpr (Op::reduces) {
      return R{Sum{}, ranks_};
    } else {
      return {};
    }
  }

  void check(const MemoryModel& checker) const {
    const auto wrong = [](bool is) {
      if (is) throw OrderError{"a wrong word"};
    };
    for (int r = 0; r < ranks_; ++r) {
      for (int n = 0; n < launches_; ++n) {
        if (std::is_same_v<Op, Reduce> ? r != root(n) : scatters && own(r) < 0) continue;
        for (Index i = 0; i < (scatters ? each : size()); ++i) {
          const Word got = checker.value_of(out_[r][n][std::size_t(i)]);
          if constexpr (Op::reduces) {
            wrong(got / 2 == 0 || got / 2 > reductions().size());
            const Reduced& sum = reductions()[std::size_t(got / 2 - 1)];
            for (int p = 0; p < ranks_; ++p) {
              const Word summand = checker.value_of(sum.from[std::size_t(p)].word[got % 2]);
              wrong(summand != input_of(n, p, scatters ? own(r) * each + i : i));
            }
          } else if constexpr (gathers) {
            const int share = int(i / each);
            const int from = detail::HeadsOwnShares<Algo> ? heads_[std::size_t(share)] : share;
            wrong(got != input_of(n, from, i % each));
          } else {
            wrong(got != input_of(n, root(n), i));
          }
        }
      }
    }
  }

  int ranks_;
  std::vector<int> heads_;
  std::vector<int> roots_;
  int launches_;
  std::vector<Packet> scratch_[max_model_ranks];
  std::array<Packet*, max_view_ranks> table_{};
  std::array<MemoryModel::StartGate, max_model_ranks> gates_{};
  std::array<std::array<Word, 8>, max_model_ranks> counts_{};
  std::vector<Word> in_[max_model_ranks][max_launches], out_[max_model_ranks][max_launches];
  Word stop_ = 0;
  detail::LaneFailure failure_;
};

template <class Op, class Algo = Nvls, int Width = 1, Promises P = Promises{}>
long explore(int ranks, const std::vector<int>& heads, const std::vector<int>& roots) {
  return World<Op, Algo, Width, P>{ranks, heads, roots}.explore();
}
template <class Op, class Algo = Nvls, int Width = 1, Promises P = Promises{}>
long explore(int ranks, const std::vector<int>& heads, int launches) {
  return explore<Op, Algo, Width, P>(ranks, heads, std::vector<int>(std::size_t(launches), 0));
}

// Algorithms that lack something.
struct ArrivesFirst : Nvls {
  template <class Prims>
  static void run(ReduceScatter, Prims& prims) {
    prims.arrive(Prims::laid_out);
    for (int s = 0; s < prims.shares(); ++s) prims.lay_out(s, 0);
    if (prims.await_all(Prims::laid_out)) {
      prims.store(0, 0, prims.reduced(prims.own_share(), 0));
    }
  }
};
struct WaitsForOne : Nvls {
  template <class Prims>
  static void run(ReduceScatter, Prims& prims) {
    lay_out_all(prims);
    if (prims.await_one(Prims::laid_out, prims.rank())) {
      prims.store(0, 0, prims.reduced(prims.own_share(), 0));
    }
  }
};
struct TakesTooEarly : Nvls {
  template <class Prims>
  static void run(AllGather, Prims& prims) {
    prims.spread(prims.own_share(), 0, prims.load(0, 0));
    prims.arrive(Prims::spread_out);
    take_all(prims);
  }
};
struct RootDoesNotWait : Nvls {
  template <class Prims>
  static void run(Broadcast, Prims& prims) {
    prims.arrive(Prims::begun);
    if (prims.rank() == prims.root()) {
      prims.spread(0, 0, prims.load(0, 0));
      prims.arrive(Prims::spread_out);
    }
    if (prims.await_one(Prims::spread_out, prims.root())) take_all(prims);
  }
};
struct SummandsDoNotWait : Nvls {
  template <class Prims>
  static void run(Reduce, Prims& prims) {
    prims.arrive(Prims::begun);
    lay_out_all(prims);
    if (prims.rank() != prims.root() || !prims.await_all(Prims::laid_out)) return;
    prims.store(0, 0, prims.reduced(0, 0));
  }
};
struct HeadsDoNotWait : detail::NvlsHeads {
  template <class Prims>
  static void run(AllGather, Prims& prims) {
    prims.arrive(Prims::begun);
    if (const int own = prims.own_share(); own >= 0) {
      prims.spread(own, 0, prims.load(0, 0));
      prims.arrive(Prims::spread_out);
    }
    if (prims.await_heads(Prims::spread_out)) take_all(prims);
  }
};
}  // namespace

TEST_CASE("launches over multicast memory are ordered in all executions") {
  long runs = explore<AllReduce>(2, {0, 1}, 1);
  runs += explore<AllReduce>(2, {1}, 3);
  runs += explore<ReduceScatter>(2, {}, 3);
  runs += explore<AllGather>(2, {}, 3);
  runs += explore<Broadcast>(2, {}, 3);
  runs += explore<Broadcast>(2, {}, std::vector{0, 0, 1});
  runs += explore<Reduce>(2, {}, std::vector{1, 1, 1});
  // Root 0 may still read from launch 0 when root 1 begins launch 2.
  runs += explore<Reduce>(2, {}, std::vector{0, 0, 1});
  runs += explore<Reduce>(2, {}, std::vector{0, 1, 0});
  runs += explore<ReduceScatter, detail::NvlsHeads>(2, {1}, 3);
  runs += explore<AllGather, detail::NvlsHeads>(2, {1}, 3);
  runs += explore<AllReduce>(3, {1}, 1);
  runs += explore<ReduceScatter>(3, {}, 1);
  runs += explore<AllReduce, Nvls, 2>(2, {0}, 1);
  runs += explore<AllGather, Nvls, 2>(2, {}, 1);
  WARN(runs << " executions");
}

TEST_CASE("the model detects an order that is missing") {
  constexpr Promises no_release{.release = false}, no_acquire{.acquire = false},
      no_sync{.sync = false}, one_less{.ranks_less = 1};
  const std::vector<int> none;
  CHECK(defect([&] { explore<ReduceScatter, Nvls, 1, no_release>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<AllGather, Nvls, 1, no_release>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<ReduceScatter, Nvls, 1, no_acquire>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<Broadcast, Nvls, 1, no_acquire>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<AllGather, Nvls, 2, no_sync>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<AllGather, Nvls, 1, one_less>(2, none, 1); }) != "");
}

TEST_CASE("the model detects a wait or a half that is missing") {
  const std::vector<int> none;
  CHECK(defect([&] { explore<ReduceScatter, ArrivesFirst>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<ReduceScatter, WaitsForOne>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<AllGather, TakesTooEarly>(2, none, 1); }) != "");
  CHECK(defect([&] { explore<Broadcast, RootDoesNotWait>(2, none, 3); }) != "");
  CHECK(defect([&] { explore<AllGather, HeadsDoNotWait>(2, {1}, 3); }) != "");
  CHECK(defect([&] { explore<Reduce, SummandsDoNotWait>(2, none, 3); }) != "");
  CHECK(defect([&] { explore<AllGather, Nvls, 1, Promises{.halves = false}>(2, none, 2); }) != "");
}
