#include "comm/observe/call_counters.hpp"

#include <memory>
#include <string>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("each operation has its own counter, and unknown names share the last") {
  for (std::size_t i = 0; i < CallCounters::operations.size(); ++i) {
    CHECK(CallCounters::operation_of(CallCounters::operations[i]) == int(i));
  }
  CHECK(CallCounters::operation_of("all_reduced") == int(CallCounters::operations.size()) - 1);
  CHECK(CallCounters::operation_of("") == int(CallCounters::operations.size()) - 1);
}

TEST_CASE("a class holds the sizes up to its bound") {
  CHECK(CallCounters::class_of(-1) == CallCounters::unknown);
  CHECK(CallCounters::class_of(0) == 0);
  for (std::size_t c = 0; c < CallCounters::class_bytes.size(); ++c) {
    const Index most = CallCounters::class_bytes[c];
    INFO(most);
    CHECK(CallCounters::class_of(most) == int(c));
    CHECK(CallCounters::class_of(most + 1) == int(c) + 1);
  }
  CHECK(CallCounters::class_of(Index{1} << 50) == CallCounters::larger);
}

TEST_CASE("calls, bytes and durations are counted by operation and size") {
  const auto counters = std::make_unique<CallCounters>();
  FlightRecorder recorder{4};
  const auto call = [&](const CallInfo& info) {
    const auto [cell, tally] = counters->call(CallCounters::operation_of(info.what), info, 4);
    (void)recorder.note({}, false, tally);
    return cell;
  };
  const int sum = call(call_info<float>("all_reduce", 1000, -1));
  CHECK(call(call_info<float>("all_reduce", 1000, -1)) == sum);
  const int gather = call(call_info<double>("all_gather", 1000, -1));
  CHECK(call(call_info<char>("send_recv", -1, -1)) % CallCounters::classes ==
        CallCounters::unknown);
  Word ticks = 0;
  for (const bool well : {true, true, false}) {
    const Word ticket = recorder.note({}).ticket;
    recorder.started(ticket);
    const Word took = recorder.ended(ticket, well, counters->end_tally(sum));
    if (well) ticks += took;
  }
  counters->failed(sum);
  counters->failed(-1);  // a call that was not counted
  CHECK(counters->end_tally(-1).calls == nullptr);
  const auto& cell = counters->cell(sum / CallCounters::classes, sum % CallCounters::classes);
  CHECK(cell.calls == 2);
  CHECK(cell.bytes == 8000);
  CHECK(cell.ended == 2);
  CHECK(ticks > 0);
  CHECK(cell.ticks == ticks);
  CHECK(cell.failed == 1);
  const auto& other =
      counters->cell(gather / CallCounters::classes, gather % CallCounters::classes);
  CHECK(other.bytes == 32000);  // of the whole buffer
  CHECK(counters->calls(CallCounters::operation_of("all_reduce")) == 2);
  (void)recorder.note({}, false, counters->barrier().tally);
  CHECK(counters->calls(CallCounters::operation_of("barrier")) == 1);
  CHECK(counters->calls(CallCounters::operation_of("all_reduce")) == 2);
}

TEST_CASE("bus bandwidth counts as in the benchmarks") {
  const auto factor = [](const char* op, int ranks) {
    return CallCounters::bus_factor(CallCounters::operation_of(op), ranks);
  };
  CHECK(factor("all_reduce", 4) == 1.5);
  CHECK(factor("all_reduce_rows", 4) == 1.5);
  CHECK(factor("all_gather", 4) == 0.75);
  CHECK(factor("broadcast", 4) == 1);
  CHECK(factor("all_reduce", 1) == 1);
}
