// ccl_across_hosts [RANKS HOSTS [LARGEST [OPERATIONS]]]: compares `Auto`'s choice with each
// algorithm, on CPU ranks that act as several hosts (CCL_HOSTID) and use TCP between them.
//
// Prints the microseconds of a call among calls in a row: the median of the rounds. All sides take
// turns in a round, so that the scheduler affects all alike. Rooted operations change their root
// from call to call; otherwise a call would overlap the previous one. Every result is checked.
// Below each operation it prints the choice of Auto, and its time over that of the fastest.
#include <ccl/ccl.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

using Clock = std::chrono::steady_clock;
std::string only;  // operations, enclosed in commas; all if empty
constexpr Index smallest = 64;
constexpr int rounds = 9;

struct Buffers {
  Index each;  // elements, in the unit of a call's count
  std::vector<float> in, out;
};

/// Composition that takes turns with the others.
struct EdgeSide {
  std::string name;
  std::function<Result<void>(Buffers&, int call)> call;
  std::vector<double> us{};
};

double median(std::vector<double> us) {
  const auto middle = us.begin() + std::ptrdiff_t(us.size() / 2);
  std::nth_element(us.begin(), middle, us.end());
  return *middle;
}

/// Returns another root for each call, equal on all ranks.
int root_of(int call, int ranks) {
  return int((unsigned(call) * 2654435761u >> 8) % unsigned(ranks));
}

template <class Op, class C>
Result<void> run(const C& one, Buffers& b, int call, int ranks) {
  const float* in = b.in.data();
  if constexpr (std::is_same_v<Op, Broadcast>) {
    return one(in, b.out.data(), b.each, root_of(call, ranks));
  } else if constexpr (std::is_same_v<Op, Reduce>) {
    return one(in, b.out.data(), b.each, Sum{}, root_of(call, ranks));
  } else {
    return one(in, b.out.data(), b.each);
  }
}

template <class Op>
Result<void> check(const Buffers& b, const std::string& name, int ranks) {
  const auto filled =
      std::is_same_v<Op, ReduceScatter> ? std::ptrdiff_t(b.each) : std::ptrdiff_t(b.out.size());
  const float want = Op::reduces ? float(ranks) : 1.f;
  const auto wrong = [&](float x) { return x != want; };
  const auto at = std::find_if(b.out.begin(), b.out.begin() + filled, wrong);
  if (at == b.out.begin() + filled) return {};
  return fail(Errc::internal,
              fmt::format("{} by {} is wrong at {}", Op::name, name, at - b.out.begin()));
}

using Slowest = Collective<AllReduce, Ring, Simple>;

/// Returns the microseconds of a call on the slowest rank.
Result<double> time_calls(const Communicator& comm, const Slowest& slowest, EdgeSide& side,
                          Buffers& b, int calls) {
  CCL_CHECK(comm.barrier());
  const auto begin = Clock::now();
  for (int k = 0; k < calls; ++k) CCL_CHECK(side.call(b, k));
  double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  CCL_CHECK(slowest(&us, &us, 1, Max{}));
  return us;
}

template <class Op, class... Algos>
Result<void> compare(const Communicator& comm, Index largest) {
  if (!only.empty() && only.find(fmt::format(",{},", Op::name)) == only.npos) return {};
  const int ranks = comm.ranks();
  CCL_TRY(const auto slowest, Slowest::create(comm));
  std::vector<EdgeSide> sides;
  CCL_TRY(const auto chosen, Collective<Op>::create(comm));
  sides.push_back(
      {"Auto", [&chosen, ranks](Buffers& b, int k) { return run<Op>(chosen, b, k, ranks); }});
  const auto add = [&]<class Algo>(std::type_identity<Algo>) -> Result<void> {
    CCL_TRY(auto one, (Collective<Op, Algo, Simple>::create(comm)));
    sides.push_back(
        {Algo::name, [one, ranks](Buffers& b, int k) { return run<Op>(one, b, k, ranks); }});
    return {};
  };
  Result<void> made;
  ((made = made ? add(std::type_identity<Algos>{}) : made), ...);
  CCL_CHECK(made);
  std::vector<std::string> lines(sides.size() + 2);
  double worst = 0, logs = 0;
  int sizes = 0;
  for (Index bytes = smallest; bytes <= largest; bytes *= 8) {
    // The message is the larger buffer.
    const Index all = bytes / Index{sizeof(float)};
    const Index each =
        is_one_of<Op, AllReduce, Broadcast, Reduce> ? all : std::max(all / ranks, Index{1});
    const auto size = std::size_t(each == all ? all : each * ranks);
    Buffers b{each, std::vector<float>(size, 1.f), std::vector<float>(size, -1.f)};
    std::vector<int> calls;
    for (EdgeSide& side : sides) {
      side.us.clear();
      // Some compositions connect their wires at the first call with a root.
      for (int k = 0; Op::rooted && bytes == smallest && k < 8 * ranks; ++k) {
        CCL_CHECK(side.call(b, k));
      }
      std::fill(b.out.begin(), b.out.end(), -1.f);
      CCL_CHECK(side.call(b, 0));
      if (!std::is_same_v<Op, Reduce> || root_of(0, ranks) == comm.rank()) {
        CCL_CHECK((check<Op>(b, side.name, ranks)));
      }
      CCL_TRY(const double guess, time_calls(comm, slowest, side, b, bytes < 1 << 20 ? 4 : 1));
      calls.push_back(int(std::clamp(3e3 / guess, 1.0, 32.0)));
    }
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t s = 0; s < sides.size(); ++s) {
        CCL_TRY(const double us, time_calls(comm, slowest, sides[s], b, calls[s]));
        sides[s].us.push_back(us);
      }
    }
    double least = median(sides[0].us);
    for (std::size_t s = 0; s < sides.size(); ++s) {
      const double us = median(sides[s].us);
      least = std::min(least, us);
      lines[s] += fmt::format("{:>11.1f}", us);
    }
    // Auto's choice can be one of the sides: its time is the smaller of the two.
    const std::string name = chosen.plan(bytes).composition;
    const std::string taken = name.substr(0, name.find('/'));
    double took = median(sides[0].us);
    for (const EdgeSide& side : sides) {
      if (side.name == taken) took = std::min(took, median(side.us));
    }
    const auto dash = taken.find('-');
    lines[sides.size()] += fmt::format(
        "{:>11}", dash == taken.npos
                      ? taken
                      : "H" + taken.substr(dash, 2) + taken.substr(taken.rfind('-'), 2));
    lines[sides.size() + 1] += fmt::format("{:>11.2f}", took / least);
    worst = std::max(worst, took / least);
    logs += std::log(took / least);
    ++sizes;
  }
  if (comm.rank() != 0) return {};
  for (std::size_t s = 0; s < lines.size(); ++s) {
    const std::string name = s < sides.size()    ? sides[s].name
                             : s == sides.size() ? "Auto takes"
                                                 : "over the fastest";
    fmt::print("{:<15}{:<31}{}\n", Op::name, name, lines[s]);
  }
  fmt::print("{:<15}worst {:.2f}, geometric mean {:.2f}\n", Op::name, worst,
             std::exp(logs / sizes));
  std::fflush(stdout);
  return {};
}

Result<void> body(const UniqueId& id, int rank, int ranks, Index largest) {
  Config config;
  config.timeout_s = 30;
  config.device = Config::cpu;
  CCL_TRY(const auto comm, Communicator::create(id, rank, ranks, config));
  if (rank == 0) {
    std::string sizes;
    for (Index bytes = smallest; bytes <= largest; bytes *= 8) {
      sizes += fmt::format("{:>11}", bytes);
    }
    fmt::print("{:<15}{:<31}{}\n", "us", "bytes", sizes);
  }
  using Rails = Hierarchical<Ring, Ring>;
  using Leaders = Hierarchical<Tree, Tree>;
  CCL_CHECK((compare<AllReduce, Ring, Doubling, Tree, Rails, Leaders>(comm, largest)));
  CCL_CHECK((compare<AllGather, Ring, Bruck, Doubling, Pat, Rails>(comm, largest)));
  CCL_CHECK((compare<ReduceScatter, Ring, Pat, Halving, Rails>(comm, largest)));
  CCL_CHECK((compare<Broadcast, Ring, Pat, Tree, Rails, Leaders>(comm, largest)));
  CCL_CHECK((compare<Reduce, Ring, Pat, Tree, Rails, Leaders>(comm, largest)));
  CCL_CHECK((compare<AllToAll, Pairwise, Hierarchical<Pairwise, Pairwise>>(comm, largest)));
  return comm.finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, hosts = argc > 2 ? std::atoi(argv[2]) : 2;
  const Index largest = argc > 3 ? std::atol(argv[3]) : Index{1} << 20;
  if (argc > 4) only = fmt::format(",{},", argv[4]);
  const auto id = create_unique_id();
  if (!id || ranks < 1 || hosts < 1) {
    fmt::print(stderr, "ccl_across_hosts [RANKS HOSTS [LARGEST [OPERATIONS]]]\n");
    return 2;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    ::setenv("CCL_HOSTID", fmt::format("host{}", rank * hosts / ranks).c_str(), 1);
    const auto done = body(*id, rank, ranks, largest);
    if (!done) fmt::print(stderr, "{}\n", done.error().message());
    std::fflush(nullptr);
    ::_exit(done ? 0 : 1);
  }
  int failed = 0, how = 0;
  while (::wait(&how) > 0) failed |= how;
  return failed == 0 ? 0 : 1;
}
