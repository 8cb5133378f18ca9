#include <ccl/detail/exchange/batches.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

/// Ranks in an order of their own, and the sizes of the messages between them.
struct Job {
  explicit Job(int of_ranks) : ranks{of_ranks}, order(std::size_t(of_ranks)) {
    std::iota(order.begin(), order.end(), 0);
  }
  RingPosition ring(int rank) const {
    const auto at = std::find(order.begin(), order.end(), rank) - order.begin();
    return {int(at), ranks, order.data()};
  }
  int ranks;
  std::vector<int> order;
};

/// A message is told by its address: the sender, the receiver and its number between them.
char* name(int from, int to, int nth) {
  return reinterpret_cast<char*>((Word(from) << 40 | Word(to) << 16 | Word(nth)) + 1);
}
/// Returns the table of one rank, where `count(from, to)` messages go between two ranks.
template <class F>
MessageTable table_of(int rank, int ranks, F count) {
  MessageTable table{ranks};
  for (int p = 0; p < ranks; ++p) {
    for (int n = 0; n < count(rank, p); ++n) table.send(p, name(rank, p, n), 1 + n);
    for (int n = 0; n < count(p, rank); ++n) table.recv(p, name(p, rank, n), 1 + n);
  }
  return table;
}

std::vector<ExchangeWork> launches(const MessageTable& table, const RingPosition& ring) {
  std::vector<ExchangeWork> all;
  ExchangeBatches batches{table, ring};
  do {
    all.emplace_back(WireWork<Bytes>{Bytes{}});
    const Index longest = batches.next(all.back());
    Index most = 0;
    for (int m = 0; m < all.back().messages; ++m) {
      most = std::max(most, all.back().message[m].bytes);
    }
    CHECK(longest == most);
  } while (batches.left());
  return all;
}

/// Calls `f(sends, peer, message)` for all messages of a launch in the order of its lists.
template <class F>
void each_message(const ExchangeWork& work, int rank, F f) {
  const auto of_visit = [&](const ExchangeWork::Visit& visit, int peer) {
    const MessageRun run = work.run(visit);
    for (int i = 0; i < run.count; ++i) f(visit.sends, peer, run.message[i]);
  };
  for (int t = 0; t < work.visits; ++t) of_visit(work.visit[t], work.visit[t].peer);
  for (const ExchangeWork::Visit& visit : work.own) of_visit(visit, rank);
}

/// Every message is in one launch, and those between two ranks keep their order.
template <class F>
void check_whole(const std::vector<ExchangeWork>& all, int rank, int ranks, F count) {
  std::vector<int> seen[2] = {std::vector<int>(std::size_t(ranks)),
                              std::vector<int>(std::size_t(ranks))};
  long wrong = 0;
  for (const ExchangeWork& work : all) {
    REQUIRE(work.messages <= ExchangeWork::max_messages);
    each_message(work, rank, [&](bool sends, int peer, const Message& m) {
      int& nth = seen[sends ? 0 : 1][std::size_t(peer)];
      wrong += m.data != (sends ? name(rank, peer, nth) : name(peer, rank, nth));
      ++nth;
    });
  }
  for (int p = 0; p < ranks; ++p) {
    wrong += seen[0][std::size_t(p)] != count(rank, p);
    wrong += seen[1][std::size_t(p)] != count(p, rank);
  }
  CHECK(wrong == 0);
}

/// Runs the launches of all ranks. A message needs both of its ends in running launches, and no
/// memory keeps it meanwhile. Returns true if all launches end.
bool all_end(const std::vector<std::vector<ExchangeWork>>& of_rank) {
  const int ranks = int(of_rank.size());
  std::vector<std::size_t> at(of_rank.size());
  std::vector<std::vector<const char*>> complete(of_rank.size());
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<std::vector<const char*>> offered(of_rank.size());
    for (int r = 0; r < ranks; ++r) {
      const std::size_t rank = std::size_t(r);
      if (at[rank] == of_rank[rank].size()) continue;
      each_message(of_rank[rank][at[rank]], r,
                   [&](bool, int, const Message& m) { offered[rank].push_back(m.data); });
      std::sort(offered[rank].begin(), offered[rank].end());
    }
    for (int r = 0; r < ranks; ++r) {
      const std::size_t rank = std::size_t(r);
      if (at[rank] == of_rank[rank].size()) continue;
      bool ends = true;
      each_message(of_rank[rank][at[rank]], r, [&](bool, int peer, const Message& m) {
        auto& done = complete[rank];
        if (std::find(done.begin(), done.end(), m.data) != done.end()) return;
        const auto& there = offered[std::size_t(peer)];
        if (!std::binary_search(there.begin(), there.end(), m.data)) {
          ends = false;
          return;
        }
        for (const std::size_t end : {rank, std::size_t(peer)}) complete[end].push_back(m.data);
        moved = true;
      });
      if (!ends) continue;
      ++at[rank];
      complete[rank].clear();
      moved = true;
    }
  }
  for (int r = 0; r < ranks; ++r) {
    if (at[std::size_t(r)] != of_rank[std::size_t(r)].size()) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("few messages are one launch, in the order of the ring, without empty ones") {
  Job job{5};
  job.order = {3, 0, 4, 1, 2};
  MessageTable table{5};
  table.send(1, name(0, 1, 0), 5);
  table.send(4, name(0, 4, 0), 0);  // its other end may be missing
  table.send(4, name(0, 4, 1), 7);
  table.recv(3, name(3, 0, 0), 9);
  table.send(0, name(0, 0, 0), 4);
  table.recv(0, name(0, 0, 0), 4);
  const auto all = launches(table, job.ring(0));
  REQUIRE(all.size() == 1);
  const ExchangeWork& work = all[0];
  REQUIRE(work.visits == 3);
  CHECK(work.visit[0].peer == 4);  // one place ahead
  CHECK(work.visit[0].sends);
  CHECK(work.run(work.visit[0]).count == 1);
  CHECK(work.run(work.visit[0]).message->bytes == 7);
  CHECK(work.visit[1].peer == 3);  // one place behind
  CHECK(!work.visit[1].sends);
  CHECK(work.visit[2].peer == 1);
  CHECK(work.run(true, 0).count == 1);
  CHECK(work.run(false, 0).count == 1);
}

TEST_CASE("a rank without messages has one launch") {
  const auto all = launches(MessageTable{7}, Job{7}.ring(2));
  REQUIRE(all.size() == 1);
  CHECK(all[0].messages == 0);
  CHECK(all[0].visits == 0);
}

TEST_CASE("an all-to-all of 1,024 ranks is 15 launches of every rank") {
  constexpr int ranks = 1024;
  const Job job{ranks};
  const auto one = [](int, int) { return 1; };
  for (const int rank : {0, 1, 511, 1023}) {
    const auto all = launches(table_of(rank, ranks, one), job.ring(rank));
    CHECK(all.size() == 15);
    check_whole(all, rank, ranks, one);
  }
}

TEST_CASE("a gather of 1,024 ranks is 8 launches of the root and one of the others") {
  constexpr int ranks = 1024;
  const Job job{ranks};
  const auto to_root = [](int, int to) { return int(to == 77); };
  const auto root = launches(table_of(77, ranks, to_root), job.ring(77));
  CHECK(root.size() == 8);
  check_whole(root, 77, ranks, to_root);
  CHECK(launches(table_of(3, ranks, to_root), job.ring(3)).size() == 1);
}

TEST_CASE("ranks that divide their messages on their own do not deadlock") {
  std::mt19937 random{11};
  for (int round = 0; round < 40; ++round) {
    const int ranks = 2 + int(random() % 30);
    Job job{ranks};
    std::shuffle(job.order.begin(), job.order.end(), random);
    // Some rounds have many messages between few ranks, and some have few between all.
    std::vector<int> counts(std::size_t(ranks * ranks));
    for (int& n : counts) n = random() % 3 == 0 ? int(random() % (round % 2 == 0 ? 60 : 9)) : 0;
    const auto count = [&](int from, int to) { return counts[std::size_t(from * ranks + to)]; };
    std::vector<std::vector<ExchangeWork>> all;
    for (int r = 0; r < ranks; ++r) {
      all.push_back(launches(table_of(r, ranks, count), job.ring(r)));
      check_whole(all.back(), r, ranks, count);
    }
    INFO("round " << round << ", " << ranks << " ranks");
    CHECK(all_end(all));
  }
}

TEST_CASE("an all-to-all of 200 ranks ends") {
  constexpr int ranks = 200;
  const Job job{ranks};
  std::vector<std::vector<ExchangeWork>> all;
  for (int r = 0; r < ranks; ++r) {
    all.push_back(launches(table_of(r, ranks, [](int, int) { return 1; }), job.ring(r)));
  }
  CHECK(all_end(all));
}

TEST_CASE("empty messages known at one end only do not change the places of others") {
  constexpr int ranks = 3, count = 100;
  const Job job{ranks};
  std::vector<std::vector<ExchangeWork>> all;
  for (int r = 0; r < ranks; ++r) {
    MessageTable table{ranks};
    for (int p = 0; p < ranks; ++p) {
      if (p == r) continue;
      for (int n = 0; n < count; ++n) {
        table.send(p, name(r, p, n), 8);
        if (r == 0) table.send(p, name(r, p, 1000), 0);
        table.recv(p, name(p, r, n), 8);
      }
    }
    all.push_back(launches(table, job.ring(r)));
    CHECK(all.back().size() == 3);
    check_whole(all.back(), r, ranks, [](int from, int to) { return from == to ? 0 : count; });
  }
  CHECK(all_end(all));
}
