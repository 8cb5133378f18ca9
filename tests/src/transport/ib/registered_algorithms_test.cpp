// Registered buffers over RDMA, on emulated devices, by algorithms with several peers: trees, and
// those of few hops. Rings and messages are in registered_test.cpp.
#include <ccl/algo/bruck.hpp>
#include <ccl/algo/doubling.hpp>
#include <ccl/algo/pat.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "support/brief.hpp"
#include "support/fake_verbs.hpp"
#include "support/on_ranks.hpp"
#include "support/registered_calls.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::registered;

namespace {
/// What `ranks` ranks moved in one call, which `call(comm, collective, memory)` makes and checks.
/// All together send `sent` bytes, and receive as much.
template <class C, class Call>
Moved moved_in_call(int ranks, Registers what, Index ins, Index outs, Word sent, Call call) {
  const auto comms = cpu_ranks(ranks);
  const Moved all = moved_by(comms, 2 * sent, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto made, C::create(comm, plan));
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, ins, outs, what));
      CCL_CHECK(call(comm, made, memory));
      // Connections live until all has been counted.
      return await_counted(comms, 2 * sent);
    });
  });
  CHECK(all.bytes == 2 * sent);
  return all;
}

/// Shares of an AllGather cross once into each other rank, whatever the algorithm.
template <class Algo>
void check_gather(int ranks, int max_wires) {
  INFO(Algo::name << ", " << ranks << " ranks");
  const Index count = 24 * ints_of_slot;
  const Word sent = Word(ranks) * Word(ranks - 1) * Word(count) * sizeof(int);
  const auto run = [&](Registers what, bool in_place) {
    using Gather = Collective<AllGather, Algo, Simple, IbTransport>;
    return moved_in_call<Gather>(ranks, what, count, count * ranks, sent,
                                 [&](const Communicator& comm, auto& gather, auto& memory) {
                                   return gather_ints(comm, gather, memory, count, in_place);
                                 });
  };
  CHECK(run(Registers::neither, false).registered == 0);
  // All that is sent lies in a buffer. What arrives lands there, beyond the slots of each wire that
  // were announced before the call.
  const Word announced = Word(ranks * max_wires) * Word(slots * slot_bytes);
  for (const bool in_place : {false, true}) {
    const Moved both = run(in_place ? Registers::output : Registers::both, in_place);
    CHECK(both.registered <= 2 * sent);
    CHECK(both.registered + announced >= 2 * sent);
    CHECK(both.registered > sent);  // some of what arrives, too
  }
}
}  // namespace

TEST_CASE("gathers in few hops send from registered buffers and receive into them") {
  FakeVerbs fabric{1};
  const int ranks = GENERATE(2, 4, 5);
  if (brief && ranks == 5) return;
  check_gather<Bruck>(ranks, Bruck::max_wires(ranks));
  check_gather<Doubling>(ranks, ranks == 5 ? 3 : 2);
  check_gather<Pat>(ranks, Pat::max_wires(ranks));
}

TEST_CASE("trees send results from registered buffers and receive into them") {
  FakeVerbs fabric{1};
  const int ranks = GENERATE(2, 4, 5);
  if (brief && ranks == 5) return;
  const auto what = GENERATE(Registers::neither, Registers::both);
  const bool in_place = GENERATE(false, true);
  const Index count = 30 * ints_of_slot;
  const Word message = Word(count) * sizeof(int), edges = Word(ranks - 1);
  const Word announced = edges * Word(slots * slot_bytes);
  const bool registers = what == Registers::both;
  using Sum = Collective<AllReduce, Tree, Simple, IbTransport>;
  const Moved summed = moved_in_call<Sum>(ranks, what, count, count, 2 * edges * message,
                                          [&](const Communicator& comm, auto& sum, auto& memory) {
                                            return sum_ints(comm, sum, memory, count, in_place);
                                          });
  // Down the tree everything is a result. Up, leaves send their input, and what is added up goes
  // through slots.
  CHECK(summed.registered <= (registers ? 3 * edges * message : 0));
  CHECK(summed.registered + announced >= (registers ? (2 * edges + 1) * message : 0));
  const auto cast = [&]<class Algo>(Algo) {
    INFO(Algo::name);
    using Cast = Collective<Broadcast, Algo, Simple, IbTransport>;
    const Moved all =
        moved_in_call<Cast>(ranks, what, count, count, edges * message,
                            [&](const Communicator& comm, auto& broadcast, auto& memory) {
                              return broadcast_ints(comm, broadcast, memory, count, ranks - 1);
                            });
    CHECK(all.registered <= (registers ? 2 * edges * message : 0));
    CHECK(all.registered + announced >= (registers ? 2 * edges * message : 0));
  };
  cast(Tree{});
  cast(Pat{});
}

TEST_CASE("calls of trees and gathers, in place or not, registered or not, survive failures") {
  FakeVerbs fabric{2};
  const bool breaks = GENERATE(false, true);
  fabric.faults.delay_polls = 6;
  fabric.faults.reorder = true;
  const int ranks = GENERATE(3, 4);
  const Plan two{.channels = 2, .slot_count = 4, .slot_bytes = slot_bytes};
  const auto comms = cpu_ranks(ranks);
  const Moved all = moved_by(comms, 0, [&] {
    on_all(comms, [&](const Communicator& comm) -> Result<void> {
      CCL_TRY(auto sum, (Collective<AllReduce, Tree, Simple, IbTransport>::create(comm, two)));
      CCL_TRY(auto pat, (Collective<AllGather, Pat, Simple, IbTransport>::create(comm, two)));
      CCL_TRY(auto bruck, (Collective<AllGather, Bruck, Simple, IbTransport>::create(comm, two)));
      CCL_TRY(auto cast, (Collective<Broadcast, Tree, Simple, IbTransport>::create(comm, two)));
      for (int round = 0; round < 4; ++round) {
        const Word chance = mix(Word(round));  // the same on all ranks
        const Index count = 1 + Index(chance % Word(12 * ints_of_slot));
        const bool in_place = (round + comm.rank()) % 2 == 0;
        Buffers<int> memory;
        CCL_CHECK(memory.make(comm, count, ranks * count,
                              Registers((Word(round) / 2 + 3 * Word(comm.rank())) % 4)));
        if (breaks && comm.rank() == 0) fabric.break_one(round);
        CCL_CHECK(sum_ints(comm, sum, memory, count, in_place));
        CCL_CHECK(gather_ints(comm, pat, memory, count, in_place));
        CCL_CHECK(gather_ints(comm, bruck, memory, count, !in_place));
        CCL_CHECK(broadcast_ints(comm, cast, memory, count, round % ranks));
      }
      return {};
    });
  });
  CHECK(all.registered > all.bytes / 16);
}

TEST_CASE("a call that waits for a rank in vain fails, and no NIC keeps the memory of the others") {
  FakeVerbs fabric{1};
  Config config;
  config.timeout_s = 0.3;
  const auto comms = cpu_ranks(4, config);
  const auto results = on_ranks(comms, [](const Communicator& comm) -> Result<void> {
    CCL_TRY(auto gather, (Collective<AllGather, Pat, Simple, IbTransport>::create(comm, plan)));
    if (comm.rank() == 3) return {};  // never calls
    const Index count = 24 * ints_of_slot;
    std::weak_ptr<detail::RegisteredMemory> kept[2];
    {
      Buffers<int> memory;
      CCL_CHECK(memory.make(comm, count, 4 * count, Registers::both));
      kept[0] = detail::find_registered(memory.in.data(), 1);
      kept[1] = detail::find_registered(memory.out.data(), 1);
      const auto began = std::chrono::steady_clock::now();
      const auto done = gather(memory.in.data(), memory.out.data(), count);
      if (done) return fail(Errc::internal, "did not fail");
      // Steps after the first failure do not wait, each in its own way, for the missing rank.
      const bool soon = std::chrono::steady_clock::now() - began < std::chrono::seconds{10};
      if (!soon) return fail(Errc::internal, "failed late");
    }
    const auto gone = [&] {
      detail::Access::state(comm)->proxy.wake();
      return kept[0].expired() && kept[1].expired();
    };
    return wait_until(gone) ? Result<void>{} : fail(Errc::internal, "memory is kept");
  });
  check_well(results);
}
