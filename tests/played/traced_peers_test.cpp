// Kernels over the memory of peers that note when their phases begin, on GPUs that are played on
// the CPU.
#define CCL_PLAYED_WARP 4  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/traced.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int multiprocessors = 2, calls = 3, late_rank = 1;
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 32 << 10};
constexpr auto late = std::chrono::milliseconds{40};

/// One kernel for two ranks: a kernel takes long to compile.
template <class Algo>
struct Small : Algo {
  using RankCounts = ccl::RankCounts<2>;
  static constexpr bool one_kernel = true;
};
using SmallOneShot = Traced<Small<OneShot>>;
using SmallTwoShot = Traced<Small<TwoShot>>;

/// Waits ahead of the second call, on one rank.
void be_late(const played::Rank& rank, int call) {
  if (call == 1 && rank.rank == late_rank) std::this_thread::sleep_for(late);
}

/// Looks at the phases of a composition's calls. `waits`: this rank needs data of the late one.
std::string wrong_phases(const played::Rank& rank, int composition, bool waits) {
  const FlightRecord record = rank.comm.flight_record();
  int seen = 0;
  Word waited_ns = 0;
  for (const LanePhases& of : record.phases) {
    if (of.composition != composition) continue;
    seen += of.channel == 0;
    const Operation* const op = record.status.find(of.number);
    const bool called = of.number == 0 || (op != nullptr && op->call == of.call &&
                                           op->queued_ns <= of.begun_ns + 1'000'000);
    const bool in_order = of.begun_ns <= of.ready_ns && of.ready_ns <= of.ended_ns &&
                          of.first_data_ns <= of.last_data_ns && of.last_data_ns <= of.ended_ns &&
                          (of.first_data_ns == 0 || of.ready_ns <= of.first_data_ns);
    if (!called || !in_order) {
      return fmt::format("call {}, channel {}: {} {} {} {} {}", of.call, of.channel, of.begun_ns,
                         of.ready_ns, of.first_data_ns, of.last_data_ns, of.ended_ns);
    }
    if (of.call == 2 && of.last_data_ns != 0) {
      waited_ns = std::max(waited_ns, of.last_data_ns - of.begun_ns);
    }
  }
  if (seen != calls) return fmt::format("{} calls with phases", seen);
  const bool found = waited_ns > Word(std::chrono::nanoseconds{late}.count()) / 2;
  return found || !waits ? "" : fmt::format("{} ns of the late rank are in no phase", waited_ns);
}

/// Makes `calls` calls of an operation in which all ranks need data of the late one, and looks at
/// the notes.
template <class Op, class Algo, class Proto>
void check_collective(played::Ranks& comms, Index count) {
  INFO(Op::name << ", " << Algo::name << ", " << count);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto made = Collective<Op, Algo, Proto, P2pTransport>::create(rank.comm, small);
    if (!made) return made.error().message();
    const Index shares = is_one_of<Op, AllReduce, Broadcast> ? 1 : rank.ranks;
    std::vector<float> in(std::size_t(count * shares), 1), out(in.size(), -1);
    for (int call = 0; call < calls; ++call) {
      rank.synchronize();
      if (const auto done = rank.comm.barrier(); !done) return done.error().message();
      be_late(rank, call);
      Result<void> done;
      if constexpr (std::is_same_v<Op, Broadcast>) {
        done = (*made)(in.data(), out.data(), count, late_rank, rank.stream);
      } else if constexpr (Op::reduces) {
        done = (*made)(in.data(), out.data(), count, Sum{}, rank.stream);
      } else {
        done = (*made)(in.data(), out.data(), count, rank.stream);
      }
      if (!done) return done.error().message();
    }
    rank.synchronize();
    if (out[0] != float(Op::reduces ? rank.ranks : 1)) return "wrong result";
    return wrong_phases(rank, made->number(), rank.rank != late_rank);
  });
}
}  // namespace

TEST_CASE("kernels of OneShot and TwoShot note their phases") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  check_collective<AllReduce, SmallOneShot, LL128>(comms, 1000);
  check_collective<AllReduce, SmallTwoShot, LL128>(comms, 1000);
  check_collective<Broadcast, SmallOneShot, LL128>(comms, 500);
}

TEST_CASE("kernels of Direct note their phases") {
  played::install(3, multiprocessors);
  auto comms = played::create_ranks(3);
  check_collective<AllReduce, Traced<Direct>, Simple>(comms, 3000);
  check_collective<AllGather, Traced<Direct>, Simple>(comms, 3000);
}

TEST_CASE("a call of several launches has the begin of the first and the end of the last") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    using Sums = Collective<AllReduce, SmallOneShot, LL128, P2pTransport>;
    const auto sums = Sums::create(rank.comm, small);
    if (!sums) return sums.error().message();
    // Each half of the scratch holds a part of this.
    if (auto wrong = played::all_reduce(rank, *sums, 100'000, calls); !wrong.empty()) return wrong;
    if (auto wrong = wrong_phases(rank, sums->number(), false); !wrong.empty()) return wrong;
    const detail::PhaseLog* log = nullptr;
    {
      auto& observers = detail::Access::state(rank.comm)->observers;
      const auto lock = observers.lock_compositions();
      log = observers.compositions().back()->calls().watch.phases;
    }
    const FlightRecord record = rank.comm.flight_record();
    for (const LanePhases& of : record.phases) {
      if (of.composition != sums->number() || of.channel != 0) continue;
      const auto ticket = Word(of.number) % detail::PhaseLog::launches;
      const auto at = [&](int which) { return log[which].times[ticket][0]; };
      if (at(1).ticket != at(0).ticket) return "there was one launch";
      if (of.begun_ns != at(0).begun + Word(record.lane_clock_ns)) return "another clock";
      if (of.ended_ns - of.begun_ns != at(1).ended - at(0).begun) return "other times";
      if (of.last_data_ns - of.first_data_ns != at(1).last_data - at(0).first_data) {
        return "other times of data";
      }
    }
    return {};
  });
}

TEST_CASE("messages of rows whose counts lie in memory note phases") {
  played::install(2, multiprocessors);
  auto comms = played::create_ranks(2);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto made =
        Collective<AllToAllV, SmallOneShot, LL128, P2pTransport>::create(rank.comm, small);
    if (!made) return made.error().message();
    const std::vector<int> counts{2, 2};
    std::vector<int> got{0, 0};
    std::vector<float> in(400, 1), out(400);
    CountedRows rows;
    rows.row = 100;
    rows.send_counts = counts.data();
    rows.recv_counts = got.data();
    rows.send_stride = rows.recv_stride = 2;
    for (int call = 0; call < calls; ++call) {
      rank.synchronize();
      if (const auto done = rank.comm.barrier(); !done) return done.error().message();
      be_late(rank, call);
      const auto done = made->counted(in.data(), out.data(), rows, rank.stream);
      if (!done) return done.error().message();
    }
    rank.synchronize();
    return wrong_phases(rank, made->number(), rank.rank != late_rank);
  });
}
