// Connections of pairs of ranks close when they are idle, and open again.
#include "connect/idle_pairs.hpp"

#include <ccl/algo/pairwise.hpp>
#include <ccl/collective/all_to_all.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <latch>
#include <random>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/fake_verbs.hpp"
#include "support/on_ranks.hpp"
#include "support/processes.hpp"

using namespace ccl;
using namespace ccl::test;
using ccl::detail::Access;
using ccl::detail::ConnectionCounts;
using ccl::detail::IdleMessage;

namespace {

template <class Transport>
using ToAll = Collective<AllToAll, Pairwise, Simple, Transport>;
template <class Transport>
using Pairs = Collective<SendRecv, Pairwise, Simple, Transport>;

ConnectionCounts& counts(const Communicator& comm) {
  return Access::state(comm)->connections;
}
Config limited(double timeout_s = 30) {
  Config config;
  config.timeout_s = timeout_s;
  config.init_timeout_s = 30;
  return config;
}
Result<void> expect(bool right, std::string what) {
  if (right) return {};
  return fail(Errc::internal, std::move(what));
}
Result<void> all_close(const Communicator& comm) {
  const bool closed = wait_until([&] { return counts(comm).open == 0; }, 20);
  return expect(closed && counts(comm).bytes == 0, "connections stay open");
}

/// Swaps `n` values with every rank and checks them.
template <class Call>
Result<void> swap_all(const Communicator& comm, const Call& to_all, Index n, int round) {
  const int me = comm.rank(), ranks = comm.ranks();
  std::vector<int> in, out(std::size_t(n * ranks), -1);
  for (int p = 0; p < ranks; ++p) in.insert(in.end(), std::size_t(n), 10000 * round + 100 * me + p);
  CCL_CHECK(to_all(in.data(), out.data(), n));
  for (Index i = 0; i < n * ranks; ++i) {
    const int from = int(i / n);
    if (out[std::size_t(i)] == 10000 * round + 100 * from + me) continue;
    return fail(Errc::internal, "a wrong value from rank " + std::to_string(from));
  }
  return {};
}

}  // namespace

TEMPLATE_TEST_CASE("connections that no call uses close, and the next call opens them again", "",
                   LoopbackTransport, ShmTransport, SocketTransport, IbTransport) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.04"};
  FakeVerbs devices{1};
  constexpr int ranks = 5, edges = 2 * (ranks - 1);
  std::latch created{ranks};
  check_well(on_ranks(ranks, limited(), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto to_all, ToAll<TestType>::create(comm));
    created.arrive_and_wait();
    for (int round = 0; round < 3; ++round) {
      CCL_CHECK(swap_all(comm, to_all, round == 1 ? 30'000 : 3, round));
      CCL_CHECK(all_close(comm));
      CCL_CHECK(expect(counts(comm).made == Word(edges * (round + 1)), "wrong number made"));
      CCL_CHECK(expect(counts(comm).closed == counts(comm).made, "wrong number closed"));
    }
    return {};
  }));
}

TEMPLATE_TEST_CASE("a connection in one direction closes alone, then the other opens", "",
                   ShmTransport, SocketTransport) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.04"};
  std::latch created{2};
  check_well(on_ranks(2, limited(), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, Pairs<TestType>::create(comm));
    const int me = comm.rank();
    created.arrive_and_wait();
    for (int round = 0; round < 4; ++round) {  // 0 to 1, then back
      int x = 7 + round;
      CCL_CHECK(me == round % 2 ? pairs.send(&x, 1, 1 - me) : pairs.recv(&x, 1, 1 - me));
      CCL_CHECK(expect(x == 7 + round, "wrong message"));
      CCL_CHECK(expect(counts(comm).made == Word(round + 1), "wrong number made"));
      CCL_CHECK(all_close(comm));
    }
    return {};
  }));
}

TEMPLATE_TEST_CASE("no connection closes while a message is on its way", "", LoopbackTransport,
                   ShmTransport, SocketTransport, IbTransport) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.03"};
  FakeVerbs devices{1};
  const int sender = GENERATE(0, 1);  // the lower rank requests, and the higher answers
  std::latch created{2}, sent{2};
  check_well(on_ranks(2, limited(), [&](const Communicator& comm) -> Result<void> {
    using Calls = Pairs<TestType>;
    CCL_TRY(const auto pairs, Calls::create(comm));
    created.arrive_and_wait();
    int x[3] = {1, 2, 3}, y[3] = {};
    if (comm.rank() == sender) {
      const auto message = [&](int at) { return Calls::send_message(x + at, 1, 1 - sender); };
      CCL_CHECK(pairs.group({message(0), message(1), message(2)}));
      sleep_s(0.2);  // the request is made and refused several times
      CCL_CHECK(expect(counts(comm).closed == 0, "a connection with messages has closed"));
      sent.arrive_and_wait();
    } else {
      CCL_CHECK(pairs.recv(y, 1, sender));
      sent.arrive_and_wait();
      CCL_CHECK(expect(counts(comm).closed == 0, "a connection with messages has closed"));
      CCL_CHECK(pairs.recv(y + 1, 1, sender));
      CCL_CHECK(pairs.recv(y + 2, 1, sender));
      CCL_CHECK(expect(y[0] == 1 && y[1] == 2 && y[2] == 3, "wrong messages"));
    }
    CCL_CHECK(all_close(comm));
    CCL_CHECK(comm.rank() == sender ? pairs.send(x, 1, 1 - sender) : pairs.recv(y, 1, sender));
    return expect(y[0] == 0 || y[0] == 1, "wrong message");
  }));
}

TEMPLATE_TEST_CASE("calls at any time, before, while and after pairs close, give the right data",
                   "", ShmTransport, SocketTransport, IbTransport) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.002"};
  FakeVerbs devices{1};
  std::atomic<Word> closed{0};
  check_well(on_ranks(4, limited(), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto to_all, ToAll<TestType>::create(comm));
    CCL_TRY(const auto pairs, Pairs<TestType>::create(comm));
    std::mt19937 random{unsigned(comm.rank())};
    const int me = comm.rank(), right = (me + 1) % 4, left = (me + 3) % 4;
    for (int round = 0; round < 60; ++round) {
      sleep_s(0.0005 * double(random() % 12));
      if (round % 2 == 0) {
        CCL_CHECK(swap_all(comm, to_all, 5, round));
      } else {
        std::vector<int> x(2000, 4 * round + me), y(x.size());
        CCL_CHECK(pairs(x.data(), Index(x.size()), right, y.data(), Index(y.size()), left));
        CCL_CHECK(expect(y.front() == 4 * round + left && y == std::vector(y.size(), y[0]),
                         "wrong message"));
      }
    }
    closed += counts(comm).closed;
    return {};
  }));
  CHECK(closed > 0);
}

TEST_CASE("a message about idle connections that does not fit fails all ranks by name") {
  const Environment idle{"CCL_CONNECTION_IDLE", "60"};
  std::latch created{4};
  const auto results = on_ranks(4, limited(), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(const auto pairs, Pairs<LoopbackTransport>::create(comm));
    created.arrive_and_wait();
    auto& bootstrap = *Access::state(comm)->rendezvous.bootstrap();
    // An answer of a rank that nobody has asked: kinds of both ranks fit, and no request is open.
    const IdleMessage answer{IdleMessage::Kind::closed, 0, 1, 1, 0, 0};
    if (comm.rank() == 3) CCL_CHECK(bootstrap.send(1, detail::idle_tag, &answer, sizeof answer));
    wait_until([&] { return !comm.status().has_value(); }, 20);
    return comm.status();
  });
  for (const auto& result : results) {
    REQUIRE(!result);
    INFO(result.error().message());
    CHECK(result.error().code == Errc::mismatch);
    CHECK(mentions(result.error().what, "rank 3"));
    CHECK(mentions(result.error().what, "request 1 to close idle connections"));
  }
}

namespace {
constexpr int victim = 2;
struct Board {
  UniqueId id;
  std::atomic<int> closed{0};
  std::atomic<bool> gone{false};
  struct {
    Errc code = Errc::ok;
    int peer = -1;
    char text[600] = {};
    double took_s = 0;
  } of_rank[4];
};

/// Ranks in processes, of which one gets `signal` when its connections have closed, or while they
/// are about to. The others then swap messages with it.
void lose_victim(int signal, bool waits_for_close, double timeout_s) {
  const Environment idle{"CCL_CONNECTION_IDLE", "0.05"};
  Shared<Board> board;
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; ++rank) {
    pids.push_back(start_process([&, rank] {
      auto& mine = board->of_rank[rank];
      const auto run = [&]() -> Result<void> {
        CCL_TRY(const auto comm, Communicator::create(board->id, rank, 4, limited(timeout_s)));
        CCL_TRY(const auto to_all, ToAll<SocketTransport>::create(comm));
        CCL_CHECK(swap_all(comm, to_all, 3, 0));
        if (waits_for_close) CCL_CHECK(all_close(comm));
        ++board->closed;
        wait_until([&] { return board->closed == 4; }, 20);
        if (rank == victim) ::raise(signal);
        wait_until([&] { return board->gone.load(); }, 20);
        const auto begin = Clock::now();
        auto done = swap_all(comm, to_all, 3, 1);
        mine.took_s = seconds(Clock::now() - begin);
        return done;
      };
      if (const auto done = run(); !done) {
        mine.code = done.error().code;
        mine.peer = done.error().peer;
        std::snprintf(mine.text, sizeof mine.text, "%s", done.error().message().c_str());
      }
      return 0;
    }));
  }
  CHECK(wait_until([&] { return board->closed == 4; }, 30));
  sleep_s(0.25);  // a stopped rank leaves requests unanswered
  board->gone = true;
  const pid_t lost = pids[victim];
  std::vector<pid_t> others = pids;
  std::erase(others, lost);
  CHECK(reap(others, 30));
  ::kill(lost, SIGKILL);
  reap({lost}, 10, lost);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const auto& of = board->of_rank[rank];
    INFO("rank " << rank << ": " << of.text);
    CHECK((of.code == Errc::peer_lost || of.code == Errc::timed_out));
    CHECK(of.peer == victim);
    CHECK(of.took_s < timeout_s + 10);
  }
}
}  // namespace

TEST_CASE("a rank that dies while its connections are closed is named by the ranks that call it") {
  lose_victim(SIGKILL, true, 30);
}

TEST_CASE("a rank that is stopped and does not answer a request is named by who waits for it") {
  lose_victim(SIGSTOP, false, 0.5);
}

TEST_CASE("where one rank does not close idle connections, none does") {
  Shared<Board> board;
  board->id = create_unique_id().value();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; ++rank) {
    pids.push_back(start_process([&, rank] {
      const Environment idle{"CCL_CONNECTION_IDLE", rank == 1 ? "0" : "0.02"};
      const auto run = [&]() -> Result<void> {
        CCL_TRY(const auto comm, Communicator::create(board->id, rank, 4, limited()));
        CCL_TRY(const auto to_all, ToAll<ShmTransport>::create(comm));
        CCL_CHECK(swap_all(comm, to_all, 3, 0));
        sleep_s(0.2);
        CCL_CHECK(expect(counts(comm).open == 6 && counts(comm).closed == 0, "closed"));
        CCL_CHECK(swap_all(comm, to_all, 3, 1));
        return comm.finalize();
      };
      const auto done = run();
      if (!done) std::printf("%s\n", done.error().message().c_str());
      return done ? 0 : 1;
    }));
  }
  CHECK(reap(pids, 30));
}
