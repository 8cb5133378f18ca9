// Messages between ranks that are processes, of which one is stopped.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/processes.hpp"
#include "support/stopped.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int ranks = 5, stopped = 2, other = 3;  // neither is a neighbor of rank 0
constexpr std::uint64_t tag = 7;

struct Board {
  std::atomic<pid_t> stopped_pid;
  std::atomic<bool> over;
  double to_other_s, to_stopped_s;
  Errc code;
  int peer;
  char text[400];
};

void send_to_both(detail::Bootstrap& bootstrap, Board& board) {
  wait_until([&] { return board.stopped_pid != 0 && is_stopped(board.stopped_pid); }, 30);
  const auto begin = Clock::now();
  std::thread first{[&] {
    const auto sent = bootstrap.send(stopped, tag, "x", 1, 2);
    board.to_stopped_s = seconds(Clock::now() - begin);
    board.code = sent ? Errc::ok : sent.error().code;
    board.peer = sent ? -1 : sent.error().peer;
    if (!sent) std::snprintf(board.text, sizeof board.text, "%s", sent.error().message().c_str());
  }};
  sleep_s(0.3);
  const auto then = Clock::now();
  if (bootstrap.send(other, tag, "y", 1)) board.to_other_s = seconds(Clock::now() - then);
  first.join();
}

Result<void> rank_main(const std::vector<UniqueId>& ids, int rank, Board& board) {
  CCL_TRY(const auto bootstrap, detail::Bootstrap::join(ids, rank, ranks, {60, nullptr}));
  if (rank == stopped) {
    board.stopped_pid = getpid();
    raise(SIGSTOP);
  }
  if (rank == 0) {
    send_to_both(*bootstrap, board);
    board.over = true;
  }
  if (rank == other) CCL_CHECK(bootstrap->recv(0, tag, 30));
  wait_until([&] { return board.over.load(); }, 60);
  _exit(0);  // nobody waits for the stopped rank
}

}  // namespace

TEST_CASE("a peer that does not answer delays messages to itself alone, and no longer than asked") {
  const Environment only_loopback{"CCL_SOCKET_IFNAME", "=lo"};
  const Shared<Board> board;
  board->to_other_s = 1e9;
  const std::vector<UniqueId> ids{create_unique_id().value()};
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(start_process([&] { return rank_main(ids, r, *board) ? 0 : 1; }));
  }
  wait_until([&] { return board->over.load(); }, 90);
  kill(pids[stopped], SIGKILL);
  CHECK(reap(pids, 20, pids[stopped]));
  INFO(board->text);
  CHECK(board->to_other_s < 1);
  CHECK(board->code == Errc::timed_out);
  CHECK(board->peer == stopped);
  CHECK(std::string{board->text}.find("within 2 s; look there, or raise CCL_TIMEOUT") !=
        std::string::npos);
  CHECK(board->to_stopped_s >= 1.9);
  CHECK(board->to_stopped_s < 10);
}
