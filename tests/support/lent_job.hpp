#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/transport/peer_process.hpp>

#include <atomic>
#include <csignal>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/processes.hpp"
#include "support/skip.hpp"
#include <sys/wait.h>
#include <unistd.h>

namespace ccl::test {

/// What the ranks of a job that lends, each a process of its own, share.
struct LentBoard {
  static constexpr int max_ranks = 4;
  UniqueId id;
  std::atomic<int> at{0};      // steps of a case, in order
  std::atomic<Word> reads{0};  // of slices, by all ranks, as far as a case counts them
  std::atomic<int> code[max_ranks] = {}, peer[max_ranks] = {}, os_code[max_ranks] = {};
  char text[max_ranks][400] = {};
};

/// Runs `body(comm, board)` on each rank, a process of its own. False if one does not end in time,
/// or ends otherwise than by `_exit(0)`; `except`: the rank that may.
template <class Body>
bool run_lending(Shared<LentBoard>& board, int ranks, const Body& body, int except = -1,
                 double timeout_s = 60) {
  constexpr double limit_s = 120;  // of a job that hangs
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&, rank] {
      const auto done = [&]() -> Result<void> {
        Config config;
        config.device = Config::cpu;
        config.timeout_s = timeout_s;
        CCL_TRY(const auto comm, Communicator::create(board->id, rank, ranks, config));
        Result<void> ended = body(comm, *board);
        if (ended) return comm.finalize();  // others may still be in the last call
        return ended;
      }();
      if (done) return 0;
      board->code[rank] = int(done.error().code);
      board->peer[rank] = done.error().peer;
      board->os_code[rank] = done.error().os_code;
      done.error().message().copy(board->text[rank], sizeof board->text[rank] - 1);
      return 0;
    }));
  }
  return reap(pids, limit_s, except < 0 ? 0 : pids[std::size_t(except)]);
}
/// True if this host lets a process read another one's memory.
inline bool may_read() {
  Shared<std::atomic<int>> found;
  static Word known = 0x1357'9bdf'0246'8aceu;
  const pid_t child = start_process([] { return ::pause(), 0; });
  int value = 0;
  const int there = 5;
  const iovec place{&value, sizeof value};
  const bool may = detail::PeerProcess{int(child), &known, known}.read(&there, &place, 1) == 0;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return may;
}

inline void no_reads() {
  skip("processes of this host may not read each other");
}

}  // namespace ccl::test
