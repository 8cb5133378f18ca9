#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <set>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/held_port.hpp"
#include "support/processes.hpp"

// Ranks die by kill -9, and the survivors continue without any other instruction.
using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int ranks = 4;
using Sums = Collective<AllReduce, Tree, Simple, DefaultTransport>;
using Parts = Collective<AllGather, Pairwise, Simple, DefaultTransport>;

struct Board {
  struct Rank {
    std::atomic<int> steps{0};  // of all communicators that it has been in
    std::atomic<int> life{0};   // the number of the communicator that it is in
    std::atomic<bool> good{false};
    int tries = 0;  // to shrink, most for one communicator
    char text[600] = {};
  } rank[ranks];
  std::atomic<bool> stop{false};
};

/// Runs steps until a rank has died, or the board stops them.
Result<void> run_on(const Communicator& comm, const std::vector<int>& were, Board& board, int me) {
  CCL_TRY(const auto sums, Sums::create(comm));
  CCL_TRY(const auto parts, Parts::create(comm));
  int sum = 0;
  for (const int r : were) sum += r;
  std::vector<int> data(200'001), all(were.size());
  for (;;) {
    CCL_CHECK(parts(&me, all.data(), 1));
    // All ranks stop after the same step: the first one decides.
    int go = board.stop ? 0 : 1;
    std::fill(data.begin(), data.end(), me);
    data.back() = comm.rank() == 0 ? go : 0;
    CCL_CHECK(sums(data.data(), data.data(), Index(data.size())));
    if (all != were || data.front() != sum || data[100'000] != sum) {
      return fail(Errc::internal, "wrong data");
    }
    ++board.rank[me].steps;
    if (data.back() == 0) return comm.barrier();
  }
}

/// Job that continues with the surviving ranks.
Result<void> live(int port, Board& board, int me) {
  CCL_TRY(const auto id, unique_id_at(fmt::format("127.0.0.1:{}", port), "shrink test"));
  if (me == 0) CCL_CHECK(start_root(id, 0));
  Config config;
  config.init_timeout_s = 20;
  config.timeout_s = 60;
  CCL_TRY(auto comm, Communicator::create(id, me, ranks, config));
  std::vector<int> were{0, 1, 2, 3};
  for (;;) {
    const auto ran = run_on(comm, were, board, me);
    if (ran) return comm.finalize();
    std::set<int> dead;  // ranks of `comm`
    Error error = ran.error();
    for (int tries = 1;; ++tries) {
      if (error.code == Errc::peer_lost) dead.insert(error.peer);
      if (error.code == Errc::internal || tries > 10) return fail(error);
      board.rank[me].tries = std::max(board.rank[me].tries, tries);
      const std::vector<int> excluded(dead.begin(), dead.end());
      auto rest = comm.shrink(excluded, Shrink::keep_parent, config);
      if (rest) {
        for (auto r = dead.rbegin(); r != dead.rend(); ++r) were.erase(were.begin() + *r);
        comm = *rest;
        break;
      }
      error = rest.error();
    }
    ++board.rank[me].life;
  }
}

struct Play {
  Shared<Board> board;
  const HeldPort port;
  std::vector<pid_t> pids;

  explicit Play(const std::vector<const char*>& hosts = {}) {
    for (int r = 0; r < ranks; ++r) {
      pids.push_back(start_process([&, r] {
        if (!hosts.empty()) ::setenv("CCL_HOSTID", hosts[std::size_t(r)], 1);
        auto& mine = board->rank[r];
        const auto lived = live(port.number(), *board, r);
        if (!lived)
          std::snprintf(mine.text, sizeof mine.text, "%s", lived.error().message().c_str());
        mine.good = lived.has_value();
        return 0;
      }));
    }
  }
  bool reaches(int rank, int steps) {
    return wait_until([&] { return board->rank[rank].steps >= steps; }, 60);
  }
  void die(int rank) { kill(pids[std::size_t(rank)], SIGKILL); }
  /// All but the dead end well.
  void ends_without(const std::set<int>& dead) {
    std::vector<pid_t> others;
    for (int r = 0; r < ranks; ++r) {
      if (dead.contains(r)) {
        waitpid(pids[std::size_t(r)], nullptr, 0);
      } else {
        others.push_back(pids[std::size_t(r)]);
      }
    }
    CHECK(reap(others, 60));
    for (int r = 0; r < ranks; ++r) {
      if (dead.contains(r)) continue;
      INFO("rank " << r << ": " << board->rank[r].text);
      CHECK(board->rank[r].good);
    }
  }
};

/// Waits for steps of a rank until it runs in its `life`-th communicator.
void runs_in(Play& play, int rank, int life) {
  CHECK(wait_until([&] { return play.board->rank[rank].life >= life; }, 60));
  CHECK(play.reaches(rank, play.board->rank[rank].steps + 2));
}
}  // namespace

TEST_CASE("a rank dies while data moves, then another one, and the rest goes on") {
  const char* const transport = GENERATE("shm", "socket", "");
  const Environment by{"CCL_TRANSPORT", transport};
  Play play;
  CHECK(play.reaches(1, 3));
  play.die(1);
  runs_in(play, 0, 1);
  runs_in(play, 3, 1);
  play.die(3);
  runs_in(play, 0, 2);
  runs_in(play, 2, 2);
  play.board->stop = true;
  play.ends_without({1, 3});
}

TEST_CASE("a host's ranks die together, and those of the others go on, at last one alone") {
  Play play{{"a", "a", "b", "c"}};
  CHECK(play.reaches(0, 3));
  play.die(0);
  play.die(1);
  runs_in(play, 2, 1);
  play.die(3);
  runs_in(play, 2, 2);
  play.board->stop = true;
  play.ends_without({0, 1, 3});
}

TEST_CASE("ranks die while the others shrink") {
  std::mt19937 random{7};
  int most = 0;
  for (int round = 0; round < 15; ++round) {
    Play play;
    const int first = int(random() % ranks);
    const int second = (first + 1 + int(random() % (ranks - 1))) % ranks;
    CHECK(play.reaches(first, 2));
    play.die(first);
    sleep_s(double(random() % 1000) * 20e-6);
    play.die(second);
    const std::set<int> dead{first, second};
    for (int r = 0; r < ranks; ++r) {
      if (dead.contains(r)) continue;
      runs_in(play, r, 1);
      most = std::max(most, play.board->rank[r].tries);
    }
    play.board->stop = true;
    play.ends_without(dead);
  }
  std::printf("15 times two deaths; at most %d tries of one rank\n", most);
}
