// Calls of a group on GPUs that are played on the CPU, compared between ranks.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/detail/group/kernels.cuh>
#include <ccl/group.hpp>
#include <ccl/transport/p2p.hpp>

#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr Plan plan{.channels = 1, .slot_count = 2, .slot_bytes = 256 << 10};

/// GPUs whose ranks compare their calls.
played::Ranks checked_ranks(int ranks) {
  const Environment checks{"CCL_CHECK", "1"}, limit{"CCL_TIMEOUT", "20"};
  played::install(ranks, 32);
  return played::create_ranks(ranks);
}

/// Elements that a rank sends or receives, by the peer.
using Counts = std::vector<Index>;
Index begin_of(const Counts& counts, std::size_t peer) {
  return std::accumulate(counts.begin(), counts.begin() + long(peer), Index{0});
}

/// Calls of a rank in one group: a sum of `sums` elements, and an exchange. The exchange's
/// composition is created first, or last.
std::string sum_and_exchange(const played::Rank& rank, bool exchange_first, Index sums,
                             const Counts& out, const Counts& in) {
  using Sums = Collective<AllReduce, OneShot, LL, P2pTransport>;
  using Exchanges = Collective<AllToAllV, Direct, Simple, P2pTransport>;
  std::optional<Sums> sum;
  std::optional<Exchanges> exchange;
  for (const bool first : {true, false}) {
    if (first == exchange_first) {
      exchange.emplace(*Exchanges::create(rank.comm, plan));
    } else {
      sum.emplace(*Sums::create(rank.comm, plan));
    }
  }
  Counts out_at, in_at;
  for (std::size_t p = 0; p <= out.size(); ++p) {
    out_at.push_back(begin_of(out, p));
    in_at.push_back(begin_of(in, p));
  }
  std::vector<float> data(std::size_t(sums), 1.f), total(std::size_t(sums), 0.f);
  std::vector<float> sent(std::size_t(out_at.back()), float(rank.rank));
  std::vector<float> got(std::size_t(in_at.back()), -1.f);
  using List = std::span<const Index>;
  const std::size_t ranks = out.size();
  const auto done = group(rank.stream, sum->bind(data.data(), total.data(), sums, Sum{}),
                          exchange->bind(sent.data(), List{out}, List{out_at.data(), ranks},
                                         got.data(), List{in}, List{in_at.data(), ranks}));
  rank.synchronize();
  if (!done) return done.error().message();
  if (const auto well = rank.comm.status(); !well) return well.error().message();
  if (total != std::vector<float>(std::size_t(sums), float(ranks))) return "a sum is wrong";
  for (std::size_t p = 0; p < ranks; ++p) {
    for (Index i = in_at[p]; i < in_at[p + 1]; ++i) {
      if (got[std::size_t(i)] != float(p)) return "a message is wrong";
    }
  }
  return {};
}
}  // namespace

TEST_CASE("ranks compare the calls of a group in one order, also where one's exchange is small") {
  auto comms = checked_ranks(3);
  constexpr Index large = 200'000, small = 10;  // a kernel of a group has room for small ones
  const Counts all[] = {{0, small, small}, {small, 0, large}, {small, large, 0}};
  for (const bool first : {true, false}) {
    played::on_each(comms, [&](const played::Rank& rank) {
      const Counts& mine = all[rank.rank];
      return sum_and_exchange(rank, first, 100, mine, mine);
    });
  }
}

TEST_CASE("the two ends of a message in a group are compared") {
  auto comms = checked_ranks(2);
  const auto problems = played::problems_on(comms, [](const played::Rank& rank) {
    return rank.rank == 0 ? sum_and_exchange(rank, true, 100, {0, 10}, {0, 10})
                          : sum_and_exchange(rank, true, 100, {10, 0}, {11, 0});
  });
  for (const std::string& what : problems) {
    INFO(what);
    CHECK(mentions(what, "sends 40 bytes, rank 1 takes 44"));
  }
}

TEST_CASE("calls that share the kernel of a group are compared") {
  auto comms = checked_ranks(2);
  const auto problems = played::problems_on(comms, [](const played::Rank& rank) {
    const Counts counts{rank.rank == 1 ? 10 : 0, rank.rank == 0 ? 10 : 0};
    return sum_and_exchange(rank, true, 100 + rank.rank, counts, counts);
  });
  for (const std::string& what : problems) {
    INFO(what);
    CHECK(mentions(what, "count of"));
  }
}
