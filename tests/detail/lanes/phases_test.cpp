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
