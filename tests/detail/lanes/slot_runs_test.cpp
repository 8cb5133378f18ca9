#include <ccl/detail/lanes/slot_runs.hpp>

#include <string>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("slots of runs take turns, and each is filled piece by piece") {
  char slots[2][64];
  const char from[2][100] = {};
  SlotRuns runs;
  runs.slot_count = 2;
  runs.slot_bytes = 32;
  runs.add(slots[0], from[0], 80, {});
  runs.add(slots[1], from[1], 36, {});
  std::string order;
  for (SlotPieces at{runs, 24}; at.left(); at.next()) {
    const int run = at.run();
    order += std::to_string(run) + ":" + std::to_string(at.from() - from[run]) + ">" +
             std::to_string(at.to() - slots[run]) + "+" + std::to_string(at.bytes()) +
             (at.begins_slot() ? "b" : "") + (at.ends_slot() ? "e" : "") + " ";
    CHECK(at.slot() == (at.from() - from[run]) / 32);
  }
  CHECK(order ==
        "0:0>0+24b 0:24>24+8e 1:0>0+24b 1:24>24+8e "
        "0:32>32+24b 0:56>56+8e 1:32>32+4be 0:64>0+16be ");
}

TEST_CASE("runs without bytes have no piece") {
  SlotRuns runs;
  runs.slot_bytes = 32;
  CHECK_FALSE(SlotPieces{runs, 16}.left());
  runs.add(nullptr, nullptr, 0, {});
  CHECK_FALSE(SlotPieces{runs, 16}.left());
}
