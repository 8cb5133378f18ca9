#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/halving.hpp>
#include <ccl/algo/one_tree.hpp>
#include <ccl/algo/ordered_chain.hpp>
#include <ccl/algo/ordered_tree.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/wire/dry_run.hpp>
#include <ccl/types/operations.hpp>

#include <numeric>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
/// True if the dry run of an algorithm of ccl succeeds on every rank of up to 9.
template <class Op, class Algo>
int wrongs() {
  int wrong = 0;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    for (int root = 0; root < (Op::rooted ? ranks : 1); ++root) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (int channel = 0; channel < 2; ++channel) {
          DryRunResult found;
          dry_run<Op, Algo>({rank,
                             ranks,
                             root,
                             channel,
                             2,
                             2,
                             {rank, ranks, order.data()},
                             double_binary_tree(rank, ranks, root, 0)},
                            found);
          wrong += int(found.wrong != DryRunResult::nothing);
        }
      }
    }
  }
  return wrong;
}
template <class Algo, class... Ops>
int all_wrongs() {
  const auto of = []<class Op>(Op) {
    if constexpr (Algo::template supports<Op>) return wrongs<Op, Algo>();
    return 0;
  };
  return (of(Ops{}) + ... + 0);
}
template <class Algo>
int in_all() {
  return all_wrongs<Algo, AllReduce, AllGather, ReduceScatter, Broadcast, Reduce>();
}
}  // namespace

TEST_CASE("dry run: ccl's own algorithms name shares that there are, and come to an end") {
  CHECK(in_all<Ring>() == 0);
  CHECK(in_all<Tree>() == 0);
  CHECK(in_all<OneTree>() == 0);
  CHECK(in_all<OrderedTree>() == 0);
  CHECK(in_all<OrderedChain>() == 0);
  CHECK(in_all<Doubling>() == 0);
  CHECK(in_all<Halving>() == 0);
  CHECK(in_all<Bruck>() == 0);
  CHECK(in_all<Pat>() == 0);
}

TEST_CASE("dry run: the first share beyond is kept") {
  DryRunResult found;
  const DryRunPosition position{.ranks = 4, .window = 3};
  DryRunChunks none{position, true, 0, found};
  CHECK_FALSE(none.next());
  CHECK(found.wrong == DryRunResult::shares);
  CHECK(found.given == 0);

  found = {};
  DryRunChunks some{position, true, 2, found};
  REQUIRE(some.next());
  CHECK(some.share(1).count > 0);
  CHECK(some.share(2).count == 0);
  CHECK(some.share(-5).count == 0);
  CHECK(found.wrong == DryRunResult::share);
  CHECK(found.given == 2);
  CHECK(found.most == 2);
  CHECK_FALSE(some.next());

  found = {};
  DryRunChunks ranks{position, false, 1, found};
  int rounds = 0;
  for (; ranks.next(); ++rounds) CHECK(ranks.share(3).count > 0);
  CHECK(rounds == 5);  // as many as a wire holds, and two more
  CHECK(found.wrong == DryRunResult::nothing);
}

TEST_CASE("dry run: wires are looked at where what `peers` names is known") {
  const int from[] = {2, 0}, to[] = {3};
  DryRunPosition position{.ranks = 4};
  const auto found = [&](const Peers<2>& ins, const Peers<1>& outs) {
    DryRunResult dry_run_result;
    DryRunContext<AllReduce>{position, dry_run_result}.prims<2, 1>(ins, outs);
    return dry_run_result;
  };
  CHECK(found({3, 1}, {2}).wrong == DryRunResult::nothing);
  position.from = from, position.to = to, position.froms = 2, position.tos = 1;
  CHECK(found({2, -1}, {3}).wrong == DryRunResult::nothing);
  CHECK(found({-1, -1}, {-1}).wrong == DryRunResult::nothing);
  CHECK(found({2, 3}, {3}).wrong == DryRunResult::wire_from);
  CHECK(found({2, 3}, {3}).given == 3);
  CHECK(found({2, 0}, {3}).wrong == DryRunResult::wire_from);  // rank 0 has none to itself
  CHECK(found({2, -1}, {1}).wrong == DryRunResult::wire_to);
  CHECK(found({2, -1}, {1 << 30}).given == 1 << 30);
}

TEST_CASE("dry run: a loop that goes by steps comes to an end") {
  DryRunResult found;
  DryRunPrims prims{{}, {}, found};
  while (prims.step() < 8) {
    prims.expect(1, 1);
    prims.recv_reduce_copy_send({});
    prims.send({});
  }
  CHECK(prims.step() == 8);
}

namespace {
/// The first wrong of one step of `prims<In, Out>` between rank 1 and the ranks given.
template <int In, int Out, class Step>
DryRunResult one_step(const Peers<In>& ins, const Peers<Out>& outs, Step step) {
  DryRunResult found;
  const DryRunPosition position{.rank = 1, .ranks = 4};
  const DryRunContext<AllReduce> context{position, found};
  auto wire = context.prims<In, Out>(ins, outs);
  step(wire);
  return found;
}
}  // namespace

TEST_CASE("dry run: a step has the wires that it moves over") {
  const Part part{0, 0, 8};
  const auto copy_send = [&](auto& wire) { wire.copy_send(part); };
  const auto recv = [&](auto& wire) { wire.recv(part); };
  const auto reduce = [&](auto& wire) { wire.recv_reduce_copy_send(part); };
  const auto nothing = [&](auto& wire) { wire.copy_send({0, 0, 0}); };
  using Wrong = DryRunResult;
  CHECK(one_step<1, 1>({{0}}, {{-1}}, copy_send).wrong == Wrong::to_none);
  CHECK(one_step<1, 1>({{0}}, {{-1}}, nothing).wrong == Wrong::nothing);
  CHECK(one_step<1, 2>({{0}}, {{-1, -1}}, copy_send).wrong == Wrong::nothing);
  CHECK(one_step<1, 1>({{-1}}, {{0}}, recv).wrong == Wrong::from_none);
  CHECK(one_step<2, 1>({{-1, -1}}, {{0}}, recv).wrong == Wrong::from_none);
  CHECK(one_step<2, 1>({{0, -1}}, {{0}}, recv).wrong == Wrong::nothing);
  CHECK(one_step<2, 1>({{0, 2}}, {{0}}, recv).wrong == Wrong::from_many);
  CHECK(one_step<1, 1>({{-1}}, {{0}}, reduce).wrong == Wrong::from_none);
  CHECK(one_step<2, 1>({{-1, -1}}, {{0}}, reduce).wrong == Wrong::nothing);
  CHECK(one_step<2, 1>({{0, 2}}, {{3}}, reduce).wrong == Wrong::nothing);
  const DryRunResult gap = one_step<2, 1>({{-1, 3}}, {{0}}, reduce);
  CHECK(gap.wrong == Wrong::gap);
  CHECK(gap.given == 3);
}
