// Edges of one engine share completion queues, a channel and an epoll set, on emulated devices.
#include "transport/ib/completions.hpp"

#include <ccl/transport/ib.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/network_events.hpp"
#include "support/fake_verbs.hpp"
#include "support/two_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

/// Ranks with an engine each, and an edge between every two of them in both directions.
struct AllPairs {
  struct Edge {
    std::optional<Connection> out, in;
  };
  std::deque<Lent> ranks;
  std::map<std::pair<int, int>, Edge> edges;  // by sender and receiver

  AllPairs(int count, WireShape shape) : ranks(std::size_t(count)) {
    for (int from = 0; from < count; ++from) {
      for (int to = 0; to < count; ++to) {
        if (from != to) edges[{from, to}] = connected(from, to, shape);
      }
    }
  }
  Lent& at(int rank) { return ranks[std::size_t(rank)]; }
  Edge connected(int from, int to, WireShape shape) {
    const auto id = 10ull << 40 | std::uint64_t(from) << 20 | std::uint64_t(to);
    const PeerInfo sends = info_of(from), receives = info_of(to);
    auto receiver =
        IbTransport::setup(at(to).context, edge_of(sends, receives, EdgeSide::receiver, shape, id));
    REQUIRE(receiver.has_value());
    auto sender =
        IbTransport::setup(at(from).context, edge_of(sends, receives, EdgeSide::sender, shape, id));
    REQUIRE(sender.has_value());
    auto out = sender->connect(receiver->handshake());
    INFO((out ? "" : out.error().message()));
    REQUIRE(out.has_value());
    return {std::move(*out), *receiver->connect(sender->handshake())};
  }
  /// Posts steps on the wires of one edge, for which there is room. No lane helps the proxies.
  std::string push(int from, int to, Word steps, Word seed = 1) {
    std::string problem;
    for (const Wire& wire : edges.at({from, to}).out->wires) {
      problem += test::push(wire, steps, seed, &at(from).status).problem;
    }
    at(from).proxy.wake();
    return problem;
  }
  std::string pull(int from, int to, Word steps, Word seed = 1) {
    std::string problem;
    for (const Wire& wire : edges.at({from, to}).in->wires) {
      problem += test::pull(wire, steps, seed, &at(to).status).problem;
    }
    at(to).proxy.wake();  // it reports the free slots
    return problem;
  }
  /// Steps cross all edges.
  void check_all(Word steps, Word seed) {
    for (const auto& [ends, edge] : edges) {
      CHECK(push(ends.first, ends.second, steps, seed) == "");
    }
    for (const auto& [ends, edge] : edges) {
      INFO("from " << ends.first << " to " << ends.second);
      CHECK(pull(ends.first, ends.second, steps, seed) == "");
    }
    for (const Lent& rank : ranks) {
      CHECK(rank.status.ok());
      if (!rank.status.ok()) CHECK(rank.status.result().error().message() == "");
    }
  }
  /// The thread of this rank's engine has nothing to do and blocks.
  void await_sleep(int rank) {
    const auto sleeps = [&] { return at(rank).proxy.counters().sleeps; };
    Word seen = sleeps();
    const auto quiet = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      return std::exchange(seen, sleeps()) == seen;
    };
    REQUIRE(wait_until(quiet));
  }
};

double thread_cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e6 + double(now.tv_nsec) * 1e-3;
}

long descriptors() {
  return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"},
                       std::filesystem::directory_iterator{});
}

}  // namespace

TEST_CASE("all edges of an engine share a completion queue and a channel") {
  FakeVerbs fabric{1};
  const int ranks = GENERATE(2, 5);
  {
    const AllPairs two{2, {1, 4, 4096}};  // what the process opens once is open
  }
  REQUIRE(wait_until([&] { return fabric.held() == 0; }));
  const long before = descriptors();
  {
    AllPairs job{ranks, {1, 4, 4096}};
    CHECK(fabric.queues == ranks);
    CHECK(fabric.channels == ranks);
    // Of a rank: an end's control socket; thread, epoll sets of the engine and of the edges,
    // channel, and the socket at which callers arrive. The devices are open once.
    CHECK(descriptors() - before <= ranks * (2 * (ranks - 1) + 6) + 2);
    job.check_all(4, 1);
  }
  CHECK(fabric.held() == 0);
}

TEST_CASE("few completion queues have room for whatever fails at once") {
  FakeVerbs fabric{1};
  fabric.faults.max_at_once = GENERATE(0, 1);
  constexpr int ranks = 6;
  AllPairs job{ranks, {3, 8, 256}};
  CHECK(fabric.queues > ranks);
  CHECK(fabric.queues <= ranks * 3);
  CHECK(fabric.channels == ranks);
  job.check_all(8, 1);
  for (int round = 0; round < 2; ++round) {
    for (const auto& [ends, edge] : job.edges) {
      CHECK(job.push(ends.first, ends.second, 3) == "");
    }
    int broken = 0;
    while (fabric.break_one()) ++broken;
    CHECK(broken > 0);
    for (const auto& [ends, edge] : job.edges) {
      CHECK(job.pull(ends.first, ends.second, 3) == "");
    }
  }
  job.check_all(8, 2);
  CHECK(fabric.faults.overruns == 0);
}

TEST_CASE("completions of a queue pair that is gone do not reach one with its number") {
  FakeVerbs fabric{1};
  fabric.faults.reuse_numbers = true;
  fabric.faults.max_at_once = GENERATE(1, 5, 0);
  // The sender has a receive for each of 128 notices, which all fail, and looks at 32 at most.
  AllPairs job{3, {1, 64, 128}};
  job.check_all(8, 1);
  const auto retries = detail::network_events.retries.load();
  REQUIRE(fabric.break_one());  // the oldest: of the edge from rank 0 to rank 1
  job.check_all(8, 2);
  job.check_all(64, 3);
  CHECK(fabric.faults.reused_numbers > 0);
  CHECK(detail::network_events.retries.load() - retries <= 2);  // of one failure, by either end
}

TEST_CASE("all edges of a completion queue that cannot be read get another") {
  FakeVerbs fabric{GENERATE(1, 2)};
  AllPairs job{4, {1, 4, 4096}};
  job.check_all(4, 1);
  const auto retries = detail::network_events.retries.load();
  {
    const std::lock_guard lock{fabric.mutex};
    fabric.faults.fail_poll_at = fabric.faults.polls + 1;
  }
  job.check_all(4, 2);
  job.check_all(4, 3);
  CHECK(fabric.faults.failed_polls == 1);
  CHECK(detail::network_events.retries.load() - retries >= 3);  // of the sending ends at least
}

TEST_CASE("an engine that sleeps notices all edges and still does after the first has gone") {
  FakeVerbs fabric{GENERATE(1, 2)};
  AllPairs job{4, {2, 4, 4096}};
  job.check_all(4, 1);
  std::vector<std::pair<int, int>> order;
  for (const auto& [ends, edge] : job.edges) order.push_back(ends);
  for (const auto& [from, to] : order) {
    job.edges.erase({from, to});
    for (const auto& [ends, edge] : job.edges) {
      job.await_sleep(ends.second);
      CHECK(job.push(ends.first, ends.second, 1) == "");
      CHECK(job.pull(ends.first, ends.second, 1) == "");
      if (from != 0) break;  // one of them
    }
  }
  CHECK(wait_until([&] { return fabric.held() == 0; }));
}

TEST_CASE("edges that end and begin leave the others alone") {
  FakeVerbs fabric{2};
  fabric.faults.reuse_numbers = GENERATE(false, true);
  fabric.faults.delay_polls = GENERATE(0, 10);
  const WireShape shape{2, 4, 1024};
  AllPairs job{3, shape};
  std::string problems;
  std::thread others{[&] {
    for (int n = 0; n < 60 && problems.empty(); ++n) {
      problems += job.push(1, 2, 2);
      problems += job.pull(1, 2, 2);
    }
  }};
  for (int n = 0; n < 6; ++n) {
    CHECK(job.push(0, 1, 3) == "");
    CHECK(job.pull(0, 1, 3) == "");
    job.edges.at({0, 1}) = {};
    job.edges.at({0, 1}) = job.connected(0, 1, shape);
  }
  others.join();
  CHECK(problems == "");
  job.check_all(4, 9);
}

TEST_CASE("completion queues and descriptors of a rank, and the time of a small step",
          "[.measure]") {
  FakeVerbs fabric{1};
  { const AllPairs two{2, {1, 4, 4096}}; }
  for (const int ranks : {2, 8, 16}) {
    REQUIRE(wait_until([&] { return fabric.held() == 0; }));
    const long before = descriptors();
    AllPairs job{ranks, {1, 8, 4096}};
    fmt::print("{} ranks: {:.1f} queues, {:.1f} channels, {:.1f} descriptors of a rank", ranks,
               double(fabric.queues) / ranks, double(fabric.channels) / ranks,
               double(descriptors() - before) / ranks);
    // One thread drives both ends, so that its CPU time is that of the trip, whatever else runs.
    const auto cross = [&](int from, int to) {
      const Wire& out = job.edges.at({from, to}).out->wires[0];
      const Wire& in = job.edges.at({from, to}).in->wires[0];
      CHECK(test::push(out, 1, 1).problem == "");
      CHECK(wait_until([&] {
        (void)job.at(from).proxy.help(true);
        (void)job.at(to).proxy.help(true);
        return detail::HostMemory::load_acquire(in.posted) > *in.received;
      }));
      CHECK(test::pull(in, 1, 1).problem == "");
    };
    double best_us = 1e9;
    for (int turn = 0; turn < 20; ++turn) {
      constexpr int count = 200;
      const double began = thread_cpu_us();
      for (int n = 0; n < count; ++n) {
        cross(0, 1);
        cross(1, 0);
      }
      best_us = std::min(best_us, (thread_cpu_us() - began) / count);
    }
    fmt::print("; a round trip takes {:.2f} us of CPU\n", best_us);
  }
}
