#include <ccl/detail/exchange/message_list.hpp>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {

char* name(int peer, int nth) {
  return reinterpret_cast<char*>((Word(peer) << 16 | Word(nth)) + 1);
}

/// Compares a list with the messages of each peer, in their order.
void check_same(MessageList& list, const std::vector<std::vector<Message>>& expected) {
  REQUIRE(list.size() == expected.size());
  long wrong = 0;
  std::size_t all = 0;
  for (std::size_t p = 0; p < expected.size(); ++p) {
    const auto found = list[p];
    wrong += !std::equal(
        found.begin(), found.end(), expected[p].begin(), expected[p].end(),
        [](const Message& a, const Message& b) { return a.data == b.data && a.bytes == b.bytes; });
    all += expected[p].size();
  }
  CHECK(wrong == 0);
  CHECK(list.all().size() == all);
  Cursor cursor;
  const Messages view = list.view(&cursor);
  CHECK(view.cursor == &cursor);
  for (std::size_t p = 0; p < expected.size(); ++p) {
    wrong += view.begin[p + 1] - view.begin[p] != int(expected[p].size());
    wrong += !expected[p].empty() && view.message[view.begin[p]].data != expected[p][0].data;
  }
  CHECK(view.begin[0] == 0);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("messages are listed peer by peer, in whatever order they come") {
  std::mt19937 random{7};
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 + int(random() % 9);
    MessageList list{ranks};
    std::vector<std::vector<Message>> expected(static_cast<std::size_t>(ranks));
    for (int n = int(random() % 20); n > 0; --n) {
      const int peer = int(random() % unsigned(ranks));
      auto& of_peer = expected[std::size_t(peer)];
      of_peer.push_back({name(peer, int(of_peer.size())), Index(random() % 3)});
      list.add(peer, of_peer.back());
      if (random() % 8 == 0) check_same(list, expected);  // a list may grow after it was viewed
    }
    check_same(list, expected);
    MessageList copied = list;
    MessageList moved = std::move(list);
    check_same(copied, expected);
    check_same(moved, expected);
  }
}

TEST_CASE("a list in memory that a longer one left is empty") {
  {
    MessageList longer{8};
    for (int p = 0; p < 8; ++p) longer.add(p, {name(p, 0), 1});
    (void)longer.view(nullptr);
  }
  MessageList list{3};
  check_same(list, {{}, {}, {}});
  list.add(1, {name(1, 0), 4});
  check_same(list, {{}, {{name(1, 0), 4}}, {}});
}

TEST_CASE("a table has a list for each direction") {
  MessageTable table{2};
  int sent = 0, received = 0;
  table.send(1, &sent, sizeof sent);
  table.recv(0, &received, sizeof received);
  REQUIRE(table.sends[1].size() == 1);
  CHECK(table.sends[1][0].data == reinterpret_cast<char*>(&sent));
  CHECK(table.sends[0].empty());
  REQUIRE(table.recvs[0].size() == 1);
  CHECK(table.recvs[0][0].bytes == Index{sizeof received});
}
