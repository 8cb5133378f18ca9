// ccl_across_hosts [RANKS HOSTS [LARGEST [OPERATION]]]: algorithms beside each other on CPU ranks
// that take themselves to be on several hosts (CCL_HOSTID), and so go through TCP between them.
// Microseconds of a call, the median of several; every result is checked.
#include <ccl/ccl.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

using Clock = std::chrono::steady_clock;
std::string only;  // operation; all if empty
constexpr Index smallest = 64;

/// Calls of one composition at one size, by the slowest rank; the first rank prints.
template <class Op, class Algo>
Result<void> measure(const Communicator& comm, Index largest) {
  if (!only.empty() && only != Op::name) return {};
  using C = Collective<Op, Algo, Simple, DefaultTransport>;
  CCL_TRY(const auto call, C::create(comm));
  CCL_TRY(const auto slowest, (Collective<AllReduce, Ring, Simple>::create(comm)));
  const Index ranks = comm.ranks();
  std::string line = fmt::format("{:<15}{:<24}", Op::name, Algo::name);
  for (Index bytes = smallest; bytes <= largest; bytes *= 16) {
    // The message is the larger buffer.
    const Index all = bytes / Index{sizeof(float)};
    const Index each = std::is_same_v<Op, AllReduce> ? all : all / ranks;
    std::vector<float> in(std::size_t(all), 1.f), out(std::size_t(all), -1.f);
    const int calls = bytes < 1 << 20 ? 41 : 9;
    std::vector<double> us;
    for (int k = 0; k < calls + 2; ++k) {
      CCL_CHECK(comm.barrier());
      const auto begin = Clock::now();
      CCL_CHECK(call(in.data(), out.data(), each));
      double took = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
      CCL_CHECK(slowest(&took, &took, 1, Max{}));
      if (k >= 2) us.push_back(took);
    }
    const Index filled = std::is_same_v<Op, ReduceScatter> ? each : each * (all / each);
    const float want = Op::reduces ? float(ranks) : 1.f;
    for (Index i = 0; i < filled; ++i) {
      if (out[std::size_t(i)] != want) {
        return fail(Errc::internal, fmt::format("{} is wrong at {}", call.name(), i));
      }
    }
    std::nth_element(us.begin(), us.begin() + calls / 2, us.end());
    line += fmt::format("{:>12.1f}", us[std::size_t(calls / 2)]);
  }
  if (comm.rank() == 0) fmt::print("{}\n", line);
  std::fflush(stdout);
  return {};
}

/// What `Auto` takes at each size.
template <class Op>
Result<void> say_choice(const Communicator& comm, Index largest) {
  if (!only.empty() && only != Op::name) return {};
  CCL_TRY(const auto chosen, Collective<Op>::create(comm));
  std::string line = fmt::format("{:<15}{:<18}", Op::name, "Auto takes");
  for (Index bytes = smallest; bytes <= largest; bytes *= 16) {
    std::string name = chosen.plan(bytes).composition;
    line += fmt::format("{:>14}", name.substr(0, name.find("/Simple")).substr(0, 13));
  }
  if (comm.rank() == 0) fmt::print("{}\n", line);
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
    for (Index bytes = smallest; bytes <= largest; bytes *= 16)
      sizes += fmt::format("{:>12}", bytes);
    fmt::print("{:<15}{:<24}{}\n", "us", "bytes", sizes);
  }
  using Rails = Hierarchical<Ring, Ring>;
  using Leaders = Hierarchical<Tree, Tree>;
  CCL_CHECK((say_choice<AllReduce>(comm, largest)));
  CCL_CHECK((measure<AllReduce, Ring>(comm, largest)));
  CCL_CHECK((measure<AllReduce, Doubling>(comm, largest)));
  CCL_CHECK((measure<AllReduce, Tree>(comm, largest)));
  CCL_CHECK((measure<AllReduce, Rails>(comm, largest)));
  CCL_CHECK((measure<AllReduce, Leaders>(comm, largest)));
  CCL_CHECK((say_choice<AllGather>(comm, largest)));
  CCL_CHECK((measure<AllGather, Ring>(comm, largest)));
  CCL_CHECK((measure<AllGather, Bruck>(comm, largest)));
  CCL_CHECK((measure<AllGather, Pat>(comm, largest)));
  CCL_CHECK((measure<AllGather, Rails>(comm, largest)));
  CCL_CHECK((say_choice<ReduceScatter>(comm, largest)));
  CCL_CHECK((measure<ReduceScatter, Ring>(comm, largest)));
  CCL_CHECK((measure<ReduceScatter, Pat>(comm, largest)));
  CCL_CHECK((measure<ReduceScatter, Rails>(comm, largest)));
  CCL_CHECK((say_choice<AllToAll>(comm, largest)));
  CCL_CHECK((measure<AllToAll, Pairwise>(comm, largest)));
  CCL_CHECK((measure<AllToAll, Hierarchical<Pairwise, Pairwise>>(comm, largest)));
  return comm.finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 4, hosts = argc > 2 ? std::atoi(argv[2]) : 2;
  const Index largest = argc > 3 ? std::atol(argv[3]) : Index{1} << 20;
  if (argc > 4) only = argv[4];
  const auto id = create_unique_id();
  if (!id || ranks < 1 || hosts < 1) {
    fmt::print(stderr, "ccl_across_hosts [RANKS HOSTS [LARGEST [OPERATION]]]\n");
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
