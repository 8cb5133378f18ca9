// How long N processes take from the first fork to a communicator, a composition on it, and the end
// of the first all-reduce: the slowest rank's times. "ccl_start_up 2 8 64"; "ccl_start_up --hosts 4
// 8" pretends that the ranks are on 4 hosts, which then look at their topology and talk by sockets.
#include <ccl/ccl.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using InHost = ccl::Collective<ccl::AllReduce, ccl::Doubling, ccl::LL, ccl::ShmTransport>;
using OverHosts = ccl::Collective<ccl::AllReduce, ccl::Ring, ccl::Simple,
                                  ccl::AnyOf<ccl::ShmTransport, ccl::SocketTransport>>;

double now_s() {  // one clock for all processes of a machine
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What all ranks leave.
struct Board {
  std::atomic<int> ready{0}, failed{0};
  std::atomic<double> communicator_s{0}, composition_s{0}, reduced_s{0};
};
void raise_to(std::atomic<double>& most, double value) {
  double seen = most;
  while (seen < value && !most.compare_exchange_weak(seen, value)) {
  }
}

template <class FirstReduce>
ccl::Result<void> start(const ccl::UniqueId& id, int rank, int ranks, Board& board) {
  CCL_TRY(const auto comm, ccl::Communicator::create(id, rank, ranks));
  raise_to(board.communicator_s, now_s());
  CCL_TRY(const auto all_reduce, FirstReduce::create(comm));
  raise_to(board.composition_s, now_s());
  float x = 1;
  CCL_CHECK(all_reduce(&x, &x, 1));
  raise_to(board.reduced_s, now_s());
  if (x != float(ranks)) {
    return ccl::fail(ccl::Errc::internal, "the first all-reduce gave a wrong sum");
  }
  return comm.finalize();
}

bool measure(int ranks, int hosts) {
  void* shared =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return false;
  Board& board = *::new (shared) Board;
  const auto id = ccl::create_unique_id();
  if (!id) return std::fprintf(stderr, "%s\n", id.error().message().c_str()), false;
  const double began = now_s();
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (hosts > 0) {
        // Neighbours share a host.
        const int host = r * hosts / ranks;
        ::setenv("CCL_HOSTID", ("host " + std::to_string(host)).c_str(), 1);
      }
      const auto done =
          hosts > 0 ? start<OverHosts>(*id, r, ranks, board) : start<InHost>(*id, r, ranks, board);
      if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
      ::_exit(done ? 0 : 1);
    }
    pids.push_back(pid);
  }
  bool good = true;
  for (const pid_t pid : pids) {
    int status = 1;
    good = pid > 0 && ::waitpid(pid, &status, 0) == pid && status == 0 && good;
  }
  std::printf("%4d ranks: communicator %.3f s, composition %.3f s, first all-reduce %.3f s\n",
              ranks, board.communicator_s - began, board.composition_s - began,
              board.reduced_s - began);
  std::fflush(stdout);
  ::munmap(shared, sizeof(Board));
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  bool good = argc > 1;
  if (!good) std::fprintf(stderr, "usage: ccl_start_up [--hosts N] RANKS...\n");
  int hosts = 0;
  for (int i = 1; i < argc && good; ++i) {
    if (std::string_view(argv[i]) == "--hosts" && i + 1 < argc) {
      hosts = std::atoi(argv[++i]);
      continue;
    }
    good = std::atoi(argv[i]) > 0 && measure(std::atoi(argv[i]), hosts);
  }
  return good ? 0 : 1;
}
