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
#include <iostream>
#include <type_traits>

#include "connect/agreement.hpp"
#include "net/rendezvous.hpp"
#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
constexpr double mib = 1 << 20;

/// What the communicator keeps of each rank.
double of_communicator(int ranks) {
  return ranks *
         double(sizeof(PeerInfo) + sizeof(net::Member) + sizeof(RankPlace) + 2 * sizeof(int)) / mib;
}
struct OfComposition {
  double tables, slots;  // MiB; slots -1: they do not fit, so the composition is refused
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
/// A composition between hosts. `on_cpus`: slots at both ends of each wire.
template <class Algo, class Proto>
OfComposition of_composition(int ranks, bool on_cpus) {
  const Plans plans = on_cpus ? default_host_plans<Proto>(8)
                              : default_device_plans<Algo, Proto>({true, 384, 8}, {370.8, true, 90},
                                                                  default_max_blocks);
  Plan plan = plans.by_medium[std::size_t(Medium::network)];
  const Index least = on_cpus ? plans.min_slot_bytes : 2048;
  const int fan = std::min(ranks - 1, Algo::max_wires(ranks)) * (on_cpus ? 2 : 1);
  constexpr Index part = (Index{1} << 30) / 16;  // of the default budget
  while (plan.slot_bytes / 2 >= least && slot_memory(plan, fan) > part) plan.slot_bytes /= 2;
  const Index slots = slot_memory(plan, fan);
  constexpr bool exchanges = std::is_same_v<Algo, Pairwise>;
  const int peers = std::min(ranks - 1, 2 * Algo::max_wires(ranks));
  const double tables = bytes_of_tables(ranks, plan.channels, peers, exchanges);
  return {tables / mib, slots > part ? -1 : double(slots) / mib};
}
}  // namespace

TEST_CASE("memory of a rank in jobs of 1,024 and 16,384 ranks") {
  for (const int ranks : {1024, 16384}) {
    const double comm = of_communicator(ranks);
    std::cout << fmt::format("{} ranks: communicator {:.1f} MiB\n", ranks, comm);
    CHECK(comm < 0.75 * ranks / 1024);
    const auto look = [&](const char* name, OfComposition of, double max_slots,
                          double max_tables = 0.5) {
      std::cout << fmt::format("  {}: tables {:.1f}, slots {:.1f} MiB\n", name, of.tables,
                               of.slots);
      CHECK(of.tables < max_tables * ranks / 1024);
      CHECK(of.slots <= max_slots);
      CHECK((of.slots > 0) == (max_slots > 0));
    };
    // All pairs of 16,384 ranks do not fit the default budget; those of one rank of each host do.
    const double of_pairs = ranks == 1024 ? 64 : -1;
    look("Ring, CPUs", of_composition<Ring, Simple>(ranks, true), 2);
    look("Tree, CPUs", of_composition<Tree, Simple>(ranks, true), 12);
    look("Pairwise, CPUs", of_composition<Pairwise, Simple>(ranks, true), of_pairs);
    look("Ring Simple, GPUs", of_composition<Ring, Simple>(ranks, false), 16, 1);
    look("Ring LL128, GPUs", of_composition<Ring, LL128>(ranks, false), 2, 1);
    look("Pairwise, GPUs", of_composition<Pairwise, Simple>(ranks, false), of_pairs);
    look("Pairwise between hosts of 8, CPUs", of_composition<Pairwise, Simple>(ranks / 8, true),
         64);
    look("Pairwise between hosts of 8, GPUs", of_composition<Pairwise, Simple>(ranks / 8, false),
         64);
  }
}
