#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("the host reads of a GPU's wire what a proxy reads, too, and nothing else") {
  Packet slot{};
  Word posted = 5, drained = 3, sent = 9, received = 7;
  Wire wire;
  wire.slots = &slot;
  wire.posted = &posted;
  wire.drained = &drained;
  wire.sent = &sent;
  wire.received = &received;
  constexpr int cpu = -1, gpu = 0;
  CHECK(!read_steps(wire, gpu));
  const auto on_cpu = read_steps(wire, cpu);
  REQUIRE(on_cpu);
  CHECK((on_cpu->filled == 9 && on_cpu->drained == 7));
  wire.proxied = true;
  const auto on_gpu = read_steps(wire, gpu);
  REQUIRE(on_gpu);
  CHECK((on_gpu->filled == 5 && on_gpu->drained == 3));
  wire.slots = nullptr;
  CHECK(!read_steps(wire, cpu));
}

TEST_CASE("a receiver's steps count slices in short slots, which are not posted") {
  struct Memory {
    alignas(128) Word head[Wire::short_slots_behind];
    ShortSlot shorts[8];
  } memory{};
  Packet slot{};
  Word drained = 2, received = 2;
  Wire wire;
  wire.slots = &slot;
  wire.posted = memory.head;
  wire.drained = &drained;
  wire.received = &received;
  wire.slot_count = 8;
  wire.short_slot_count = 8;
  constexpr int cpu = -1;
  CHECK(read_steps(wire, cpu, 2)->filled == 2);
  memory.shorts[2].publish<HostMemory>(2);
  memory.shorts[4].publish<HostMemory>(4);
  CHECK(read_steps(wire, cpu, 2)->filled == 6);
  memory.head[0] = 8;  // a slice in a slot, after these
  CHECK(read_steps(wire, cpu, 2)->filled == 8);
}
