#pragma once

// Job whose processes are killed or stopped at a step: what each rank and each process does and
// reports.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/environment.hpp"
#include "support/places.hpp"
#include "support/processes.hpp"

namespace ccl::test::lost {

inline constexpr int ranks = 4;
/// Limit of creation and of calls, without progress: CAMPAIGN_LIMIT.
inline const double limit_s = [] {
  const char* const text = std::getenv("CAMPAIGN_LIMIT");
  return text == nullptr ? 4. : std::atof(text);
}();
inline const double hangs_after_s = 15 * limit_s;
inline constexpr int max_rounds = 400;
inline constexpr Index count = 2000;

/// What the ranks of a job talk over. RDMA needs a device.
enum class Over { shm, tcp, rdma };
inline constexpr const char* names_of_over[] = {"shm", "TCP", "RDMA"};

/// A step of a job, and what happens there.
struct Step {
  Over over = Over::shm;
  int ranks_each = 1;  // of a process: its threads
  int victim = 0;      // process
  int signal = SIGKILL;
  long place = 0;  // at which the victim is hit: its allocations and system calls so far
  int round = 0;   // if no place: the round of calls, and the microseconds in it
  int delay_us = 0;

  int processes() const { return ranks / ranks_each; }
  bool is_lost(int rank) const { return rank >= 0 && rank / ranks_each == victim; }
  std::string text() const {
    const std::string where = place > 0 ? fmt::format("at place {}", place)
                                        : fmt::format("{} us into round {}", delay_us, round);
    return fmt::format("{}, {} processes of {}, process {} is {} {}", names_of_over[int(over)],
                       processes(), ranks_each, victim, signal == SIGKILL ? "killed" : "stopped",
                       where);
  }
};

struct RankReport {
  std::atomic<bool> created{false}, ended{false};
  std::atomic<int> rounds{0};
  double ended_at = 0;
  int code = -1, peer = -1;  // 0: success
  char text[600] = {};
};
struct ProcessReport {
  Places places;
  std::atomic<long> created_at{0};  // places
  std::atomic<bool> ended{false};
  Holdings before{}, allowed{}, after{};
};
struct Board {
  std::atomic<double> hit_at{0};
  std::atomic<int> started{0};  // processes
  RankReport rank[ranks];
  ProcessReport process[ranks];
  std::atomic<bool> judged{false};
  double slowest_s = 0;
  bool hit = false, during_creation = false;
  char verdict[2600] = {};  // empty: as it must be
};

inline double now_s() {
  return seconds(Clock::now().time_since_epoch());
}

// Of a process of a job.
inline Board* board = nullptr;
inline int signal_here = 0;

inline void hit_this_process() {
  board->hit_at = now_s();
  ::kill(::getpid(), signal_here);
}

/// Over RDMA the job has no all-to-all: in an emulated machine its wires take half a minute.
template <class Transport>
Result<void> run_job(const Communicator& comm, int ranks_each, int rounds) {
  using Sums = Collective<AllReduce, Tree, Simple, Transport>;
  using Swaps = Collective<AllToAll, Pairwise, Simple, Transport>;
  RankReport& report = board->rank[comm.rank()];
  CCL_TRY(const auto sum, Sums::create(comm));
  std::optional<Swaps> swap;
  if (!std::is_same_v<Transport, IbTransport>) {
    CCL_TRY(swap, Swaps::create(comm));
  }
  ProcessReport& process = board->process[comm.rank() / ranks_each];
  process.created_at = process.places.passed.load();
  report.created = true;
  std::vector<int> in(count), out(count);
  for (; report.rounds < rounds; ++report.rounds) {
    std::fill(in.begin(), in.end(), comm.rank() + report.rounds);
    CCL_CHECK(sum(in.data(), out.data(), count));
    for (const int x : out) {
      if (x != 6 + ranks * report.rounds) return fail(Errc::internal, "wrong sum");
    }
    if (!swap) continue;
    CCL_CHECK((*swap)(in.data(), out.data(), count / ranks));
    for (Index i = 0; i < count; ++i) {
      if (out[std::size_t(i)] != int(i / (count / ranks)) + report.rounds) {
        return fail(Errc::internal, "wrong data");
      }
    }
  }
  return comm.finalize();
}

inline Result<void> run_rank(const Step& step, int port, int rank, int rounds) {
  CCL_TRY(const auto id, unique_id_at(fmt::format("127.0.0.1:{}", port), "lost process"));
  if (rank == 0) CCL_CHECK(start_root(id, 0));
  Config config;
  config.device = Config::cpu;
  config.init_timeout_s = config.timeout_s = limit_s;
  CCL_TRY(const auto comm, Communicator::create(id, rank, ranks, config));
  switch (step.over) {
    case Over::rdma:
      return run_job<IbTransport>(comm, step.ranks_each, rounds);
    case Over::tcp:
      return run_job<SocketTransport>(comm, step.ranks_each, rounds);
    case Over::shm:
      break;
  }
  return run_job<ShmTransport>(comm, step.ranks_each, rounds);
}

inline void report_rank(const Step& step, int port, int rank, int rounds) {
  RankReport& report = board->rank[rank];
  const Result<void> done = run_rank(step, port, rank, rounds);
  report.ended_at = now_s();
  report.code = done ? 0 : int(done.error().code);
  if (!done) {
    report.peer = done.error().peer;
    std::snprintf(report.text, sizeof report.text, "%s", done.error().message().c_str());
  }
  report.ended = true;
}

/// Body of a process: one thread for each of its ranks.
inline int run_process(const Step& step, int port, int process, int rounds) {
  const Environment quiet{"CCL_DEBUG", "NONE"};
  ProcessReport& report = board->process[process];
  ++board->started;  // processes start one after another, on busy cores
  (void)wait_until([&] { return board->started == step.processes(); }, hangs_after_s);
  report.before = Holdings::of_this_process();
  signal_here = step.signal;
  report.places.act = &hit_this_process;
  report.places.acts_at = process == step.victim ? step.place : 0;
  count_places(report.places);
  {
    const int first = process * step.ranks_each;
    std::vector<std::thread> threads;
    for (int r = first; r < first + step.ranks_each; ++r) {
      threads.emplace_back([&, r] { report_rank(step, port, r, rounds); });
    }
    for (auto& thread : threads) thread.join();
  }
  // If a rank has not joined, its root waits a minute to send it the reason: a thread, a listener,
  // the two descriptors of the network's thread, and one in reserve.
  const bool root = process == 0 && board->rank[0].code != 0;
  report.allowed = {report.before.files + (root ? 4u : 0u),
                    report.before.threads + (root ? 1u : 0u)};
  (void)wait_until([&] { return Holdings::of_this_process().within(report.allowed); }, 15);
  report.after = Holdings::of_this_process();
  report.ended = true;
  return 0;
}

}  // namespace ccl::test::lost
