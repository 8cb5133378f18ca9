// Start-up time of N processes on the slowest rank. It counts from the first fork to a
// communicator, a composition on it, and the end of the first and of the second call. It also
// prints the additional descriptors (sockets, files) of one rank, at most.
//
//   ccl_start_up 2 8 64
//   ccl_start_up --hosts 4 8        simulates 4 hosts, with topology and sockets
//   --what tree | pair | all_to_all | auto
// `tree` is all_reduce by Tree, `pair` a message to and from one partner, `auto` all_reduce by
// Auto.
#include <ccl/ccl.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Over = ccl::AnyOf<ccl::ShmTransport, ccl::SocketTransport>;
using InHost = ccl::Collective<ccl::AllReduce, ccl::Doubling, ccl::LL, ccl::ShmTransport>;
template <class Algo>
using Sums = ccl::Collective<ccl::AllReduce, Algo, ccl::Simple, Over>;
using Pairs = ccl::Collective<ccl::SendRecv, ccl::Pairwise, ccl::Simple, Over>;
using ToAll = ccl::Collective<ccl::AllToAll, ccl::Pairwise, ccl::Simple, Over>;
using Chosen = ccl::Collective<ccl::AllReduce>;

double now_s() {  // one clock for all processes of a machine
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int descriptors() {
  int found = 0;
  if (DIR* dir = ::opendir("/proc/self/fd")) {
    while (::readdir(dir) != nullptr) ++found;
    ::closedir(dir);
  }
  return found;
}

/// Results of all ranks.
struct Board {
  std::atomic<double> communicator_s{0}, composition_s{0}, first_s{0}, second_s{0};
  std::atomic<int> at_create{0}, at_call{0};
  std::atomic<ccl::Index> memory{0};
};
template <class T>
void raise_to(std::atomic<T>& most, T value) {
  T seen = most;
  while (seen < value && !most.compare_exchange_weak(seen, value)) {
  }
}

ccl::Result<void> wrong(bool right) {
  if (right) return {};
  return ccl::fail(ccl::Errc::internal, "the first call gave a wrong result");
}
template <class Call>
  requires requires(const Call& call, float x) { call(&x, &x, 1, ccl::Sum{}); }
ccl::Result<void> call_once(const Call& call, int, int ranks) {
  float x = 1;
  CCL_CHECK(call(&x, &x, 1));
  return wrong(x == float(ranks));
}
ccl::Result<void> call_once(const Pairs& call, int rank, int ranks) {
  const int partner = (rank ^ 1) < ranks ? rank ^ 1 : rank;
  int got = -1;
  CCL_CHECK(call(&rank, 1, partner, &got, 1, partner));
  return wrong(got == partner);
}
ccl::Result<void> call_once(const ToAll& call, int rank, int ranks) {
  std::vector<int> in(std::size_t(ranks), rank), out(in.size());
  CCL_CHECK(call(in.data(), out.data(), 1));
  for (int r = 0; r < ranks; ++r) CCL_CHECK(wrong(out[std::size_t(r)] == r));
  return {};
}

template <class Call>
ccl::Result<void> start(const ccl::UniqueId& id, int rank, int ranks, Board& board) {
  CCL_TRY(const auto comm, ccl::Communicator::create(id, rank, ranks));
  raise_to(board.communicator_s, now_s());
  const int before = descriptors();
  CCL_TRY(const auto call, Call::create(comm));
  raise_to(board.composition_s, now_s());
  raise_to(board.at_create, descriptors() - before);
  CCL_CHECK(call_once(call, rank, ranks));
  raise_to(board.first_s, now_s());
  raise_to(board.at_call, descriptors() - before);
  raise_to(board.memory, comm.memory_used());
  CCL_CHECK(call_once(call, rank, ranks));
  raise_to(board.second_s, now_s());
  return comm.finalize();
}

using Start = ccl::Result<void> (*)(const ccl::UniqueId&, int, int, Board&);

bool measure(Start start, int ranks, int hosts) {
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
        // Neighbors share a host.
        const int host = r * hosts / ranks;
        ::setenv("CCL_HOSTID", ("host " + std::to_string(host)).c_str(), 1);
      }
      const auto done = start(*id, r, ranks, board);
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
  std::printf(
      "%4d ranks: communicator %.3f s, composition %.3f s, first call %.3f s, second %.3f s; "
      "a rank's descriptors +%d at create, +%d after the call, %lld KiB\n",
      ranks, board.communicator_s - began, board.composition_s - began, board.first_s - began,
      board.second_s - began, board.at_create.load(), board.at_call.load(),
      static_cast<long long>(board.memory.load() >> 10));
  std::fflush(stdout);
  ::munmap(shared, sizeof(Board));
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const usage =
      "usage: ccl_start_up [--hosts N] [--what ring|tree|doubling|pair|all_to_all|auto] RANKS...\n";
  const std::pair<std::string_view, Start> known[] = {
      {"ring", start<Sums<ccl::Ring>>}, {"tree", start<Sums<ccl::Tree>>},
      {"doubling", start<InHost>},      {"pair", start<Pairs>},
      {"all_to_all", start<ToAll>},     {"auto", start<Chosen>}};
  bool good = argc > 1;
  int hosts = 0;
  Start what = nullptr;
  for (int i = 1; i < argc && good; ++i) {
    const std::string_view word = argv[i];
    if (word == "--hosts" && i + 1 < argc) {
      hosts = std::atoi(argv[++i]);
    } else if (word == "--what" && i + 1 < argc) {
      ++i;
      const auto found = std::find_if(std::begin(known), std::end(known), [&](const auto& one) {
        return one.first == std::string_view{argv[i]};
      });
      good = found != std::end(known);
      if (good) what = found->second;
    } else {
      const Start chosen = what != nullptr ? what : known[hosts > 0 ? 0 : 2].second;
      good = std::atoi(argv[i]) > 0 && measure(chosen, std::atoi(argv[i]), hosts);
    }
  }
  if (!good) std::fputs(usage, stderr);
  return good ? 0 : 1;
}
