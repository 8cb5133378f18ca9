// Registered buffers over a network plug-in: what it sends from them and receives into them, and
// when their registrations end.
#include <ccl/comm/registered_buffer.hpp>

#include "support/calls/rings.hpp"
#include "support/environment.hpp"
#include "support/error_matchers.hpp"
#include "support/log_of.hpp"
#include "support/net_plug_in.hpp"
#include "support/on_ranks.hpp"
#include "support/registered_calls.hpp"
#include "transport/registered_memory.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::registered;

namespace {

constexpr int ranks = 2;
constexpr Index count = 12 * ints_of_slot * ranks;
constexpr Word share = Word(count) * sizeof(int) / ranks;
constexpr Word bytes = Word(ranks) * 2 * 2 * share;  // sent and received

Moved sums_moved(const std::vector<Communicator>& comms, Registers what) {
  return moved_by(comms, bytes, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, RingSums::create(comm, Via::plugin, plan));
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, count, count, what));
      CCL_CHECK(sum_ints(comm, sum, memory, count, false));
      return await_counted(comm, bytes / ranks);
    });
  });
}

}  // namespace

TEST_CASE("rings send from registered buffers and receive into them over a plug-in") {
  const TestNet net{GENERATE(12, 9)};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  const auto what =
      GENERATE(Registers::neither, Registers::input, Registers::output, Registers::both);
  const auto comms = cpu_ranks(ranks);
  const Moved reduced = sums_moved(comms, what);
  CHECK(reduced.bytes == bytes);
  const Word sent = (registers_input(what) ? share : 0) + (registers_output(what) ? share : 0);
  const Word landed = registers_output(what) ? share : 0;
  // Receives into slots were under way when the call began.
  const Word before = registers_output(what) ? Word(slots * slot_bytes) : 0;
  CHECK(reduced.registered <= ranks * (sent + landed));
  CHECK(reduced.registered >= ranks * (sent + landed - before));
  CHECK(wait_until([&] { return net.calls("deregMr") == net.calls("regMr"); }));
}

TEST_CASE("a buffer that a plug-in cannot register goes through slots, and the log says so once") {
  const TestNet net{11};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  const auto comms = cpu_ranks(ranks);
  const std::string log = log_of([&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, RingSums::create(comm, Via::plugin, plan));
      {
        Buffers<int> first;  // the slots of all connections are registered when its call has ended
        CCL_CHECK(first.make(comm, count, count, Registers::neither));
        CCL_CHECK(sum_ints(comm, sum, first, count, false));
      }
      CCL_CHECK(comm.barrier());
      net.fail("regMr", 0, 1);
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, count, count, Registers::both));
      return sum_ints(comm, sum, memory, count, false);
    });
    net.fail("regMr", 0, 0);
  });
  CHECK(moved(comms).registered == 0);
  CHECK(mentions(log, "goes through slots (regMr of the network plug-in Test"));
}

TEST_CASE("a registration ends with its buffer while the connection lives on") {
  const TestNet net{10};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  on_all(cpu_ranks(ranks), [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sum, RingSums::create(comm, Via::plugin, plan));
    for (int round = 0; round < 3; ++round) {
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, count, count, Registers::both));
      CCL_CHECK(sum_ints(comm, sum, memory, count, false));
      memory.kept.clear();
      CCL_CHECK(comm.barrier());
      // The slots of two ends each on two ranks, of one channel.
      if (net.calls("regMr") - net.calls("deregMr") != 4) {
        return fail(Errc::internal, "registrations are left");
      }
      CCL_CHECK(comm.barrier());
    }
    return {};
  });
}

TEST_CASE("after a call that fails, the plug-in does not access its buffers") {
  const TestNet net{9};
  const Environment by{"CCL_NET_PLUGIN", net.path()};
  const auto comms = cpu_ranks(ranks);
  const auto results = on_ranks(comms, [&](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto sum, RingSums::create(comm, Via::plugin, plan));
    Buffers<int> memory;
    CCL_CHECK(memory.make(comm, count, count, Registers::both));
    CCL_CHECK(sum_ints(comm, sum, memory, count, false));
    CCL_CHECK(comm.barrier());
    net.fail("isend", 8, 2);
    const Result<void> done = sum_ints(comm, sum, memory, count, false);
    return done;  // and the buffers are freed
  });
  net.fail("isend", 0, 0);
  for (const auto& result : results) {
    REQUIRE_FALSE(result);
    CHECK(mentions(result.error().what, "isend of the network plug-in Test"));
  }
}
