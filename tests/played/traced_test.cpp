// Kernels that note when their phases begin, on GPUs that are played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/checked.hpp>
#include <ccl/collective.cuh>
#include <ccl/traced.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

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
    const auto sums = Collective<AllReduce, Algo, Proto, P2pTransport>::create(rank.comm, small);
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
  check_phases<Traced<Ring>, TestType>(2, 20'000, 3);
  check_phases<Traced<Tree>, TestType>(5, 1000, 3);
}

TEMPLATE_TEST_CASE("traced and checked hold each other, and both do their work", "",
                   Traced<Checked<Ring>>, Checked<Traced<Ring>>) {
  played::install(2, multiprocessors);
  check_phases<TestType, LL>(2, 1000, 3);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [](const played::Rank& rank) -> std::string {
    const auto sums = Collective<AllReduce, TestType, LL, P2pTransport>::create(rank.comm, small);
    if (!sums) return sums.error().message();
    std::vector<float> in(1000, 1), out(1000);
    if (rank.rank == 1) in[700] = std::numeric_limits<float>::quiet_NaN();
    const auto done = (*sums)(in.data(), out.data(), 1000, Sum{}, rank.stream);
    if (!done) return done.error().message();
    Result<void> status;
    if (!wait_until([&] { return !(status = rank.comm.status()); }, 20)) return "no failure";
    rank.synchronize();
    return status.error().code == Errc::not_a_number ? "" : status.error().message();
  });
}
