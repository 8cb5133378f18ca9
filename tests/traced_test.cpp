#include <ccl/ccl.hpp>
#include <ccl/comm/flight_record.hpp>
#include <ccl/traced.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/observe/lane_phases.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/on_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 3;
constexpr Index count = 200'000;

Config cpu() {
  Config config;
  config.device = Config::cpu;
  config.timeout_s = 60;
  return config;
}

/// Phases of the latest operation of the communicator on channel 0.
Result<LanePhases> latest_phases(const Communicator& comm) {
  const FlightRecord record = comm.flight_record();
  if (record.status.operations.empty()) return fail(Errc::internal, "no operation");
  const Operation& op = record.status.operations.back();
  for (const LanePhases& of : record.phases) {
    if (of.number != op.number || of.channel != 0) continue;
    const bool in_order = op.queued_ns <= of.begun_ns + 1'000'000 &&  // clocks are read apart
                          of.begun_ns <= of.ready_ns && of.ready_ns <= of.first_data_ns &&
                          of.first_data_ns <= of.last_data_ns && of.last_data_ns <= of.ended_ns &&
                          of.ended_ns <= op.ended_ns + 1'000'000;
    if (of.composition != op.composition || of.call != op.call || !in_order) {
      return fail(Errc::internal,
                  fmt::format("{} {} {} {} {} {} {}", op.queued_ns, of.begun_ns, of.ready_ns,
                              of.first_data_ns, of.last_data_ns, of.ended_ns, op.ended_ns));
    }
    return of;
  }
  return fail(Errc::internal, fmt::format("no phases of {} ({})", op.what, record.phases.size()));
}

std::atomic<int> short_waits{0};  // of ranks for the late one

/// Calls go well, and the phases of each are noted. In the later ones, rank 1 is late: by more and
/// more, until the other ranks have waited for most of that. On a busy machine they come late, too.
template <class Algo, class Proto, class Transport>
Result<void> notes(const Communicator& comm) {
  CCL_TRY(const auto sums, (Collective<AllReduce, Algo, Proto, Transport>::create(comm)));
  std::vector<float> in(count, 1), out(count);
  const auto waited_s = [&](double late_s) -> Result<double> {
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 1) sleep_s(late_s);
    CCL_CHECK(sums(in.data(), out.data(), count));
    if (out.front() != ranks || out.back() != ranks) return fail(Errc::internal, "wrong sum");
    CCL_TRY(const auto last, latest_phases(comm));
    return double(last.last_data_ns - last.ready_ns) / 1e9;
  };
  for (int n = 0; n < 2; ++n) CCL_CHECK(waited_s(0));
  for (double late_s = 0.1; late_s < 10; late_s *= 4) {
    const int before = short_waits;
    // Every rank needs the data of the late one.
    CCL_TRY(const double s, waited_s(late_s));
    if (comm.rank() == 1 ? s > 10 : s > 60) {
      return fail(Errc::internal, fmt::format("{} s of waits", s));
    }
    if (comm.rank() != 1 && s < late_s / 2) ++short_waits;
    CCL_CHECK(comm.barrier());
    if (short_waits == before) return {};
  }
  return fail(Errc::internal, "the waits for the late rank are in no phase");
}

}  // namespace

TEST_CASE("traced compositions note when their phases begin") {
  check_well(on_ranks(ranks, cpu(), [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto one, (Collective<AllReduce, Traced<Ring>, LL>::create(comm)));
    if (one.name() != "all_reduce/Traced<Ring>/LL/any") return fail(Errc::internal, one.name());
    CCL_CHECK((notes<Traced<Ring>, LL, DefaultTransport>(comm)));
    CCL_CHECK((notes<Traced<Tree>, Simple, DefaultTransport>(comm)));
    return notes<Traced<Ring>, Simple, SocketTransport>(comm);
  }));
}

TEST_CASE("a setting lets any composition of CPU ranks note its phases, and others note none") {
  const auto plain = [](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<AllReduce, Ring, Simple>::create(comm)));
    float x = 1, y = 0;
    CCL_CHECK(sums(&x, &y, 1));
    return comm.flight_record().phases.empty() ? Result<void>{}
                                               : fail(Errc::internal, "phases unasked");
  };
  check_well(on_ranks(ranks, cpu(), plain));
  const Environment wanted{{{"CCL_TRACE_PHASES", "1"}}};
  check_well(on_ranks(ranks, cpu(), [](const Communicator& comm) -> Result<void> {
    CCL_CHECK((notes<Ring, Simple, DefaultTransport>(comm)));
    // A hundred further calls replace the oldest entries only.
    CCL_TRY(const auto sums, (Collective<AllReduce, Ring, LL>::create(comm)));
    float x = 1, y = 0;
    for (int n = 0; n < 100; ++n) CCL_CHECK(sums(&x, &y, 1));
    const auto phases = comm.flight_record().phases;
    const auto of_it = [&](const LanePhases& of) { return of.call > 100 - 64 && of.call <= 100; };
    const auto kept = std::ranges::count_if(phases, of_it);
    return kept == 64 ? Result<void>{} : fail(Errc::internal, std::to_string(kept));
  }));
}

TEST_CASE("the clock of a GPU is aligned by calls that no kernel precedes") {
  // The GPU is 1000 ns behind; kernels begin 300, 5 and 80 ns after their calls.
  CHECK(detail::gpu_clock_offset({{2000, 1300}, {3000, 2005}, {4000, 3080}}) == 995);
  CHECK(detail::gpu_clock_offset({{2000, 4000}}) == -2000);
  CHECK(detail::gpu_clock_offset({}) == 0);
}
