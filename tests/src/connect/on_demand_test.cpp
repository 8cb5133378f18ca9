// A call that connects to a process that is stopped ends by the limit of calls.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <vector>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Pairs = Collective<SendRecv, Pairwise, Simple, SocketTransport>;

constexpr int ranks = 4, stopped = 2;  // no neighbor of rank 0, which calls

struct Board {
  UniqueId id;
  std::atomic<int> created{0};
  std::atomic<bool> over{false};
  Errc code = Errc::ok;
  int peer = -1;
  char text[600] = {};
  double took_s = 0;
};

Result<void> call(Board& board, int rank) {
  Config config;
  config.timeout_s = 2;
  config.init_timeout_s = 30;
  CCL_TRY(const auto comm, Communicator::create(board.id, rank, ranks, config));
  CCL_TRY(const auto pairs, Pairs::create(comm));
  ++board.created;
  wait_until([&] { return board.created == ranks; }, 30);
  if (rank == stopped) ::raise(SIGSTOP);
  sleep_s(0.3);
  const auto begin = Clock::now();
  float value = 0;
  auto done = rank == 0 ? pairs.send(&value, 1, stopped) : Result<void>{};
  if (rank == 0) board.took_s = seconds(Clock::now() - begin);
  if (rank == 0) board.over = true;
  wait_until([&] { return board.over.load(); }, 60);
  return done;
}

}  // namespace

TEST_CASE("a call that connects to a stopped process ends by CCL_TIMEOUT") {
  const Environment only_loopback{"CCL_SOCKET_IFNAME", "=lo"};
  Shared<Board> board;
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&, rank] {
      const auto done = call(*board, rank);
      if (rank != 0 || done) return 0;
      board->code = done.error().code;
      board->peer = done.error().peer;
      std::snprintf(board->text, sizeof board->text, "%s", done.error().message().c_str());
      return 0;
    }));
  }
  wait_until([&] { return board->over.load(); }, 90);
  const pid_t lost = pids[stopped];
  ::kill(lost, SIGKILL);
  CHECK(reap(pids, 30, lost));
  INFO(board->text);
  CHECK(board->code == Errc::timed_out);
  CHECK(board->peer == stopped);
  CHECK(board->took_s >= 1.9);
  CHECK(board->took_s < 15);
}
