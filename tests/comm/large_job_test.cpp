// A job of many ranks, each a process: what its creation takes, and its first calls.
//
// CCL_TEST_LONG asks for 1,024 ranks on 32 hosts.
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/io/fd.hpp"
#include "support/catch.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;
using ccl::detail::Fd;

namespace {
#ifdef CCL_TEST_LONG
constexpr int ranks = 1024, per_host = 32;
#else
constexpr int ranks = 80, per_host = 8;
#endif
constexpr double allowed_mib = 8;  // of a rank
constexpr int max_roots = 4;
constexpr double limit_s = ranks > 100 ? 600 : 60;
// Of a rank, on average, until all are created: 2.0 connections, and 99 segments among 80 ranks and
// 150 among 256, as gathers go up and down a tree.
constexpr double allowed_connections = 3, allowed_segments = ranks > 100 ? 450 : 150;

using Over = AnyOf<ShmTransport, SocketTransport>;
using Sums = Collective<AllReduce, Tree, Simple, Over>;
using Pairs = Collective<SendRecv, Pairwise, Simple, Over>;
using ToAll = Collective<AllToAll, Hierarchical<Pairwise, Pairwise>, Simple, Over>;

/// MiB of this process: its part of what it shares, too.
double mib_of_process() {
  std::ifstream in{"/proc/self/smaps_rollup"};
  std::string word;
  while (in >> word) {
    double kib = 0;
    if (word == "Pss:" && in >> kib) return kib / 1024;
  }
  return 0;
}

/// A counter of TCP in the network of this process, such as "ActiveOpens".
double tcp_count(const std::string& name) {
  std::ifstream in{"/proc/self/net/snmp"};
  std::string names, values;
  while (std::getline(in, names) && std::getline(in, values)) {
    if (!names.starts_with("Tcp:")) continue;
    std::istringstream of_names{names}, of_values{values};
    for (std::string one, value; of_names >> one && of_values >> value;) {
      if (one == name) return std::stod(value);
    }
  }
  return 0;
}

/// Steps of the job, each with the time at which the last rank ended it.
enum Step { created, barrier_done, sums_done, message_done, all_to_all_done, step_count };
constexpr const char* step_names[] = {"created", "barrier", "all-reduce", "message", "all-to-all"};
struct Board {
  std::array<std::atomic<double>, step_count> at{};
  std::array<std::atomic<double>, step_count> mib{};  // of a rank at most, after the step
  // What the creation takes of a network that the job has alone: times say nothing where so many
  // processes share two cores.
  std::atomic<bool> own_network{false};
  std::atomic<double> connections{0}, segments{0};
  std::atomic<int> max_files{0};
  std::array<UniqueId, max_roots> ids;
  std::atomic<int> has_ids{0};
  std::atomic<bool> ended{false};
  char said[ranks][200] = {};
};
template <class T>
void raise_to(std::atomic<T>& most, T value) {
  T seen = most;
  while (seen < value && !most.compare_exchange_weak(seen, value)) {
  }
}

/// One rank's part of the job: the steps in turn.
Result<void> take_part(const Communicator& comm, const std::function<void(Step)>& reached) {
  const auto right = [](bool is, const char* what) -> Result<void> {
    if (is) return {};
    return fail(Errc::internal, what);
  };
  const int me = comm.rank();
  reached(created);
  CCL_CHECK(comm.barrier());
  reached(barrier_done);
  CCL_TRY(const auto sums, Sums::create(comm));
  float x = float(me), y = 0;
  CCL_CHECK(sums(&x, &y, 1));
  CCL_CHECK(right(y == float(ranks * (ranks - 1) / 2), "wrong sum"));
  reached(sums_done);
  CCL_TRY(const auto pairs, Pairs::create(comm));
  const int far = (me + ranks / 2) % ranks;
  int got = -1;
  CCL_CHECK(pairs(&me, 1, far, &got, 1, far));
  CCL_CHECK(right(got == far, "wrong message"));
  reached(message_done);
  CCL_TRY(const auto to_all, ToAll::create(comm));
  std::vector<Index> in(ranks), out(ranks, -1);
  for (int p = 0; p < ranks; ++p) in[std::size_t(p)] = Index{me} * ranks + p;
  CCL_CHECK(to_all(in.data(), out.data(), 1));
  for (int p = 0; p < ranks; ++p) {
    CCL_CHECK(right(out[std::size_t(p)] == Index{p} * ranks + me, "wrong exchange"));
  }
  reached(all_to_all_done);
  return comm.barrier();  // no rank ends while another measures its part of what they share
}

/// Runs the job, each rank and each root in a process of its own. Returns the first failure that a
/// rank has said, or an empty text.
std::string run_job(Board& board, int roots) {
  std::vector<pid_t> makers;
  for (int n = 0; n < roots; ++n) {
    makers.push_back(start_process([&, n] {
      const auto id = create_unique_id();
      if (!id) return 1;
      board.ids[std::size_t(n)] = *id;
      ++board.has_ids;
      return wait_until([&] { return board.ended.load(); }, limit_s) ? 0 : 1;
    }));
  }
  if (!wait_until([&] { return board.has_ids == roots; }, 60)) return "an id is missing";
  const std::span<const UniqueId> ids{board.ids.data(), std::size_t(roots)};
  const auto began = Clock::now();
  const auto reached = [&](Step step) {
    raise_to(board.at[step], seconds(Clock::now() - began));
    raise_to(board.mib[step], mib_of_process());
    if (step != created) return;
    raise_to(board.connections, tcp_count("ActiveOpens"));
    raise_to(board.segments, tcp_count("InSegs"));
  };
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&, r] {
      ::setenv("CCL_HOSTID", fmt::format("host{}", r / per_host).c_str(), 1);
      // So many processes wait for a core longer than a host that is up takes to answer.
      ::setenv("CCL_BOOTSTRAP_KEEPALIVE", "600", 1);
      const auto work = [&]() -> Result<void> {
        Config config;
        config.timeout_s = config.init_timeout_s = limit_s;
        CCL_TRY(const auto comm, Communicator::create(ids, r, ranks, config));
        CCL_CHECK(take_part(comm, reached));
        raise_to(board.max_files, int(Holdings::of_this_process().files));
        return comm.finalize();
      };
      const auto done = work();
      if (!done) std::strncpy(board.said[r], done.error().message().c_str(), 199);
      return done ? 0 : 1;
    }));
  }
  const bool all_ended = reap(pids, limit_s);
  board.ended = true;
  const bool ended = reap(makers, 10);
  for (const auto& said : board.said) {
    if (said[0] != 0) return said;  // the others follow from it
  }
  return all_ended && ended ? "" : "a process failed or did not end";
}

/// Gives this process a network of its own, with a loopback and `count` ports for sockets that name
/// none. Returns false where it may not.
bool enter_network(int first, int count) {
  if (::unshare(CLONE_NEWNET) != 0) return false;
  std::ofstream range{"/proc/sys/net/ipv4/ip_local_port_range"};
  range << fmt::format("{} {}", first, first + count - 1) << std::flush;
  const Fd any{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  return range.good() && any && ::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0;
}

/// Runs the job as `run_job` does, in a network of its own if this process may make one.
std::string run_in_network(Board& board, int roots, int first_port, int ports) {
  Shared<std::array<char, 256>> said;
  const pid_t job = start_process([&] {
    board.own_network = enter_network(first_port, ports);
    const std::string problem = run_job(board, roots);
    problem.copy(said->data(), said->size() - 1);
    return problem.empty() ? 0 : 1;
  });
  int status = 0;
  if (::waitpid(job, &status, 0) != job) return "the job was lost";
  if (said->front() != 0) return said->data();
  return status == 0 ? "" : fmt::format("the job ended with status {}", status);
}
constexpr const char* no_network = "this process may not make a network, whose work is counted";
}  // namespace

TEST_CASE("many ranks create a communicator, meet, reduce, send far and exchange") {
  const int roots = GENERATE(1, max_roots);
  Shared<Board> board;
  CHECK(run_in_network(*board, roots, 32768, 28232) == "");
  std::string times;
  for (int s = 0; s < step_count; ++s) {
    times += fmt::format(", {} {:.1f} s, {:.1f} MiB", step_names[s],
                         board->at[std::size_t(s)].load(), board->mib[std::size_t(s)].load());
  }
  const double connections = board->connections / ranks, segments = board->segments / ranks;
  std::cout << fmt::format(
      "{} ranks on {} hosts, {} roots; until the last rank has, and of a rank at most{}; {} "
      "files; to create a rank {:.1f} connections, {:.1f} segments\n",
      ranks, ranks / per_host, roots, times, board->max_files.load(), connections, segments);
  for (const auto& mib : board->mib) {
    CHECK(mib > 0);
    CHECK(mib < allowed_mib);
  }
  if (!board->own_network) return skip_part(no_network);
  CHECK(connections > 1);
  CHECK(connections < allowed_connections);
  CHECK(segments < allowed_segments);
}

#ifndef CCL_TEST_LONG  // once is enough
TEST_CASE("a machine has ports for all ranks, not for all edges between them") {
  // Each rank receives from the 9 others of its rail, and more for other compositions. The kernel
  // takes half of the ports for listening sockets first.
  constexpr int ports = 9 * ranks;
  Shared<Board> board;
  const std::string problem = run_in_network(*board, 1, 40000, ports);
  if (!board->own_network) return skip("this process may not make a network");
  CHECK(problem == "");
}
#endif
