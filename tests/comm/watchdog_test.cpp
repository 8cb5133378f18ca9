// Faults of jobs that the watchdog must explain by itself: the rank at fault, and the cause. Each
// rank is a process, and the log is what a user sees.
//
//   ccl.test.comm.watchdog "faults of*"    prints the table of docs/validation/diagnosis.md
#include <ccl/checked.hpp>

#include <algorithm>
#include <limits>

#include "support/call_faults.hpp"
#include "support/network_faults.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::faults;

TEST_CASE("faults of calls: a rank does not call, or calls something else") {
  faults_of_calls<Shm>();
}

TEST_CASE("faults of ranks: finalize, another communicator, a stream with other work") {
  play<Shm>("is in finalize", {Cause::other_step, victim, "it is in finalize"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              return calls.comm.finalize();
            });
  play<Shm>("does not call finalize",
            {Cause::not_called, victim, "has not called finalize (its last is operation 3", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.comm.finalize();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  // Rank 0 has asked for a message before, which rank 1 sends at the end.
  play<Shm>("does not call, where a receive waits on purpose",
            {Cause::not_called, victim, "has not called operation 4", 4},
            [](Shm& calls) -> Result<void> {
              HostStream stream;
              float word = 0;
              if (calls.comm.rank() == 0) {
                CCL_CHECK(calls.messages.recv(&word, 1, 1, stream));
                sleep_s(0.5);
              }
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
#if defined(CCL_TEST_LONG)
  play<Shm>("is in split", {Cause::other_step, victim, "it is in split"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              CCL_TRY(const auto part, calls.comm.split(0, 0));
              return {};
            });
  play<Shm>("creates a composition", {Cause::other_step, victim, "it is in"},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              CCL_TRY(const auto sums, Shm::Sums::create(calls.comm));
              return {};
            });
#endif
  // Of all ranks, and of ranks 0 and 2. In the pair, rank 0 is late as in a usual pause.
  play<Shm>(
      "a circle of two communicators",
      {Cause::communicators, victim, "of communicator pair of 2 ranks, where it waits for rank 0"},
      [](Shm& calls) -> Result<void> {
        const bool in_pair = calls.comm.rank() % 2 == 0;
        Config config;
        config.device = Config::cpu;
        config.name = "pair";
        CCL_TRY(const auto pair, calls.comm.split(in_pair ? 0 : -1, 0, config));
        if (!in_pair) return calls.sum();
        CCL_TRY(const auto sums, Shm::Sums::create(*pair));
        if (!calls.is_victim()) return calls.sum();
        fires(calls.board);
        return sums(calls.x.data(), calls.y.data(), count);
      });
  play<Shm>("is queued behind other work of its stream",
            {Cause::queued, victim, "has not begun operation 4", 4},
            [](Shm& calls) -> Result<void> {
              HostStream stream;
              if (calls.is_victim()) {
                stream.enqueue([&board = calls.board]() -> Result<void> {
                  fires(board);
                  wait_for_the_end(board);
                  return {};
                });
              }
              CCL_CHECK(calls.sums(calls.x.data(), calls.y.data(), count, Sum{}, stream));
              return stream.synchronize();
            });
}

TEST_CASE("faults of processes: stopped, killed") {
  faults_of_processes<Shm, Tcp>();
}

TEST_CASE("faults of networks: a silent link, a proxy that does not run") {
  faults_of_networks<Tcp>();
}

namespace {
/// Sum whose functor does not return on the rank at fault.
struct Hangs {
  Board* board;
  bool here;
  float operator()(float a, float b) const {
    if (here && board->fired == 0) {
      fires(*board);
      wait_for_the_end(*board);
    }
    return a + b;
  }
};
}  // namespace

TEST_CASE("faults of programs: a functor that hangs, an abort, a missing call of all ranks") {
  play<Shm>("its functor does not return", {Cause::working, victim, "waits for nobody", 4},
            [](Shm& calls) -> Result<void> {
              return calls.sums(calls.x.data(), calls.y.data(), count,
                                Hangs{&calls.board, calls.is_victim()});
            });
  // The record of the wait stays while the functor runs.
  play<Shm>("its functor does not return, after a wait",
            {Cause::working, victim, "waits for nobody", 4}, [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) sleep_s(1);
              return calls.sums(calls.x.data(), calls.y.data(), count,
                                Hangs{&calls.board, calls.is_victim()});
            });
#if defined(CCL_TEST_LONG)
  play<Shm>("does not call split", {Cause::not_called, victim, "has not called split", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) {
                CCL_TRY(const auto part, calls.comm.split(0, 0));
                return {};
              }
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Shm>("does not create a composition", {Cause::not_called, victim, "has not called", 4},
            [](Shm& calls) -> Result<void> {
              if (!calls.is_victim()) {
                CCL_TRY(const auto sums, Shm::Sums::create(calls.comm));
                return {};
              }
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Tcp>("does not call, over TCP", {Cause::not_called, victim, "has not called operation 4", 4},
            [](Tcp& calls) -> Result<void> {
              if (!calls.is_victim()) return calls.sum();
              fires(calls.board);
              wait_for_the_end(calls.board);
              return {};
            });
  play<Tcp>("another count, over TCP", {Cause::other_count}, [](Tcp& calls) -> Result<void> {
    if (calls.is_victim()) fires(calls.board);
    return calls.sum(calls.is_victim() ? 1000 : 400'000);
  });
  fails<Shm>("calls abort", Errc::aborted, [](Shm& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      calls.comm.abort("the fault");
    }
    return calls.sum();
  });
  fails<Shm>("has a NaN, with Checked", Errc::not_a_number, [](Shm& calls) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<AllReduce, Checked<Ring>, Simple>::create(calls.comm)));
    if (calls.is_victim()) {
      calls.x[77] = std::numeric_limits<float>::quiet_NaN();
      fires(calls.board);
    }
    return sums(calls.x.data(), calls.y.data(), count);
  });
#endif
}

#if defined(CCL_TEST_LONG)
// The last case of the file: what the ones before have played.
TEST_CASE("faults in all: of at least 30, all but one are named rightly within 10 s") {
  if (table().empty()) return;  // this case was run alone
  const auto in_time =
      std::ranges::count_if(table(), [](const Named& of) { return of.right && of.took_s < 10; });
  std::printf("%td of %zu faults are named within 10 s\n", in_time, table().size());
  CHECK(table().size() >= 30);
  CHECK(std::size_t(in_time) + 1 >= table().size());
}
#endif
