#pragma once

// Calls of CPU ranks over RDMA whose buffers are registered or not, and counts of what their
// proxies moved without slots.
#include <ccl/comm/communicator.hpp>
#include <ccl/comm/registered_buffer.hpp>

#include <string>
#include <vector>

#include "comm/state.hpp"
#include "support/catch.hpp"
#include "support/driver.hpp"

namespace ccl::test::registered {

constexpr Index slot_bytes = 32 << 10;
constexpr int slots = 4;
constexpr Plan plan{.channels = 1, .slot_count = slots, .slot_bytes = slot_bytes};
constexpr Index ints_of_slot = slot_bytes / Index{sizeof(int)};
enum class Registers { neither, input, output, both };

inline bool registers_input(Registers what) {
  return what == Registers::input || what == Registers::both;
}
inline bool registers_output(Registers what) {
  return what == Registers::output || what == Registers::both;
}
inline detail::ProxyEngine::Counters counters_of(const Communicator& comm) {
  return detail::Access::state(comm)->proxy.counters();
}

struct Moved {
  Word bytes = 0, registered = 0;  // sent and received by all ranks
};
inline Moved moved(const std::vector<Communicator>& comms) {
  Moved all;
  for (const Communicator& comm : comms) {
    all.bytes += counters_of(comm).bytes;
    all.registered += counters_of(comm).registered_bytes;
  }
  return all;
}
/// Returns what `body` has moved: all `bytes` that it moves, if they are given.
template <class Body>
Moved moved_by(const std::vector<Communicator>& comms, Word bytes, Body body) {
  const Moved before = moved(comms);
  body();
  // A receiver's task counts in its next turn.
  const auto counted = [&] {
    for (const Communicator& comm : comms) detail::Access::state(comm)->proxy.wake();
    return moved(comms).bytes - before.bytes >= bytes;
  };
  REQUIRE(wait_until(counted));
  const Moved after = moved(comms);
  return {after.bytes - before.bytes, after.registered - before.registered};
}

/// The rank's connections live until it has counted what they have moved.
inline Result<void> await_counted(const Communicator& comm, Word bytes) {
  const auto counted = [&] {
    detail::Access::state(comm)->proxy.wake();
    return counters_of(comm).bytes >= bytes;
  };
  if (wait_until(counted)) return {};
  return fail(Errc::internal, "bytes are not counted");
}

/// The connections of all ranks live until all that they have moved is counted.
inline Result<void> await_counted(const std::vector<Communicator>& comms, Word bytes) {
  const auto counted = [&] {
    for (const Communicator& comm : comms) detail::Access::state(comm)->proxy.wake();
    return moved(comms).bytes >= bytes;
  };
  if (wait_until(counted)) return {};
  return fail(Errc::internal, "bytes are not counted");
}

inline std::vector<Communicator> cpu_ranks(int ranks, Config config = {}) {
  config.device = Config::cpu;
  // A step that is lost for good ends the test.
  if (config.timeout_s <= 0) config.timeout_s = 120;
  auto comms = Communicator::create_all(ranks, config);
  REQUIRE(comms.has_value());
  return *std::move(comms);
}

/// A rank's buffers of one call, registered or not.
template <class T>
struct Buffers {
  std::vector<T> in, out;
  std::vector<RegisteredBuffer> kept;
  Result<void> make(const Communicator& comm, Index ins, Index outs, Registers what) {
    in.resize(std::size_t(ins));
    out.assign(std::size_t(outs), T(-1));
    const auto keep = [&](std::vector<T>& memory) -> Result<void> {
      CCL_TRY(auto one,
              RegisteredBuffer::create(comm, memory.data(), Index(memory.size() * sizeof(T))));
      kept.push_back(std::move(one));
      return {};
    };
    if (registers_input(what)) CCL_CHECK(keep(in));
    if (registers_output(what)) CCL_CHECK(keep(out));
    return {};
  }
};

/// AllReduce of `count` ints, in place or not.
Result<void> sum_ints(const Communicator& comm, auto& sum, Buffers<int>& memory, Index count,
                      bool in_place) {
  std::vector<int>& input = in_place ? memory.out : memory.in;
  for (Index i = 0; i < count; ++i) input[std::size_t(i)] = int(i) + comm.rank();
  CCL_CHECK(sum(input.data(), memory.out.data(), count));
  const Index ranks = comm.ranks();
  for (Index i = 0; i < count; ++i) {
    const Index wanted = i * ranks + ranks * (ranks - 1) / 2;
    if (memory.out[std::size_t(i)] != int(wanted)) return fail(Errc::internal, "a wrong sum");
  }
  return {};
}
Result<void> gather_ints(const Communicator& comm, auto& gather, Buffers<int>& memory, Index count,
                         bool in_place) {
  const int me = comm.rank();
  int* const input = in_place ? memory.out.data() + me * count : memory.in.data();
  for (Index i = 0; i < count; ++i) input[i] = int(i) * 3 + me;
  CCL_CHECK(gather(input, memory.out.data(), count));
  for (Index i = 0; i < count * comm.ranks(); ++i) {
    if (memory.out[std::size_t(i)] == int(i % count) * 3 + int(i / count)) continue;
    return fail(Errc::internal, "int " + std::to_string(i) + " is wrong");
  }
  return {};
}
Result<void> broadcast_ints(const Communicator& comm, auto& broadcast, Buffers<int>& memory,
                            Index count, int root) {
  for (Index i = 0; i < count; ++i) memory.in[std::size_t(i)] = int(i) * 5 + comm.rank();
  CCL_CHECK(broadcast(memory.in.data(), memory.out.data(), count, root));
  for (Index i = 0; i < count; ++i) {
    if (memory.out[std::size_t(i)] != int(i) * 5 + root) return fail(Errc::internal, "wrong data");
  }
  return {};
}

}  // namespace ccl::test::registered
