#pragma once

// Faults of calls and of processes, for ranks of any type.
#include "support/fault_calls.hpp"

namespace ccl::test::faults {

/// Calls that come after one that differs between ranks. That one ends where it takes as many steps
/// on all ranks, which large slots lead to, or where it takes the steps of the next ones, too.
template <class C>
Result<void> goes_on(C& calls) {
  for (int n = 0; n < 8; ++n) CCL_CHECK(calls.sum());
  return {};
}

template <class C>
void faults_of_calls() {
  play<C>("does not call", {Cause::not_called, victim, "has not called operation 4", 4},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
  play<C>("another count", {Cause::other_count}, [](C& calls) -> Result<void> {
    if (!calls.is_victim()) {
      CCL_CHECK(calls.sum(400'000));
      return goes_on(calls);
    }
    fires(calls.board);
    CCL_CHECK(calls.sum(1000));
    wait_for_the_end(calls.board);
    return {};
  });
#if defined(CCL_TEST_LONG)  // the short test of diagnose() has these
  play<C>("another type", {Cause::other_type}, [](C& calls) -> Result<void> {
    if (!calls.is_victim()) {
      CCL_CHECK(calls.sum(400'000));
      return goes_on(calls);
    }
    fires(calls.board);
    CCL_CHECK(calls.ended(calls.sums(calls.dx.data(), calls.dy.data(), 400'000)));
    wait_for_the_end(calls.board);
    return {};
  });
  // The operation itself completes, with a wrong result.
  play<C>("another reduction", {Cause::other_reduction, victim, "float, max"},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) {
              CCL_CHECK(calls.sum());
              return calls.sum();
            }
            CCL_CHECK(calls.ended(calls.sums(calls.x.data(), calls.y.data(), count, Max{})));
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
  play<C>("another root", {Cause::other_root, 0, "root 2"}, [](C& calls) -> Result<void> {
    const bool first = calls.comm.rank() == 0;
    if (first) fires(calls.board);
    CCL_CHECK(calls.ended(calls.copies(calls.x.data(), calls.y.data(), 400'000, first ? 2 : 0)));
    if (!first) return calls.sum();
    wait_for_the_end(calls.board);
    return {};
  });
  play<C>("two operations in another order", {Cause::other_operation},
          [](C& calls) -> Result<void> {
            const auto other = [&] {
              return calls.ended(calls.ll_sums(calls.x.data(), calls.y.data(), count));
            };
            if (!calls.is_victim()) {
              CCL_CHECK(calls.sum());
              return other();
            }
            fires(calls.board);
            CCL_CHECK(other());
            return calls.sum();
          });
  play<C>("another operation", {Cause::other_operation, victim, "called broadcast"},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            return calls.ended(calls.copies(calls.x.data(), calls.y.data(), count, 0));
          });
  play<C>("leaves out an operation", {Cause::other_operation, victim, "as operation 4"},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) fires(calls.board);
            if (!calls.is_victim()) CCL_CHECK(calls.sum());
            return calls.ended(calls.ll_sums(calls.x.data(), calls.y.data(), count));
          });
  play<C>("a barrier in place of an operation", {Cause::other_operation, victim, "called barrier"},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.sum();
            fires(calls.board);
            return calls.comm.barrier();
          });
  play<C>("does not call a barrier",
          {Cause::not_called, victim, "has not called operation 4 (barrier)", 4},
          [](C& calls) -> Result<void> {
            if (!calls.is_victim()) return calls.comm.barrier();
            fires(calls.board);
            wait_for_the_end(calls.board);
            return {};
          });
  play<C>("sends no message", {Cause::not_called, victim, "rank 0 waits for it at step 0", 4},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) fires(calls.board);
            if (calls.comm.rank() == 0)
              return calls.ended(calls.messages.recv(calls.y.data(), count, victim));
            return {};
          });
  play<C>("a circle of receives", {Cause::circle, -1, "wait for each other in a circle", 4},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) fires(calls.board);
            const int next = (calls.comm.rank() + 1) % ranks;
            CCL_CHECK(calls.ended(calls.messages.recv(calls.y.data(), count, next)));
            return calls.ended(calls.messages.send(calls.x.data(), count, (next + 2) % ranks));
          });
#endif
}

/// `Remote`: the same ranks over TCP.
template <class C, class Remote>
void faults_of_processes() {
  play<C>("is stopped", {Cause::no_answer, victim, "does not answer"},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) {
              fires(calls.board);
              raise(SIGSTOP);
            }
            return calls.sum();
          });
#if defined(CCL_TEST_LONG)
  play<Remote>("is stopped, over TCP", {Cause::no_answer, victim, "does not answer"},
               [](Remote& calls) -> Result<void> {
                 if (calls.is_victim()) {
                   fires(calls.board);
                   raise(SIGSTOP);
                 }
                 return calls.sum();
               });
#endif
  fails<C>("is killed", Errc::peer_lost, [](C& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      raise(SIGKILL);
    }
    return calls.sum();
  });
#if defined(CCL_TEST_LONG)
  fails<Remote>("is killed, over TCP", Errc::peer_lost, [](Remote& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      raise(SIGKILL);
    }
    return calls.sum();
  });
  fails<C>("ends without finalize", Errc::peer_lost, [](C& calls) -> Result<void> {
    if (calls.is_victim()) {
      fires(calls.board);
      std::_Exit(0);
    }
    return calls.sum();
  });
  play<C>("is stopped, the others are in a barrier", {Cause::no_answer, victim, "does not answer"},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) {
              fires(calls.board);
              raise(SIGSTOP);
            }
            return calls.comm.barrier();
          });
  play<C>("is stopped, the others are in split", {Cause::no_answer, victim, "does not answer"},
          [](C& calls) -> Result<void> {
            if (calls.is_victim()) {
              fires(calls.board);
              raise(SIGSTOP);
            }
            CCL_TRY(const auto part, calls.comm.split(0, 0));
            return {};
          });
#endif
}

}  // namespace ccl::test::faults
