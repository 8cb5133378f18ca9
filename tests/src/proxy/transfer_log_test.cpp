#include "proxy/transfer_log.hpp"

#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

#include "proxy/transfer_notes.hpp"
#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
Edge edge_to(int peer, EdgeSide side) {
  Edge edge;
  edge.side = side;
  edge.peer.rank = peer;
  edge.shape = {1, 4, 4096};
  edge.id = 9ull << 40 | 3ull << 20 | 5;  // composition 9, from rank 3 to rank 5
  return edge;
}
}  // namespace

TEST_CASE("a log keeps the latest transfers, with all of their members") {
  TransferLog log{3};
  CHECK(log.latest().empty());
  const int eth = log.network("eth0"), ib = log.network("mlx5_0:1");
  CHECK(log.network("eth0") == eth);
  for (int n = 0; n < 5; ++n) {
    log.add({100'000 + n, 70'000, 63, 32'000, n % 2 == 0},
            {Word(n), Word(10 * n), Word(n + 1), Word(n + 2), Word(n + 3)}, n % 2 == 0 ? eth : ib);
  }
  const auto kept = log.latest();
  REQUIRE(kept.size() == 3);
  for (int n = 2; n < 5; ++n) {
    const TransferLog::Kept& one = kept[std::size_t(n - 2)];
    CHECK((one.line.peer == 100'000 + n && one.line.composition == 70'000));
    CHECK((one.line.channel == 63 && one.line.stream == 32'000));
    CHECK(one.line.sends == (n % 2 == 0));
    CHECK((one.times.step == Word(n) && one.times.bytes == Word(10 * n)));
    CHECK((one.times.posted == Word(n + 1) && one.times.begun == Word(n + 2)));
    CHECK(one.times.ended == Word(n + 3));
    CHECK(one.network == (n % 2 == 0 ? "eth0" : "mlx5_0:1"));
  }
}

TEST_CASE("threads write a log while another reads whole entries") {
  TransferLog log{8};
  constexpr int writers = 2, each = 20'000;
  std::atomic<int> writing{writers};
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      for (int n = 0; n < each; ++n) {
        const Word value = Word(n) * writers + Word(w);
        log.add({int(value), w, 0, 0, true}, {value, value, value, value, value}, 0);
      }
      --writing;
    });
  }
  int read = 0, torn = 0;
  do {
    for (const TransferLog::Kept& one : log.latest()) {
      ++read;
      const Word value = one.times.step;
      const bool whole = one.line.peer == int(value) && one.line.composition == int(value % 2) &&
                         one.times.bytes == value && one.times.posted == value &&
                         one.times.begun == value && one.times.ended == value;
      torn += !whole;
    }
  } while (writing > 0 || read == 0);
  for (auto& thread : threads) thread.join();
  CHECK(torn == 0);
}

TEST_CASE("notes have the time of the post, of the first bytes and of the last ones") {
  TransferLog log{16};
  TransferNotes notes{&log, edge_to(5, EdgeSide::sender), Wire{}, 2, 1};
  notes.use_networks({"a", "b"});
  notes.posted(2);
  notes.posted(1);  // nothing new
  const Word first = notes.now();
  notes.begin(0, first);
  notes.begin(0, first + 1'000'000'000);  // a later part of it
  notes.end(0, 100, first);
  const Word second = notes.now();
  notes.end(1, 50, second);  // moved by one call
  notes.posted(9);           // more than there are slots
  notes.end(8, 1, notes.now());
  const auto kept = log.latest();
  REQUIRE(kept.size() == 3);
  for (const TransferLog::Kept& one : kept) {
    CHECK((one.line.peer == 5 && one.line.composition == 9 && one.line.sends));
    CHECK((one.line.channel == 2 && one.line.stream == 1));
    CHECK((one.times.posted != 0 && one.times.posted <= one.times.begun));
    CHECK(one.times.begun <= one.times.ended);
    CHECK(one.network == (one.times.step % 2 == 0 ? "a" : "b"));
  }
  CHECK((kept[0].times.begun == first && kept[1].times.begun == second));
}

TEST_CASE("notes of a task without a log have no code") {
  STATIC_REQUIRE(std::is_empty_v<NoTransferNotes>);
  STATIC_REQUIRE((TransferNotes::wanted && !NoTransferNotes::wanted));
  CHECK(NoTransferNotes::now() == 0);
}
