#pragma once

// Faults of ranks that do something else, and of their programs, for ranks of any type.
#include <ccl/checked.hpp>

#include <limits>

#include "support/fault_calls.hpp"

namespace ccl::test::faults {

/// Faults of what a rank does beside its operations, for ranks of the CPU or of GPUs.
template <class C>
void faults_of_steps() {
  play<C>("is in finalize", {Cause::other_step, victim, "it is in finalize"},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            return calls.comm.finalize();
          });
  play<C>("does not call finalize",
          {Cause::not_called, victim, "has not called finalize (its last is operation 3", 4},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.comm.finalize();
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
#if defined(CCL_TEST_LONG)
  play<C>("is in split", {Cause::other_step, victim, "it is in split"},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            CCL_TRY(const auto part, calls.comm.split(0, 0));
            return {};
          });
  play<C>("creates a composition", {Cause::other_step, victim, "it is in"},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            CCL_TRY(const auto sums, C::Sums::create(calls.comm));
            return {};
          });
  play<C>("does not call split", {Cause::not_called, victim, "has not called split", 4},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) {
              CCL_TRY(const auto part, calls.comm.split(0, 0));
              return {};
            }
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
  play<C>("does not create a composition", {Cause::not_called, victim, "has not called", 4},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) {
              CCL_TRY(const auto sums, C::Sums::create(calls.comm));
              return {};
            }
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
#endif
  // Of all ranks, and of ranks 0 and 2. In the pair, rank 0 is late as in a usual pause.
  play<C>(
      "a circle of two communicators",
      {Cause::communicators, victim, "of communicator pair of 2 ranks, where it waits for rank 0"},
      [](C& calls) -> Result<void> {
        const bool in_pair = calls.comm.rank() % 2 == 0;
        Config config = C::config(calls.comm.rank());
        config.name = "pair";
        CCL_TRY(const auto pair, calls.comm.split(in_pair ? 0 : -1, 0, config));
        if (!in_pair) return calls.sum();
        CCL_TRY(const auto sums, C::Sums::create(*pair));
        if (!calls.is_victim()) return calls.sum();
        fires(calls.board);
        return calls.ended(sums(calls.x.data(), calls.y.data(), count));
      });
}

/// Faults of ranks of the CPU that call on streams.
template <class C>
void faults_of_streams() {
  // Rank 0 has asked for a message before, which rank 1 sends at the end.
  play<C>("does not call, where a receive waits on purpose",
          {Cause::not_called, victim, "has not called operation 4", 4},
          [](C& calls) -> Result<void> {
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
  play<C>("is queued behind other work of its stream",
          {Cause::queued, victim, "has not begun operation 4", 4}, [](C& calls) -> Result<void> {
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

template <class C>
void faults_over_tcp() {
  play<C>("does not call, over TCP", {Cause::not_called, victim, "has not called operation 4", 4},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
  play<C>("another count, over TCP", {Cause::other_count}, [](C& calls) -> Result<void> {
    if (calls.is_victim()) fires(calls.board);
    return calls.sum(calls.is_victim() ? 1000 : 400'000);
  });
}

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

template <class C>
void faults_of_programs() {
  play<C>("its functor does not return", {Cause::working, victim, "waits for nobody", 4},
          [](C& calls) -> Result<void> {
            return calls.sums(calls.x.data(), calls.y.data(), count,
                              Hangs{&calls.board, calls.is_victim()});
          });
  // The record of the wait stays while the functor runs.
  play<C>("its functor does not return, after a wait",
          {Cause::working, victim, "waits for nobody", 4}, [](C& calls) -> Result<void> {
            if (!calls.is_victim()) sleep_s(1);
            return calls.sums(calls.x.data(), calls.y.data(), count,
                              Hangs{&calls.board, calls.is_victim()});
          });
#if defined(CCL_TEST_LONG)
  fails<C>("calls abort", Errc::aborted, [](C& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      calls.comm.abort("the fault");
    }
    return calls.sum();
  });
  fails<C>("has a NaN, with Checked", Errc::not_a_number, [](C& calls) -> Result<void> {
    CCL_TRY(const auto sums, (Collective<AllReduce, Checked<Ring>, Simple>::create(calls.comm)));
    if (calls.is_victim()) {
      calls.x[77] = std::numeric_limits<float>::quiet_NaN();
      fires(calls.board);
    }
    return sums(calls.x.data(), calls.y.data(), count);
  });
#endif
}

}  // namespace ccl::test::faults
