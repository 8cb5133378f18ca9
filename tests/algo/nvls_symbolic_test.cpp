// Proofs of the algorithms over multicast memory, by a symbolic player: see multicast_player.hpp.
#include <ccl/algo/nvls_tree.hpp>

#include <algorithm>
#include <deque>
#include <string>

#include "support/catch.hpp"
#include "support/multicast_player.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int launches = 5;  // each half of the memory is used again

std::uint64_t all_of(int ranks) {
  return (std::uint64_t{1} << ranks) - 1;
}
Sum64 symbol(std::uint64_t ranks, int launch, int share) {
  return {ranks, Index{launch} * 1000 + share};
}
int place_in(const std::vector<int>& all, int rank) {
  const auto found = std::find(all.begin(), all.end(), rank);
  return found == all.end() ? -1 : int(found - all.begin());
}

/// Launches of one operation among ranks of which some are heads.
template <class Op, class Algo = Nvls>
struct Launches {
  static constexpr bool of_heads = detail::HeadsOwnShares<Algo>;
  int ranks;
  std::vector<int> heads;
  std::vector<int> roots{0};  // of the launches, in turns
  PlayedWindows windows{};
  bool asks = false;  // ranks agree on windows first

  int root(int launch) const { return roots[std::size_t(launch) % roots.size()]; }
  int shares() const {
    if (of_heads || is_one_of<Op, AllReduce>) return int(heads.size());
    return is_one_of<Op, AllGather, ReduceScatter> ? ranks : 1;
  }
  /// Share that a rank gives or gets; -1: none.
  int own(int rank) const { return of_heads ? place_in(heads, rank) : rank; }
  /// Ranks that contribute to a share.
  std::uint64_t from(int launch, int share) const {
    if (is_one_of<Op, Broadcast>) return std::uint64_t{1} << root(launch);
    if (!is_one_of<Op, AllGather>) return all_of(ranks);
    return std::uint64_t{1} << (of_heads ? heads[std::size_t(share)] : share);
  }
  int results_of(int launch, int rank) const {
    if (is_one_of<Op, Reduce>) return rank == root(launch) ? 1 : 0;
    if (is_one_of<Op, ReduceScatter>) return own(rank) >= 0 ? 1 : 0;
    return shares();
  }
  /// Returns what is wrong.
  std::string play() const {
    Player player{ranks};
    std::vector<int> members, results(std::size_t(ranks), 0);
    for (int r = 0; r < ranks; ++r) members.push_back(r);
    PlayedMemory memory{player, members, heads};
    for (int r = 0; r < ranks; ++r) {
      for (int n = 0; n < launches; ++n) {
        const auto in = [this, r, n](int share) {
          return symbol(std::uint64_t{1} << r, n, is_one_of<Op, AllGather> ? own(r) : share);
        };
        const auto out = [this, r, n, &player, &results](int share, const Sum64& value) {
          if (is_one_of<Op, ReduceScatter>) share = own(r);
          if (!(value == symbol(from(n, share), n, share))) player.wrong("a result is wrong");
          ++results[std::size_t(r)];
        };
        PlayedPrims<Op, Algo> prims{memory, r, Word(n), root(n), in, out, windows};
        if (asks) prims.begin_in_windows();
        Algo::run(Op{}, prims);
        prims.end_in_windows();
      }
    }
    std::string problem = player.run();
    for (int r = 0; r < ranks && problem.empty(); ++r) {
      int want = 0;
      for (int n = 0; n < launches; ++n) want += results_of(n, r);
      if (results[std::size_t(r)] != want) problem = "a result is missing";
    }
    return problem;
  }
};

/// Heads: all, the last, and three.
std::vector<std::vector<int>> heads_among(int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  std::vector<std::vector<int>> some{all, {ranks - 1}};
  if (ranks > 3) some.push_back({ranks - 1, 0, ranks / 2});
  return some;
}

/// All-reduces of `NvlsTree` on hosts with these numbers of ranks and `rails` heads each.
class TreeOfHosts {
 public:
  TreeOfHosts(std::vector<int> sizes, int rails) : sizes_{std::move(sizes)}, rails_{rails} {
    for (const int size : sizes_) ranks_ += size;
  }
  std::string play() {
    Player player{ranks_};
    std::vector<PlayedMemory> first, last;
    std::vector<std::vector<int>> members;
    for (std::size_t h = 0, next = 0; h < sizes_.size(); ++h) {
      std::vector<int> host, heads;
      for (int n = 0; n < sizes_[h]; ++n) host.push_back(int(next++));
      // Heads of another order on each host.
      for (int n = 0; n < rails_; ++n) heads.push_back((n + int(h)) % sizes_[h]);
      first.emplace_back(player, host, heads);
      last.emplace_back(player, host, heads);
      members.push_back(host);
    }
    std::vector<int> results(std::size_t(ranks_), 0);
    for (int n = 0; n < launches; ++n) {
      for (std::size_t h = 0; h < sizes_.size(); ++h) {
        for (int place = 0; place < sizes_[h]; ++place) {
          add_launch(player, first[h], last[h], int(h), place, n, results);
        }
      }
    }
    std::string problem = player.run();
    for (const int count : results) {
      if (problem.empty() && count != launches * rails_) problem = "a result is missing";
    }
    for (const auto& [ends, wire] : wires_) {
      if (problem.empty() && !wire.empty()) problem = "a wire holds a value that nobody takes";
    }
    return problem;
  }

 private:
  using Inner = NvlsTree::InnerAlgo;
  using Outer = NvlsTree::OuterAlgo;
  static constexpr std::size_t slots = 2;

  void add_launch(Player& player, PlayedMemory& first, PlayedMemory& last, int host, int place,
                  int n, std::vector<int>& results) {
    const int rank = first.members[std::size_t(place)];
    const int slice = place_in(first.heads, place);
    auto sum = std::make_shared<Sum64>();  // of this head's share
    PlayedPrims<ReduceScatter, Inner> scatter{
        first,
        place,
        Word(n),
        0,
        [rank, n](int share) { return symbol(std::uint64_t{1} << rank, n, share); },
        [sum](int, const Sum64& value) { *sum = value; }};
    Inner::run(ReduceScatter{}, scatter);
    if (slice >= 0 && sizes_.size() > 1) add_tree(player, rank, host, slice, sum);
    PlayedPrims<AllGather, Inner> gather{
        last,
        place,
        Word(n),
        0,
        [sum](int) { return *sum; },
        [this, rank, n, &player, &results](int share, const Sum64& value) {
          if (!(value == symbol(all_of(ranks_), n, share))) player.wrong("a result is wrong");
          ++results[std::size_t(rank)];
        }};
    Inner::run(AllGather{}, gather);
  }

  /// Steps of one head on the tree of its rail. Every second rail has the twin of the tree.
  void add_tree(Player& player, int rank, int host, int slice, const Register& sum) {
    const int hosts = int(sizes_.size());
    TraceContext context;
    context.tree_position = tree_over_hosts(host, hosts, 0, slice % 2, 1);
    context.layout = {1, 0, 0, true};
    context.my_rank = host;
    context.rank_count = hosts;
    context.slots = int(slots);
    Outer::run(AllReduce{}, context);
    for (const Event& e : context.events) {
      player.add(rank, [this, &player, e, rank, host, slice, sum] {
        for (const int p : e.in) {
          if (p >= 0 && wires_[{slice, p, host}].empty()) return false;
        }
        for (const int p : e.out) {
          if (p >= 0 && wires_[{slice, host, p}].size() == slots) return false;
        }
        Sum64 value;
        if ((e.does & loads) != 0) value = *sum;
        for (const int p : e.in) {
          if (p < 0) continue;
          auto& wire = wires_[{slice, p, host}];
          player.join(rank, wire.front().second);
          const Sum64 got = wire.front().first;
          wire.pop_front();
          if ((value.ranks & got.ranks) != 0) player.wrong("counted twice");
          value = {value.ranks | got.ranks, got.element};
        }
        if ((e.does & stores) != 0) *sum = value;
        for (const int p : e.out) {
          if (p >= 0) wires_[{slice, host, p}].emplace_back(value, player.tick(rank));
        }
        return true;
      });
    }
  }

  std::vector<int> sizes_;
  int rails_, ranks_ = 0;
  std::map<std::tuple<int, int, int>, std::deque<std::pair<Sum64, Player::Clock>>> wires_;
};
}  // namespace

TEST_CASE("Nvls: symbolic proofs for 2 to 17 ranks") {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (const std::vector<int>& heads : heads_among(ranks)) {
      INFO(ranks << " ranks, " << heads.size() << " heads");
      CHECK(Launches<AllReduce>{ranks, heads}.play() == "");
      CHECK(Launches<ReduceScatter, detail::NvlsHeads>{ranks, heads}.play() == "");
      CHECK(Launches<AllGather, detail::NvlsHeads>{ranks, heads}.play() == "");
    }
    const std::vector<int> none;
    CHECK(Launches<ReduceScatter>{ranks, none}.play() == "");
    CHECK(Launches<AllGather>{ranks, none}.play() == "");
    const int last = ranks - 1;
    for (const std::vector<int>& roots : {std::vector{0}, {last}, {0, 0, last}, {0, last}}) {
      CHECK(Launches<Broadcast>{ranks, none, roots}.play() == "");
      CHECK(Launches<Reduce>{ranks, none, roots}.play() == "");
    }
  }
}

TEST_CASE("Nvls in windows: symbolic proofs for 2 to 17 ranks") {
  const std::vector<int> none, first{0};
  for (int ranks = 2; ranks <= 17; ++ranks) {
    INFO(ranks << " ranks");
    for (const PlayedWindows& windows :
         {PlayedWindows{true, true}, PlayedWindows{true, true, true}, PlayedWindows{true, false},
          PlayedWindows{false, true}, PlayedWindows{}}) {
      for (const std::vector<int>& heads : heads_among(ranks)) {
        CHECK(Launches<AllReduce>{ranks, heads, first, windows, true}.play() == "");
      }
    }
    for (const bool in_windows : {false, true}) {
      const PlayedWindows send{in_windows, false}, recv{false, in_windows};
      CHECK(Launches<ReduceScatter>{ranks, none, first, send, true}.play() == "");
      CHECK(Launches<AllGather>{ranks, none, first, recv, true}.play() == "");
    }
  }
}

TEST_CASE("NvlsTree: symbolic proofs for 2 to 17 ranks on 1 to 4 hosts") {
  int played = 0;
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (int hosts = 1; hosts <= 4 && hosts <= ranks; ++hosts) {
      std::vector<int> even(std::size_t(hosts), ranks / hosts), uneven(std::size_t(hosts), 1);
      for (int h = 0; h < ranks % hosts; ++h) ++even[std::size_t(h)];
      uneven[0] = ranks - hosts + 1;
      for (int rails = 1; rails <= ranks / hosts; ++rails, ++played) {
        INFO(ranks << " ranks on " << hosts << " hosts, " << rails << " heads each");
        CHECK(TreeOfHosts{even, rails}.play() == "");
      }
      INFO(ranks << " ranks, all but " << hosts - 1 << " on one host");
      CHECK(TreeOfHosts{uneven, 1}.play() == "");
    }
  }
  WARN(played << " shapes of hosts with equally many heads each");
}

namespace {
/// An algorithm that lacks a wait. The player must notice.
struct NoStepOfAll : detail::NvlsHeads {
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
struct NoStepOfHeads : detail::NvlsHeads {
  template <class Prims>
  static void run(ReduceScatter, Prims& prims) {
    const int own = prims.own_share();
    lay_out_all(prims);
    if (own < 0 || !prims.await_all(Prims::laid_out)) return;
    prims.store(0, 0, prims.reduced(own, 0));
  }
};
struct NoWaitForHeads : Nvls {
  template <class Prims>
  static void run(AllReduce, Prims& prims) {
    lay_out_all(prims);
    if (const int own = prims.own_share(); own >= 0) {
      if (prims.await_all(Prims::laid_out)) prims.spread(own, 0, prims.reduced(own, 0));
    }
    take_all(prims);
  }
};
struct ReducesTooEarly : Nvls {
  template <class Prims>
  static void run(ReduceScatter, Prims& prims) {
    lay_out_all(prims);
    if (prims.await_one(Prims::laid_out, 0)) {
      prims.store(0, 0, prims.reduced(prims.own_share(), 0));
    }
  }
};
struct LeavesAtOnce : Nvls {
  template <class Prims>
  static void run(ReduceScatter, Prims& prims) {
    prims.store(0, 0, prims.reduced(prims.own_share(), 0));
  }
};
}  // namespace

TEST_CASE("the player notices a missing wait") {
  // In windows: without the ranks' agreement, and without the wait at the end.
  const std::vector<int> none, first{0};
  const PlayedWindows send{true, false}, both{true, true};
  CHECK(Launches<AllReduce>{4, {1}, first, both, false}.play() != "");
  CHECK(Launches<AllGather>{4, none, first, {false, true}, false}.play() != "");
  CHECK(Launches<ReduceScatter, LeavesAtOnce>{4, none, first, send, true}.play() != "");
  CHECK(Launches<AllGather, NoStepOfAll>{4, {1}}.play() != "");
  CHECK(Launches<ReduceScatter, NoStepOfHeads>{4, {1}}.play() != "");
  CHECK(Launches<AllReduce, NoWaitForHeads>{4, {1, 2}}.play() != "");
  CHECK(Launches<ReduceScatter, ReducesTooEarly>{4, {}}.play() != "");
}
