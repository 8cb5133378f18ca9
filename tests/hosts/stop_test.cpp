#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/shm.hpp>

#include <atomic>
#include <cstdio>

#include "support/catch.hpp"
#include "support/processes.hpp"

// A rank is stopped after creation; the others must name it, and not each other.
using namespace ccl;
using namespace ccl::test;

namespace {
struct Ended {
  std::atomic<bool> ended{false}, failed{false};
  Errc code = Errc::ok;
  int peer = -1;
  char text[1024] = {};
};
struct Board {
  std::atomic<bool> stops{false}, waits{false};
  Ended of_rank[6];
};
Board* board = nullptr;  // of the test case that runs

/// Runs `work(communicator)` in a process for each rank, of which `victim` is to stop itself.
/// Checks what the others end with.
template <class Work>
void play(Shared<Board>& shared, int ranks, int victim, double wait_limit_s, Work&& work) {
  board = &*shared;
  const auto id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(start_process([&, rank] {
      Config config;
      config.device = Config::cpu;
      config.init_timeout_s = wait_limit_s;
      config.timeout_s = 200;
      Ended& mine = board->of_rank[rank];
      const auto run = [&]() -> Result<void> {
        CCL_TRY(const auto comm, Communicator::create(id, rank, ranks, config));
        CCL_CHECK(work(comm));
        return {};
      };
      if (const auto done = run(); !done) {
        mine.code = done.error().code;
        mine.peer = done.error().peer;
        std::snprintf(mine.text, sizeof mine.text, "%s", done.error().message().c_str());
        mine.failed = true;
      }
      mine.ended = true;
      return 0;
    }));
  }
  const auto all_ended = [&] {
    for (int r = 0; r < ranks; ++r) {
      if (r != victim && !board->of_rank[r].ended) return false;
    }
    return true;
  };
  CHECK(wait_until(all_ended, 150));
  ::kill(pids[std::size_t(victim)], SIGKILL);
  reap(pids, 20, pids[std::size_t(victim)]);
}

/// Shared memory, but that rank 2 stops where it is to connect, while rank 1 waits for it there.
struct Stopping {
  static constexpr const char* name = "stopping";
  static constexpr Scope scope = Scope::host;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;

  class End {
   public:
    Handshake handshake() const { return end_.handshake(); }
    Result<Connection> connect(const Handshake& theirs) {
      if (edge_.self.rank == 2) {
        board->stops = true;
        ::raise(SIGSTOP);
      }
      if (edge_.self.rank == 1 && edge_.peer.rank == 2) {
        board->waits = true;
        wait_until([&] { return !status_->ok(); }, 100);
        return fail(Errc::timed_out, "its connection did not come");
      }
      return end_.connect(theirs);
    }

   private:
    friend struct Stopping;
    Edge edge_;
    detail::Status* status_ = nullptr;
    ShmTransport::End end_;
  };
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to) {
    return ShmTransport::can_connect(from, to);
  }
  static Result<End> setup(TransportContext& context, const Edge& edge) {
    End end;
    end.edge_ = edge;
    end.status_ = context.status;
    CCL_TRY(end.end_, ShmTransport::setup(context, edge));
    return end;
  }
};
static_assert(Transport<Stopping>);
}  // namespace

TEST_CASE("a rank that is stopped while wires are opened late is named, not who waits for it") {
  Shared<Board> shared;
  play(shared, 3, 2, 5, [](const Communicator& comm) -> Result<void> {
    using Swap = Collective<AllToAll, Pairwise, Simple, Stopping>;
    CCL_TRY(const auto swap, Swap::create(comm));
    if (comm.rank() == 0) wait_until([] { return board->stops && board->waits; }, 100);
    int x[3] = {}, y[3] = {};
    return swap(x, y, 1);
  });
  for (int r = 0; r < 2; ++r) {
    const Ended& report = board->of_rank[r];
    INFO(report.text);
    CHECK(report.failed);
    CHECK(std::string{report.text}.find("rank 2 on ") != std::string::npos);
    CHECK(std::string{report.text}.find("does not answer") != std::string::npos);
  }
  CHECK(board->of_rank[0].peer == 2);
  CHECK(board->of_rank[0].code == Errc::timed_out);
}

TEST_CASE("a rank that is stopped while the others create a collective is named by all of them") {
  constexpr int victim = 2;
  Shared<Board> shared;
  play(shared, 6, victim, 5, [](const Communicator& comm) -> Result<void> {
    if (comm.rank() == victim) ::raise(SIGSTOP);
    using Sums = Collective<AllReduce, Tree, Simple, ShmTransport>;
    const auto sums = Sums::create(comm);
    if (!sums && !comm.status()) return fail(sums.error());
    return fail(Errc::internal, "the communicator is well");
  });
  for (int r = 0; r < 6; ++r) {
    if (r == victim) continue;
    const Ended& report = board->of_rank[r];
    INFO(report.text);
    CHECK(report.code != Errc::internal);
    CHECK(std::string{report.text}.find("does not answer") != std::string::npos);
    CHECK(std::string{report.text}.find("rank 2 ") != std::string::npos);
  }
}
