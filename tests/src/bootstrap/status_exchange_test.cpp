// Statuses of ranks that are processes, where those of two hosts are stopped.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <atomic>
#include <csignal>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/processes.hpp"
#include "support/stopped.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

// Ranks 2 to 13 and 16 to 17 are stopped. Ranks 14 and 15 can reach the others by no neighbor.
constexpr int ranks = 18;
int host_of(int rank) {
  return rank < 2 ? 0 : rank < 14 ? 1 : rank < 16 ? 2 : 3;
}
bool stops(int rank) {
  return host_of(rank) % 2 == 1;
}

struct Board {
  std::atomic<pid_t> pids[ranks];
  std::atomic<bool> over;
  bool answered[ranks];
};

Result<void> rank_main(const std::vector<UniqueId>& ids, int rank, Board& board) {
  const Environment host{"CCL_HOSTID", "host" + std::to_string(host_of(rank))};
  CCL_TRY(const auto bootstrap, detail::Bootstrap::join(ids, rank, ranks, {60, nullptr}));
  bootstrap->set_rank_status([](std::string_view) { return std::vector{std::byte{1}}; });
  CCL_CHECK(bootstrap->barrier());
  board.pids[rank] = getpid();
  if (stops(rank)) raise(SIGSTOP);
  if (rank == 0) {
    for (int r = 0; r < ranks; ++r) {
      const auto is_ready = [&] {
        const pid_t pid = board.pids[r];
        return pid != 0 && (!stops(r) || is_stopped(pid));
      };
      wait_until(is_ready, 30);
    }
    const auto statuses = bootstrap->rank_statuses(2);
    for (int r = 0; r < ranks; ++r) board.answered[r] = !statuses[std::size_t(r)].empty();
    board.over = true;
  }
  wait_until([&] { return board.over.load(); }, 60);
  _exit(0);  // nobody waits for the stopped ranks
}

}  // namespace

TEST_CASE("ranks behind many stopped ones are not taken to be stopped") {
  const Environment only_loopback{"CCL_SOCKET_IFNAME", "=lo"};
  const Shared<Board> board;
  const std::vector<UniqueId> ids{create_unique_id().value()};
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&] { return rank_main(ids, r, *board) ? 0 : 1; }));
  }
  wait_until([&] { return board->over.load(); }, 90);
  for (int r = 0; r < ranks; ++r) {
    if (stops(r)) kill(pids[std::size_t(r)], SIGKILL);
  }
  reap(pids, 20);
  for (int r = 0; r < ranks; ++r) {
    INFO("rank " << r);
    CHECK(board->answered[r] == !stops(r));
  }
}
