#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/lanes/phases.hpp>

#include <memory>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("a launch has an entry for each of its first channels, until the ring comes round") {
  const auto log = std::make_unique<PhaseLog>();
  CHECK(PhaseLog::place(nullptr, 1, 0) == nullptr);
  CHECK(PhaseLog::place(log.get(), 0, 0) == nullptr);  // a call without a ticket
  CHECK(PhaseLog::place(log.get(), 1, PhaseLog::channels) == nullptr);
  CHECK(PhaseLog::place(log.get(), 1, 2) == &log->times[1][2]);
  CHECK(PhaseLog::place(log.get(), 1 + PhaseLog::launches, 2) == &log->times[1][2]);
}

TEST_CASE("several objects of a launch keep the earliest of what comes first") {
  PhaseTimes times{7, 1, 2, 3, 4, 5};  // of an earlier launch
  PhaseNotes<HostMemory>{&times}.begin(9);
  CHECK((times.ticket == 9 && times.begun > 5));
  CHECK((times.ready == 0 && times.first_data == 0 && times.last_data == 0 && times.ended == 0));
  PhaseNotes<HostMemory> first{&times}, second{&times}, idle{&times};
  first.ready();
  first.received();
  first.merge();
  const PhaseTimes before = times;
  CHECK((before.begun <= before.ready && before.ready <= before.first_data));
  CHECK(before.first_data == before.last_data);
  second.ready();
  second.received();
  second.received();
  second.merge();
  idle.merge();
  CHECK((times.ready == before.ready && times.first_data == before.first_data));
  CHECK(times.last_data > before.last_data);
  second.end();
  CHECK(times.ended >= times.last_data);
}

TEST_CASE("lanes without a place write nothing") {
  PhaseNotes<HostMemory> notes{nullptr};
  notes.begin(1);
  notes.ready();
  notes.received();
  notes.merge();
  notes.write();
  notes.end();
  PhaseTimes times;
  PhaseNotes<HostMemory> only{&times};
  only.begin(3);
  only.ready();
  only.received();
  CHECK(times.first_data == 0);
  only.write();
  CHECK((times.ready != 0 && times.first_data == times.last_data && times.first_data != 0));
}

TEST_CASE("the notes of a launch begin and end with an object") {
  const auto logs = std::make_unique<PhaseLog[]>(2);
  AbortWatch watch;
  watch.ticket = 5;
  const auto launch = [&](PhaseLog* log, int channel) {
    watch.phases = log;
    LaunchNotes<HostMemory> notes{SoloLane{}, watch, channel};
    notes.ready();
    notes.received();
  };
  launch(logs.get(), 1);
  const PhaseTimes& at = logs[0].times[5][1];
  CHECK((at.ticket == 5 && at.begun != 0 && at.begun <= at.ready && at.ready <= at.first_data));
  CHECK((at.first_data == at.last_data && at.last_data <= at.ended));
  CHECK(logs[0].times[5][0].ticket == 0);
  // Those after the first of a call have a log of their own.
  CHECK(PhaseLog::further(nullptr) == nullptr);
  launch(PhaseLog::further(logs.get()), 1);
  CHECK((logs[1].times[5][1].ticket == 5 && logs[1].times[5][1].begun >= at.ended));
  launch(nullptr, 1);  // nobody wants notes
}
