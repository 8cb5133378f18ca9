// Registered buffers over RDMA, on emulated devices: what a NIC reads and writes itself, what goes
// through slots all the same, and when a registration ends.
#include <ccl/algo/pairwise.hpp>
#include <ccl/collective.hpp>
#include <ccl/comm/registered_buffer.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/calls/rings.hpp"
#include "support/fake_verbs.hpp"
#include "support/log_of.hpp"
#include "support/on_ranks.hpp"
#include "support/registered_calls.hpp"
#include "support/two_ranks.hpp"
#include "transport/registered_memory.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::registered;

namespace {

/// All ranks exchange messages of `count` ints with each other.
Result<void> exchange_ints(const Communicator& comm, auto& all_to_all, Buffers<int>& memory,
                           Index count, int round) {
  const int me = comm.rank(), ranks = comm.ranks();
  for (int p = 0; p < ranks; ++p) {
    for (Index i = 0; i < count; ++i) {
      memory.in[std::size_t(p * count + i)] = int(i * 7 + me * 1000 + p * 100 + round);
    }
  }
  CCL_CHECK(all_to_all(memory.in.data(), memory.out.data(), count));
  for (int p = 0; p < ranks; ++p) {
    for (Index i = 0; i < count; ++i) {
      const int wanted = int(i * 7 + p * 1000 + me * 100 + round);
      if (memory.out[std::size_t(p * count + i)] == wanted) continue;
      return fail(Errc::internal, "int " + std::to_string(i) + " from rank " + std::to_string(p) +
                                      " is wrong in round " + std::to_string(round));
    }
  }
  return {};
}

}  // namespace

TEST_CASE("rings send from registered buffers and receive into them") {
  FakeVerbs fabric{1};
  const int ranks = GENERATE(2, 3, 4);
  const auto what =
      GENERATE(Registers::neither, Registers::input, Registers::output, Registers::both);
  const Index count = 6 * ints_of_slot * ranks;
  const auto comms = cpu_ranks(ranks);
  const Word message = Word(count) * sizeof(int), share = message / Word(ranks);
  const Word bytes = Word(ranks) * 2 * 2 * Word(ranks - 1) * share;  // sent and received
  const Moved reduced = moved_by(comms, bytes, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, RingSums::create(comm, Via::ib, plan));
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, count, count, what));
      std::iota(memory.in.begin(), memory.in.end(), comm.rank());
      CCL_CHECK(sum(memory.in.data(), memory.out.data(), count));
      for (Index i = 0; i < count; ++i) {
        const Index wanted = i * ranks + ranks * (ranks - 1) / 2;
        if (memory.out[std::size_t(i)] != int(wanted)) return fail(Errc::internal, "a wrong sum");
      }
      return await_counted(comm, bytes / Word(ranks));
    });
  });
  CHECK(reduced.bytes == bytes);
  // The first share is the rank's own input, R - 1 are finished results. Partial sums are made in
  // slots and read there, which costs no further copy.
  const Word results = Word(ranks - 1) * share;
  const Word sent = (registers_input(what) ? share : 0) + (registers_output(what) ? results : 0);
  const Word landed = registers_output(what) ? results : 0;
  const Word announced = registers_output(what) ? Word(slots * slot_bytes) : 0;
  CHECK(reduced.registered <= Word(ranks) * (sent + landed));
  CHECK(reduced.registered >= Word(ranks) * (sent + landed - announced));
}

TEST_CASE("messages land in registered buffers, beyond the slots that were announced before") {
  FakeVerbs fabric{2};
  const auto what =
      GENERATE(Registers::neither, Registers::input, Registers::output, Registers::both);
  constexpr Index steps = 40, count = steps * ints_of_slot;
  constexpr Word each = Word(steps * slot_bytes), bytes = 2 * 2 * each;  // sent and received
  const auto comms = cpu_ranks(2);
  const Moved exchanged = moved_by(comms, bytes, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      using Exchange = Collective<AllToAll, Pairwise, Simple, IbTransport>;
      CCL_TRY(auto all_to_all, Exchange::create(comm, plan));
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, 2 * count, 2 * count, what));
      CCL_CHECK(exchange_ints(comm, all_to_all, memory, count, 0));
      return await_counted(comm, bytes / 2);
    });
  });
  CHECK(exchanged.bytes == bytes);
  const Word sent = registers_input(what) ? 2 * each : 0;
  const Word most = registers_output(what) ? 2 * each : 0;
  const Word through_slots = registers_output(what) ? 2 * Word(slots * slot_bytes) : 0;
  CHECK(exchanged.registered <= sent + most);
  CHECK(exchanged.registered >= sent + most - through_slots);
}

TEST_CASE("calls of rings, in place or not, registered or not, follow each other") {
  FakeVerbs fabric{2};
  const bool late = GENERATE(false, true), breaks = GENERATE(false, true);
  fabric.faults.delay_polls = late ? 6 : 0;
  fabric.faults.reorder = late;
  const int ranks = GENERATE(2, 3);
  constexpr Index most = 20 * ints_of_slot;
  const Plan small_chunks{.channels = 2, .slot_count = late ? 2 : 8, .slot_bytes = slot_bytes};
  const auto comms = cpu_ranks(ranks);
  const Moved all = moved_by(comms, 0, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, RingSums::create(comm, Via::ib, small_chunks));
      CCL_TRY(auto gather, RingGathers::create(comm, small_chunks));
      CCL_TRY(auto broadcast, RingBroadcasts::create(comm, Via::ib, small_chunks));
      for (int round = 0; round < 8; ++round) {
        const Word chance = mix(Word(round));  // the same on all ranks
        const Index count = 1 + Index(chance % Word(round % 4 == 3 ? 64 : most));
        const bool in_place = (round + comm.rank()) % 2 == 0;
        Buffers<int> memory;
        CCL_CHECK(memory.make(comm, count, ranks * count,
                              Registers((Word(round) / 2 + Word(comm.rank())) % 4)));
        if (breaks && comm.rank() == 0 && round % 3 == 1) fabric.break_one(round % 2);
        CCL_CHECK(sum_ints(comm, sum, memory, count, in_place));
        CCL_CHECK(gather_ints(comm, gather, memory, count, in_place));
        CCL_CHECK(broadcast_ints(comm, broadcast, memory, count, round % ranks));
      }
      return {};
    });
  });
  CHECK(all.registered > all.bytes / 8);
  CHECK(all.registered < all.bytes);
}

TEST_CASE("small and large messages, registered or not, take turns on the same wires") {
  FakeVerbs fabric{2};
  fabric.faults.delay_polls = GENERATE(0, 6);
  fabric.faults.reorder = true;
  const bool breaks = GENERATE(false, true);
  const Environment environment{{{"CCL_IB_QPS_PER_CONNECTION", "2"}}};
  constexpr Index most = 9 * ints_of_slot;
  constexpr int rounds = 40;
  const int ranks = GENERATE(2, 3);
  const auto comms = cpu_ranks(ranks);
  const Moved exchanged = moved_by(comms, 0, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      using Exchange = Collective<AllToAll, Pairwise, Simple, IbTransport>;
      CCL_TRY(auto all_to_all, Exchange::create(comm, plan));
      for (int round = 0; round < rounds; ++round) {
        const Word chance = mix(Word(round));  // the same on all ranks
        const Index count = chance % 3 == 0 ? 1 + Index(chance % 50) : 1 + Index(chance % most);
        const auto what = Registers((Word(round) + Word(comm.rank())) % 4);
        Buffers<int> memory;
        CCL_CHECK(memory.make(comm, ranks * count, ranks * count, what));
        if (breaks && comm.rank() == 0 && round % 8 == 4) fabric.break_one(round % 3);
        CCL_CHECK(exchange_ints(comm, all_to_all, memory, count, round));
      }
      return {};
    });
  });
  CHECK(exchanged.registered > exchanged.bytes / 8);
  CHECK(exchanged.registered < exchanged.bytes);
}

TEST_CASE("a step that is lost is sent again from the user's memory, to the user's memory") {
  FakeVerbs fabric{2};
  fabric.faults.forge_every = 29;
  fabric.faults.forged_arrives = GENERATE(false, true);
  constexpr Index count = 20 * ints_of_slot;
  const auto comms = cpu_ranks(2);
  const Moved exchanged = moved_by(comms, 0, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      using Exchange = Collective<AllToAll, Pairwise, Simple, IbTransport>;
      CCL_TRY(auto all_to_all, Exchange::create(comm, plan));
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, 2 * count, 2 * count, Registers::both));
      for (int round = 0; round < 4; ++round) {
        CCL_CHECK(exchange_ints(comm, all_to_all, memory, count, round));
      }
      return {};
    });
  });
  CHECK(exchanged.registered > exchanged.bytes / 2);
  CHECK(fabric.faults.forgeries > 2);
}

TEST_CASE("memory that a NIC cannot register goes through slots, and the log names it once") {
  FakeVerbs fabric{1};
  constexpr Index count = 20 * ints_of_slot;
  Moved exchanged;
  const std::string log = log_of([&] {
    const auto comms = cpu_ranks(2);
    std::atomic<int> ready{0};
    exchanged = moved_by(comms, 0, [&] {
      on_all(comms, [&](const Communicator& comm) -> Result<void> {
        CCL_TRY(auto gather, RingGathers::create(comm, plan));
        ++ready;  // the slots of both are registered
        while (ready < 2) std::this_thread::yield();
        if (comm.rank() == 0) {
          const std::lock_guard lock{fabric.mutex};
          fabric.faults.refuse_memory = true;
          ++ready;
        }
        while (ready < 3) std::this_thread::yield();
        Buffers<int> memory;
        CCL_CHECK(memory.make(comm, count, 2 * count, Registers::both));
        std::fill(memory.in.begin(), memory.in.end(), 40 + comm.rank());
        for (int n = 0; n < 3; ++n) {
          CCL_CHECK(gather(memory.in.data(), memory.out.data(), count));
        }
        if (memory.out.front() == 40 && memory.out.back() == 41) return {};
        return fail(Errc::internal, "wrong data");
      });
    });
  });
  CHECK(exchanged.registered == 0);
  INFO(log);
  const std::string line = "goes through slots (cannot register ";
  CHECK(contains(log, "the registered buffer of " + std::to_string(count * 4) + " bytes at "));
  CHECK(contains(log, line));
  CHECK(contains(log, "RLIMIT_MEMLOCK"));
  std::size_t lines = 0;
  for (auto at = log.find(line); at != log.npos; at = log.find(line, at + 1)) ++lines;
  CHECK(lines <= 2 * 2);  // each buffer of each rank
}
