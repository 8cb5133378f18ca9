// Memory of a rank in a large job, by the plans of ccl: what its communicator keeps of all ranks,
// and the tables and slots of a composition.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/detail/runtime/wire_rows.hpp>
#include <ccl/detail/runtime/wire_tables.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/topo/arrange.hpp>
#include <ccl/types/peer_info.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>

#include "connect/agreement.hpp"
#include "net/rendezvous.hpp"
#include "support/catch.hpp"
#include "transport/ib/gpu/block_size.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
constexpr double mib = 1 << 20;
constexpr Index default_budget = Index{1} << 30;

/// What the communicator keeps of each rank.
double of_communicator(int ranks) {
  return ranks *
         double(sizeof(PeerInfo) + sizeof(net::Member) + sizeof(RankPlace) + 2 * sizeof(int)) / mib;
}
struct OfComposition {
  double tables, slots;  // MiB; slots -1: they do not fit, so the composition is refused
  double blocks;         // of the GPU, that slots over RDMA lie in; 0: on CPU ranks
  double least = 0;      // of the smallest slots
};
/// Bytes of the tables of a rank whose wires have `fan` peers in each channel, for each channel
/// others where there are so many.
double bytes_of_tables(int ranks, int channels, int fan, bool exchanges) {
  WireRows rows{ranks, channels, exchanges};
  Wire wire;
  for (int c = 0; c < channels; ++c) {
    for (int n = 0; n < fan; ++n) rows.put(n % 2 == 0, c, (c * fan + n) % ranks, wire);
  }
  const std::size_t cursors = exchanges ? 2 * std::size_t(ranks) * std::size_t(channels) : 0;
  return double((rows.in().size() + rows.out().size()) * sizeof(Wire) +
                rows.column_of().size() * sizeof(int) + cursors * sizeof(Cursor));
}
/// A composition between hosts: slots at both ends of each wire.
template <class Algo, class Proto>
OfComposition of_composition(int ranks, bool on_cpus) {
  const Plans plans = on_cpus ? default_host_plans<Proto>(8)
                              : default_device_plans<Algo, Proto>({true, 384, 8}, {370.8, true, 90},
                                                                  default_max_blocks);
  Plan plan = plans.by_medium[std::size_t(Medium::network)];
  const Index least = on_cpus ? plans.min_slot_bytes : 2048;
  const int fan = std::min(ranks - 1, Algo::max_wires(ranks));
  const Index part = part_of_budget(default_budget, false);
  while (plan.slot_bytes / 2 >= least && slot_memory(plan, 2 * fan) > part) plan.slot_bytes /= 2;
  const Index slots = slot_memory(plan, 2 * fan);
  constexpr bool exchanges = std::is_same_v<Algo, Pairwise>;
  const int peers = std::min(ranks - 1, 2 * Algo::max_wires(ranks));
  const double tables = bytes_of_tables(ranks, plan.channels, peers, exchanges);
  if (slots > part) return {tables / mib, -1, 0, double(slots) / mib};
  const std::size_t edge = std::size_t(slot_memory(plan, 1));
  const double blocks =
      double(IbBlockSize::of_edges(std::size_t(fan), edge, IbBlockSize::together) +
             IbBlockSize::of_edges(std::size_t(fan), edge, IbBlockSize::apart));
  return {tables / mib, double(slots) / mib, on_cpus ? 0 : blocks / mib};
}

/// Lines of the table in docs/reference/transports.md.
std::string page() {
  std::ifstream file{CCL_SOURCE_DIR "/docs/reference/transports.md"};
  return {std::istreambuf_iterator<char>{file}, {}};
}
std::string cell(const OfComposition& of) {
  // A composition may take half of a budget that is given.
  if (of.slots < 0) return fmt::format("needs CCL_MEMORY_BUDGET={:.0f}M", std::ceil(2 * of.least));
  const double all = of.tables + std::max(of.slots, of.blocks);
  return all < 10 ? fmt::format("{:.1f} MiB", all) : fmt::format("{:.0f} MiB", all);
}
}  // namespace

TEST_CASE("memory of a rank in jobs of 1,024 and 16,384 ranks is as the reference states") {
  const std::string stated = page();
  const auto check = [&](const std::string& row) {
    INFO(row);
    CHECK(stated.find("\n" + row + "\n") != std::string::npos);
  };
  check(fmt::format("| communicator: what it keeps of all ranks | {:.1f} MiB | {:.1f} MiB |",
                    of_communicator(1024), of_communicator(16384)));
  CHECK(of_communicator(16384) < 12);
  CHECK(
      stated.find(fmt::format(
          "\nA composition takes at most {:.0f} MiB, or half of `CCL_MEMORY_BUDGET` if it is set. "
          "All compositions of\na communicator take at most 1 GiB by default.",
          double(part_of_budget(default_budget, false)) / mib)) != std::string::npos);
  CHECK(part_of_budget(Index{1} << 20, true) == Index{1} << 19);
  const auto look = [&](const char* name, auto of, double max_slots, double max_tables = 0.5) {
    const OfComposition smaller = of(1024), larger = of(16384);
    check(fmt::format("| {} | {} | {} |", name, cell(smaller), cell(larger)));
    CHECK(smaller.tables < max_tables);
    CHECK(larger.tables < 16 * max_tables);
    for (const OfComposition& one : {smaller, larger}) {
      CHECK(one.slots <= max_slots);
      CHECK(one.blocks <= 2 * max_slots);
    }
    CHECK(smaller.slots > 0);
  };
  look(
      "Ring Simple, CPU ranks", [](int n) { return of_composition<Ring, Simple>(n, true); }, 4);
  look(
      "Tree Simple, CPU ranks", [](int n) { return of_composition<Tree, Simple>(n, true); }, 12);
  look(
      "Pairwise Simple, CPU ranks", [](int n) { return of_composition<Pairwise, Simple>(n, true); },
      64);
  look(
      "Pairwise Simple between hosts of 8, CPU ranks",
      [](int n) { return of_composition<Pairwise, Simple>(n / 8, true); }, 64);
  look(
      "Ring Simple, GPUs", [](int n) { return of_composition<Ring, Simple>(n, false); }, 32, 1);
  look(
      "Ring LL128, GPUs", [](int n) { return of_composition<Ring, LL128>(n, false); }, 4, 1);
  look(
      "Pairwise Simple, GPUs", [](int n) { return of_composition<Pairwise, Simple>(n, false); },
      64);
  look(
      "Pairwise Simple between hosts of 8, GPUs",
      [](int n) { return of_composition<Pairwise, Simple>(n / 8, false); }, 64);
}
