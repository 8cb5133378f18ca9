// Kernels that note when their phases begin, on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/traced.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <string>

#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int multiprocessors = 4;
constexpr Plan small{.channels = 4, .slot_count = 4, .slot_bytes = 32 << 10};
}  // namespace

namespace {
/// The phases of `calls` all-reduces are noted, in their order and after the calls.
template <class Algo, class Proto>
void check_phases(int ranks, Index count, int calls) {
  auto comms = played::create_ranks(ranks);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto sums =
        Collective<AllReduce, Traced<Algo>, Proto, P2pTransport>::create(rank.comm, small);
    if (!sums) return sums.error().message();
    if (auto wrong = played::all_reduce(rank, *sums, count, calls); !wrong.empty()) return wrong;
    const FlightRecord record = rank.comm.flight_record();
    int first_channels = 0;
    for (const LanePhases& of : record.phases) {
      first_channels += of.channel == 0;
      const Operation* const op = record.status.find(of.number);
      const bool in_order = of.begun_ns <= of.ready_ns && of.ready_ns <= of.first_data_ns &&
                            of.first_data_ns <= of.last_data_ns && of.last_data_ns <= of.ended_ns;
      if (op == nullptr || op->call != of.call || !in_order ||
          op->queued_ns > of.begun_ns + 1'000'000) {
        return fmt::format("call {}, channel {}: {} {} {} {} {}", of.call, of.channel, of.begun_ns,
                           of.ready_ns, of.first_data_ns, of.last_data_ns, of.ended_ns);
      }
    }
    return first_channels == calls ? "" : fmt::format("{} calls with phases", first_channels);
  });
}
}  // namespace

TEMPLATE_TEST_CASE("kernels of traced compositions note their phases", "", Simple, LL, LL128) {
  played::install(5, multiprocessors);
  check_phases<Ring, TestType>(2, 20'000, 3);
  check_phases<Tree, TestType>(5, 1000, 3);
}
