// Ranks that stay when their neighbors on the ring have departed are still notified of each other.
#include "bootstrap/staying_ranks.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/exiting.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Ranks 1 and 3 of four exit, so that the ring is cut on both sides of ranks 0 and 2. Then `end`
/// ends rank 2. Returns what rank 0 learns.
std::string after_second_end(void (*end)(const Communicator&)) {
  Words words;
  CHECK(exiting(
      4,
      [&](const Communicator& comm) {
        if (!comm.barrier()) return 1;
        if (comm.rank() % 2 == 1) return 0;
        sleep_s(2);  // connects meanwhile
        if (!comm.status()) return 2;
        if (comm.rank() == 2) {
          sleep_s(1);  // the other has looked at its status
          end(comm);
          return 0;
        }
        (void)wait_until([&] { return !comm.status(); }, 10);
        words.keep(0, comm.status());
        return 0;
      },
      2));
  return words.of(0);
}

}  // namespace

TEST_CASE("a rank that is killed is reported to one behind departed neighbors") {
  const std::string text = after_second_end([](const Communicator&) { ::raise(SIGKILL); });
  INFO(text);
  CHECK(text.find("rank 2 on ") != std::string::npos);
}

TEST_CASE("an abort reaches a rank behind departed neighbors") {
  const std::string text = after_second_end([](const Communicator& comm) { comm.abort("mine"); });
  INFO(text);
  CHECK(text.find("mine") != std::string::npos);
}

TEST_CASE("a departure reaches a rank behind departed neighbors") {
  CHECK(exiting(4, [&](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() % 2 == 1) return 0;
    if (comm.rank() == 2) sleep_s(2);
    if (comm.rank() == 2) return comm.status() ? 0 : 2;
    const auto& status = detail::Access::state(comm)->status;
    if (!wait_until([&] { return status.has_departed(2); }, 20)) return 3;
    return comm.status() && comm.finalize() ? 0 : 4;
  }));
}

TEST_CASE("ranks behind departed neighbors that leave at once learn of each other's end") {
  CHECK(exiting(6, [&](const Communicator& comm) {
    if (!comm.barrier()) return 1;
    if (comm.rank() != 0) return 0;
    const auto& status = detail::Access::state(comm)->status;
    for (int r = 1; r < 6; ++r) {
      if (!wait_until([&] { return status.has_departed(r); }, 20)) return 3;
    }
    return comm.status() && comm.finalize() ? 0 : 4;
  }));
}

TEST_CASE("a rank learns of many that depart at once as fast as of one") {
  constexpr int ranks = 24;  // one after another took 0.5 s each
  const IdElsewhere id;
  const auto create = [&](int rank) {
    return *new Communicator{Communicator::create(id.get(), rank, ranks, on_cpu()).value()};
  };
  const pid_t departs = start_process([&]() -> int {
    ::alarm(100);
    std::vector<std::thread> threads;
    std::atomic<bool> good{true};
    for (int r = 1; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        if (!create(r).barrier()) good = false;
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::exit(good ? 0 : 1);
  });
  const pid_t stays = start_process([&]() -> int {
    ::alarm(100);
    const Communicator& comm = create(0);
    if (!comm.barrier()) return 1;
    const auto& status = detail::Access::state(comm)->status;
    if (!wait_until([&] { return status.any_departed(); }, 30)) return 2;
    const auto all_departed = [&] {
      for (int r = 1; r < ranks; ++r) {
        if (!status.has_departed(r)) return false;
      }
      return true;
    };
    if (!wait_until(all_departed, 5)) return 3;
    return comm.status() && comm.finalize() ? 0 : 4;
  });
  CHECK(reap({departs, stays}, 100));
}
