#pragma once

#include <ccl/detail/lanes/bulk_copy.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

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

/// Copies the units `begin` ... `end` - 1 of a run. Both runs are aligned to a unit. A lane has
/// `Batch` units in flight.
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

/// Copies the packets `begin` ... `end` - 1 to an aligned run. Each is joined from the two aligned
/// packets that hold it. `skew`: offset of `from` from an aligned address, 1 to 15 bytes.
template <int Batch, LaneGroup Group>
CCL_HD void copy_skewed(Group group, char* to, const char* from, Index begin, Index end, int skew) {
  constexpr Index size = sizeof(Packet), step = Group::width * size;
  const bool late = skew >= 8;
  const int shift = skew % 8 * 8;
  const auto joined = [&](const Packet& low, const Packet& high) {
    const Word a = late ? low.word[1] : low.word[0], b = late ? high.word[0] : low.word[1];
    const Word c = late ? high.word[1] : high.word[0];
    // Two shifts, because a shift by 64 is undefined.
    return Packet{{a >> shift | b << 1 << (63 - shift), b >> shift | c << 1 << (63 - shift)}};
  };
  const char* const low = from - skew;
  Index i = (begin + group.rank()) * size;
  for (; i + (Batch - 1) * step < end * size; i += Batch * step) {
    Packet half[Batch][2];
    CCL_UNROLL for (int b = 0; b < Batch; ++b) {
      half[b][0] = load_unit<Packet>(low + i + b * step);
      half[b][1] = load_unit<Packet>(low + i + b * step + size);
    }
    CCL_UNROLL for (int b = 0; b < Batch; ++b) {
      store_unit<typename Group::Memory>(to + i + b * step, joined(half[b][0], half[b][1]));
    }
  }
  for (; i < end * size; i += step) {
    store_unit<typename Group::Memory>(
        to + i, joined(load_unit<Packet>(low + i), load_unit<Packet>(low + i + size)));
  }
}

/// Copies `bytes` bytes of any alignment, and stores whole packets where possible. All lanes. The
/// caller provides order and visibility.
template <LaneGroup Group>
CCL_HD void copy_run(Group group, char* to, const char* from, Index bytes) {
  const auto target = reinterpret_cast<cuda::std::uintptr_t>(to);
  const auto source = reinterpret_cast<cuda::std::uintptr_t>(from);
  constexpr Index size = sizeof(Packet);
  const Index to_line = Index((size - target % size) % size);
  const Index head = to_line < bytes ? to_line : bytes;
  const int skew = int((source + Word(head)) % size);
  if (skew == 0) {
    copy_units<char, 1>(group, to, from, 0, head);
    const Index packets = (bytes - head) / size;
    copy_units<Packet, 8>(group, to + head, from + head, 0, packets);
    copy_units<char, 1>(group, to, from, head + packets * size, bytes);
    return;
  }
  // Loads only packets that lie in the source as a whole.
  const Index begin = head < skew ? 1 : 0;
  const Index room = (bytes - head - (size - skew)) / size;
  const Index end = room < begin ? begin : room;
  const Index done = head + begin * size < bytes ? head + begin * size : bytes;
  copy_units<char, 1>(group, to, from, 0, done);
  copy_skewed<4>(group, to + head, from + head, begin, end, skew);
  const Index rest = head + end * size;
  copy_units<char, 1>(group, to, from, rest < bytes ? rest : bytes, bytes);
}

/// Use of a block's bulk copy engine: none, if the launch has no shared memory for it; while other
/// lanes are idle, or copy, too.
enum class BulkUse { none, idle, busy };

#if defined(__CUDACC__)
/// Copies a run by the bulk copy engine if that is faster, and calls `aside` meanwhile on other
/// lanes. Returns false if it does neither.
///
/// Measured on H100 and H200 (docs/validation/calls.md): below 128 KiB lanes are faster.
template <LaneGroup Group, class Aside>
CCL_DEVICE bool copy_run_in_bulk(Group group, char* to, const char* from, Index bytes, BulkUse use,
                                 Aside aside) {
  if constexpr (Group::width >= 512) {
    constexpr Index size = sizeof(Packet);
    const auto target = reinterpret_cast<cuda::std::uintptr_t>(to);
    const auto source = reinterpret_cast<cuda::std::uintptr_t>(from);
    if (use == BulkUse::none || bytes < worth_bulk_copy || (target - source) % size != 0)
      return false;
    extern __shared__ BulkCopyMemory bulk_copy_memory[];
    const Index head = Index((size - target % size) % size);
    const Index whole = (bytes - head) / size * size;
    copy_units<char, 1>(group, to, from, 0, head);
    copy_units<char, 1>(group, to, from, head + whole, bytes);
    if (group.rank() == 0) {
      if (use == BulkUse::busy) {
        BusyBulkCopy{bulk_copy_memory->busy, from + head, whole}.run(to + head);
      } else {
        IdleBulkCopy{bulk_copy_memory->idle, from + head, whole}.run(to + head);
      }
    } else if (group.rank() >= Group::width / 2) {
      aside(typename Group::Half{});
    }
    return true;
  }
  return false;
}
#endif

/// Copies as `copy_run` does. On GPUs that have a bulk copy engine, it moves long runs in groups of
/// 512 lanes, which must be alone in their blocks. Then half of the lanes call `aside` with a group
/// of their own, and true is returned.
///
/// The first lane sees all of its stores on return, so a `sync` and a release by that lane publish
/// them.
template <LaneGroup Group, class Aside>
CCL_HD bool copy_long_run(Group group, char* to, const char* from, Index bytes, BulkUse use,
                          Aside aside) {
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (if (copy_run_in_bulk(group, to, from, bytes, use, aside)) return true;))
  (void)use, (void)aside;
  copy_run(group, to, from, bytes);
  return false;
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
