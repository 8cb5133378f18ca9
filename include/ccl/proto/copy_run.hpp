#pragma once

#include <ccl/lane_group.hpp>

namespace ccl::detail {

template <class Unit>
CCL_HD Unit load_unit(const char* from) {
  Unit unit;
  __builtin_memcpy(&unit, __builtin_assume_aligned(from, sizeof(Unit)), sizeof(Unit));
  return unit;
}
template <class Memory, class Unit>
CCL_HD void store_unit(char* to, const Unit& unit) {
  if constexpr (sizeof(Unit) == sizeof(Packet)) {
    Memory::store_bulk(reinterpret_cast<Packet*>(to), unit);
  } else {
    __builtin_memcpy(__builtin_assume_aligned(to, sizeof(Unit)), &unit, sizeof(Unit));
  }
}

/// Units `begin` ... `end` - 1 of one run to another; both are aligned to a unit. A lane has
/// `Batch` of them in flight.
template <class Unit, int Batch, LaneGroup Group>
CCL_HD void copy_units(Group group, char* to, const char* from, Index begin, Index end) {
  constexpr Index size = sizeof(Unit), step = Group::width * size;
  Index i = (begin + group.rank()) * size;
  for (; i + (Batch - 1) * step < end * size; i += Batch * step) {
    Unit unit[Batch];
    CCL_UNROLL for (int b = 0; b < Batch; ++b) unit[b] = load_unit<Unit>(from + i + b * step);
    CCL_UNROLL for (int b = 0; b < Batch; ++b) {
      store_unit<typename Group::Memory>(to + i + b * step, unit[b]);
    }
  }
  for (; i < end * size; i += step) {
    store_unit<typename Group::Memory>(to + i, load_unit<Unit>(from + i));
  }
}

/// All lanes: `bytes` of any alignment, in the widest units that both addresses allow. Order and
/// visibility are the caller's.
template <LaneGroup Group>
CCL_HD void copy_run(Group group, char* to, const char* from, Index bytes) {
  const auto target = reinterpret_cast<cuda::std::uintptr_t>(to);
  const auto source = reinterpret_cast<cuda::std::uintptr_t>(from);
  const Word apart = (target - source) % sizeof(Packet);
  if (apart == 0) {
    const Index to_line = Index((sizeof(Packet) - target % sizeof(Packet)) % sizeof(Packet));
    const Index head = to_line < bytes ? to_line : bytes;
    copy_units<char, 1>(group, to, from, 0, head);
    const Index packets = (bytes - head) / Index{sizeof(Packet)};
    copy_units<Packet, 8>(group, to + head, from + head, 0, packets);
    const Index done = head + packets * Index{sizeof(Packet)};
    copy_units<char, 1>(group, to, from, done, bytes);
  } else if (apart % 4 == 0 && target % 4 == 0) {
    copy_units<unsigned, 8>(group, to, from, 0, bytes / 4);
    copy_units<char, 1>(group, to, from, bytes / 4 * 4, bytes);
  } else {
    copy_units<char, 8>(group, to, from, 0, bytes);
  }
}

}  // namespace ccl::detail
