#include <ccl/comm/report.hpp>

#include <cstddef>
#include <span>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/rank_statuses.hpp"

using namespace ccl;
using namespace ccl::test;

TEST_CASE("an account comes back from its bytes, and other bytes are refused") {
  RankStatus rank_status = ring(4)[3];
  rank_status.pid = 7;
  rank_status.now_ns = 99;
  rank_status.rendezvous = "split";
  rank_status.shortage = "132 of 256 blocks";
  rank_status.elsewhere = {"operation 3 of communicator b", "there", 17};
  rank_status.network_bytes = 1000;
  rank_status.proxy_stuck_s = 2.5;
  rank_status.asks_about = 5;
  rank_status.rendezvous_number = 12;
  for (int i = 0; i < 100; ++i) {
    rank_status.steps.push_back({i % 10, i / 10, i % 2 == 0, 5, 4, 3, i % 2 == 0});
  }
  const auto bytes = detail::pack(rank_status);
  RankStatus back;
  REQUIRE(detail::unpack(bytes, back));
  CHECK((back.rank == 3 && back.answered && back.host == "here" && back.pid == 7));
  CHECK(back.rendezvous == "split");
  CHECK(back.shortage == "132 of 256 blocks");
  CHECK(back.elsewhere.text == "operation 3 of communicator b");
  CHECK((back.elsewhere.peer_host == "there" && back.elsewhere.peer_pid == 17));
  CHECK((back.network_bytes == 1000 && back.proxy_stuck_s == 2.5 && back.asks_about == 5));
  CHECK(back.rendezvous_number == 12);
  CHECK(detail::asks_about(bytes) == 5);
  CHECK(detail::asks_about(std::span{bytes}.first(100)) == 0);
  CHECK(mentions(diagnose({back}, 0).text(), "132 of 256 blocks"));
  CHECK((back.now_ns == 99 && back.called == 5 && back.waits.peer == 2 && back.waits.step == 12));
  REQUIRE(back.operations.size() == 5);
  CHECK(back.operations[4].state == OpState::running);
  REQUIRE(back.steps.size() == 64);
  for (int i = 0; i < 10; ++i) CHECK(back.steps[i].peer == 2);  // first those that matter
  CHECK((back.steps[0].composition == 3 && back.steps[0].proxied == back.steps[0].sends));
  CHECK_FALSE(detail::unpack(std::span{bytes}.first(bytes.size() - 1), back));
  CHECK_FALSE(detail::unpack({}, back));
  auto wrong = bytes;
  wrong[0] = std::byte{0};
  CHECK_FALSE(detail::unpack(wrong, back));
  CHECK(detail::asks_about(wrong) == 0);
  wrong = bytes;
  wrong[wrong.size() - sizeof(WireSteps) + offsetof(WireSteps, proxied)] = std::byte{2};
  CHECK_FALSE(detail::unpack(wrong, back));
}
