// Ends of registrations, of lanes and of ends of a connection, while a NIC reads or writes the
// memory itself, on emulated devices.
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
#include "support/fake_verbs.hpp"
#include "support/on_ranks.hpp"
#include "support/registered_calls.hpp"
#include "support/two_ranks.hpp"
#include "transport/registered_memory.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::test::registered;

namespace {

/// Memory that is registered while this lives.
struct Registered {
  explicit Registered(Index bytes)
      : memory(std::size_t(bytes)),
        entry{std::make_shared<detail::RegisteredMemory>(memory.data(), bytes)} {
    detail::add_registered(entry);
  }
  ~Registered() { end(); }
  void end() {
    if (entry) detail::remove_registered(*entry);
    entry.reset();
  }
  std::vector<std::byte> memory;
  std::shared_ptr<detail::RegisteredMemory> entry;
};

/// Posts a step that lies in registered memory.
void post_lent(const Wire& wire, std::byte* at, Index bytes) {
  const Word step = *wire.sent;
  REQUIRE(wire.zero_copy->lend(step, at, bytes));
  wire.sizes[step % Word(wire.slot_count)] = Word(bytes) | detail::ZeroCopy::mark;
  *wire.sent = step + 1;
  detail::HostMemory::store_release(wire.posted, step + 1);
}
bool drained(const Wire& wire, Word steps) {
  return wait_until([&] { return detail::HostMemory::load_credit(wire.drained) >= steps; });
}
bool arrived(const Wire& wire, Word steps) {
  return wait_until([&] { return detail::HostMemory::load_acquire(wire.posted) >= steps; });
}
/// Steps through slots until each slot has been used; then the next ones are unannounced until a
/// slot is returned.
void fill_slots(OneEdge& edge) {
  edge.push(0, slots, 1);
  REQUIRE(drained(edge.out->wires[0], slots));
  REQUIRE(arrived(edge.in->wires[0], slots));
}
void return_slots(OneEdge& edge, Word until) {
  *edge.in->wires[0].received = until;
  detail::HostMemory::store_credit(edge.in->wires[0].drained, until);
  edge.to.proxy.wake();
}

/// Each task of the engine has had a turn since. The engine may sleep.
void take_turns(detail::ProxyEngine& engine) {
  const Word before = engine.counters().rounds;
  REQUIRE(wait_until([&] {
    engine.wake();
    return engine.counters().rounds >= before + 2;
  }));
}

constexpr WireShape one_wire{1, slots, slot_bytes};

}  // namespace

TEST_CASE("a registration that ends lasts for the steps that a NIC still reads") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire& out = edge.out->wires[0];
  Registered sent{slot_bytes};
  std::fill(sent.memory.begin(), sent.memory.end(), std::byte{0x3c});
  {
    const std::lock_guard lock{fabric.mutex};
    fabric.faults.delay_polls = 1 << 30;  // its completion is not seen yet
  }
  const int before = fabric.held();
  post_lent(out, sent.memory.data(), slot_bytes);
  edge.from.proxy.wake();
  REQUIRE(wait_until([&] { return fabric.held() == before + 1; }));
  sent.end();
  CHECK(!out.zero_copy->lend(1, sent.memory.data(), slot_bytes));  // later steps go through slots
  take_turns(edge.from.proxy);
  CHECK(fabric.held() == before + 1);
  CHECK(detail::HostMemory::load_credit(out.drained) == 0);
  fabric.end_delays();
  edge.from.proxy.wake();
  edge.to.proxy.wake();
  REQUIRE(drained(out, 1));
  REQUIRE(wait_until([&] { return fabric.held() == before; }));
  REQUIRE(arrived(edge.in->wires[0], 1));
  CHECK(*reinterpret_cast<const std::uint8_t*>(edge.in->wires[0].slot(0)) == 0x3c);
}

TEST_CASE("a registration that ends lasts for the step that was announced to land there") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire &in = edge.in->wires[0], &out = edge.out->wires[0];
  fill_slots(edge);
  Registered place{slot_bytes}, late{slot_bytes}, sent{slot_bytes};
  std::fill(sent.memory.begin(), sent.memory.end(), std::byte{0x3c});
  const int before = fabric.held();
  for (Word step = slots; step < 2 * slots; ++step) {
    in.zero_copy->land(step, step == slots ? place.memory.data() : late.memory.data(), slot_bytes);
  }
  late.end();  // before any of it is announced
  return_slots(edge, slots);
  REQUIRE(wait_until([&] { return fabric.held() == before + 1; }));
  take_turns(edge.to.proxy);
  place.end();
  CHECK(fabric.held() == before + 1);
  for (int n = 0; n < 2; ++n) post_lent(out, sent.memory.data(), slot_bytes);
  edge.from.proxy.wake();
  REQUIRE(arrived(in, slots + 2));
  CHECK(in.sizes[0] == (Word(slot_bytes) | detail::ZeroCopy::mark));
  CHECK(place.memory == sent.memory);
  CHECK(in.sizes[1] == Word(slot_bytes));  // in its slot
  CHECK(late.memory.front() == std::byte{0});
  CHECK(std::memcmp(in.slot(slots + 1), sent.memory.data(), std::size_t(slot_bytes)) == 0);
  REQUIRE(drained(out, slots + 2));
  sent.end();
  REQUIRE(wait_until([&] { return fabric.held() == before; }));
}

TEST_CASE("data of the edge back does not report a slot whose step has a place") {
  FakeVerbs fabric{1};
  Registered place{slot_bytes};
  const auto run = [&](int rank, const Duplex& duplex, Lent& lent) -> std::string {
    const Wire &in = duplex.in.wires[0], &out = duplex.out.wires[0];
    if (rank == 0) {
      std::string problem = push(out, slots / 2, 1, &lent.status, &lent.proxy).problem;
      if (!arrived(in, 1)) return problem + "nothing came back";
      problem += push(out, slots / 2, 1, &lent.status, &lent.proxy).problem;
      std::fill_n(reinterpret_cast<std::byte*>(out.slot(slots)), slot_bytes, std::byte{0x3c});
      out.sizes[0] = Word(slot_bytes);
      detail::HostMemory::store_release(out.posted, slots + 1);
      lent.proxy.wake();
      return drained(out, slots + 1) ? problem : problem + "a step was not sent";
    }
    if (!arrived(in, slots / 2)) return "steps are missing";
    {
      const Hold hold{lent.proxy};
      in.zero_copy->land(slots, place.memory.data(), slot_bytes);
      detail::HostMemory::store_credit(in.drained, slots / 2);  // the answer goes before the table
      push(out, 1, 1);
    }
    lent.proxy.wake();
    if (!arrived(in, slots + 1)) return "the step did not come";
    return in.sizes[0] == (Word(slot_bytes) | detail::ZeroCopy::mark) ? "" : "it is in its slot";
  };
  check_fine(connected_ranks(one_wire, run));
  CHECK(place.memory.back() == std::byte{0x3c});
}

TEST_CASE("lanes that have failed have their memory back: the peer writes it no more") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire &in = edge.in->wires[0], &out = edge.out->wires[0];
  fill_slots(edge);
  Registered place{slot_bytes}, sent{slot_bytes};
  std::fill(sent.memory.begin(), sent.memory.end(), std::byte{0x3c});
  const int before = fabric.held();
  in.zero_copy->land(slots, place.memory.data(), slot_bytes);
  return_slots(edge, slots);
  REQUIRE(wait_until([&] { return fabric.held() == before + 1; }));  // it is announced
  take_turns(edge.to.proxy);
  const auto writes = [&] {
    const std::lock_guard lock{fabric.mutex};
    return fabric.faults.writes;
  };
  const int writes_before = writes();
  const bool fails = GENERATE(false, true);
  if (fails) in.zero_copy->revoke();
  post_lent(out, sent.memory.data(), slot_bytes);
  edge.from.proxy.wake();
  REQUIRE(wait_until([&] { return writes() > writes_before; }));
  if (!fails) REQUIRE(drained(out, slots + 1));
  CHECK(place.memory.front() == (fails ? std::byte{0} : std::byte{0x3c}));
  CHECK(place.memory.back() == (fails ? std::byte{0} : std::byte{0x3c}));
  // Nothing holds the memory of a step that will not arrive.
  const std::weak_ptr<detail::RegisteredMemory> kept = place.entry;
  place.end();
  edge.to.proxy.wake();
  CHECK(wait_until([&] { return kept.expired(); }));
}

TEST_CASE("lanes that fail stop the NIC that reads their memory, and nothing holds it any more") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire& out = edge.out->wires[0];
  fill_slots(edge);
  Registered sent{slot_bytes};
  post_lent(out, sent.memory.data(), slot_bytes);  // waits for a slot
  edge.from.proxy.wake();
  const std::weak_ptr<detail::RegisteredMemory> kept = sent.entry;
  sent.end();
  CHECK(!kept.expired());
  {
    const Hold hold{edge.from.proxy};
    out.zero_copy->revoke();
    CHECK(fabric.in_error() == 1);
  }
  REQUIRE(wait_until([&] { return kept.expired(); }));
  Registered later{slot_bytes};
  CHECK(!out.zero_copy->lend(slots + 1, later.memory.data(), slot_bytes));
}

TEST_CASE("a registration is never that of another one, whose pages may be gone") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire& out = edge.out->wires[0];
  std::vector<std::byte> memory(std::size_t(2 * slot_bytes));
  const auto enter = [&](Index from, Index bytes) {
    auto entry = std::make_shared<detail::RegisteredMemory>(memory.data() + from, bytes);
    detail::add_registered(entry);
    return entry;
  };
  const int before = fabric.regions_made;
  const auto all = enter(0, 2 * slot_bytes);
  post_lent(out, memory.data(), slot_bytes);
  edge.from.proxy.wake();
  REQUIRE(drained(out, 1));
  CHECK(fabric.regions_made == before + 1);
  detail::remove_registered(*all);  // its registration lives as long as `all`
  const auto part = enter(slot_bytes, slot_bytes);
  post_lent(out, memory.data() + slot_bytes, slot_bytes);
  edge.from.proxy.wake();
  REQUIRE(drained(out, 2));
  CHECK(fabric.regions_made == before + 2);
  detail::remove_registered(*part);
}

TEST_CASE("a lent step that arrived is drained, though the receiver left before its completion") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire& out = edge.out->wires[0];
  Registered sent{slot_bytes};
  {
    const Hold hold{edge.to.proxy};
    {
      const std::lock_guard lock{fabric.mutex};
      fabric.faults.forge_at = fabric.faults.writes + 1;  // its completion is an error
      fabric.faults.forged_arrives = true;
    }
    const int before = fabric.held();
    post_lent(out, sent.memory.data(), slot_bytes);
    edge.from.proxy.wake();
    REQUIRE(wait_until([&] { return fabric.held() < before; }));  // the sender has no queue pairs
    edge.in.reset();
  }
  CHECK(drained(out, 1));
  CHECK(edge.from.status.ok());
}

TEST_CASE("a step that is larger or smaller than its place is an error that names both sizes") {
  FakeVerbs fabric{1};
  OneEdge edge{one_wire};
  const Wire &in = edge.in->wires[0], &out = edge.out->wires[0];
  fill_slots(edge);
  Registered place{slot_bytes}, sent{slot_bytes};
  const bool larger = GENERATE(false, true);
  const Index step_bytes = larger ? slot_bytes : slot_bytes / 2, place_bytes = slot_bytes * 3 / 4;
  in.zero_copy->land(slots, place.memory.data(), place_bytes);
  return_slots(edge, slots);
  post_lent(out, sent.memory.data(), step_bytes);
  edge.from.proxy.wake();
  REQUIRE(wait_until([&] { return !edge.from.status.ok(); }));
  const Error error = edge.from.status.result().error();
  CHECK(error.code == Errc::mismatch);
  CHECK(error.rank == 0);
  CHECK(error.peer == 1);
  CHECK(contains(error.what, "step 4 has " + std::to_string(step_bytes) + " bytes, and rank 1"));
  CHECK(contains(error.what, "receives 24576"));
}
