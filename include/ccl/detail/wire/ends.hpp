#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/wire.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Size of slots and slices, in registers. All wires of a launch have one shape.
struct SliceShape {
  int steps;      // slots that a slice takes
  int slice = 1;  // elements that a slice holds
  int slot_count = 1, slot_packets = 0;
  int short_slot_count = 0;

  template <class Format>
  CCL_HD void take(const Wire& wire) {
    slice = int(Format::slice_capacity(wire, steps));
    slot_count = wire.slot_count;
    slot_packets = wire.slot_packets;
    // Proxied wires have none.
    if (wire.short_slot_count != 0) short_slot_count = wire.short_slot_count;
  }
  template <class P>
  CCL_HD P* slot(P* slots, Word step) const {
    return slots + Word(unsigned(step) & unsigned(slot_count - 1)) * unsigned(slot_packets);
  }
  /// Returns the short slot of a step. `all`: those of the wire, or null.
  CCL_HD ShortSlot* short_slot(ShortSlot* all, Word step) const {
    return all == nullptr ? nullptr : all + int(unsigned(step) & unsigned(short_slot_count - 1));
  }
};

/// This rank's end of a wire from `peer`. Holds only what every slice needs: registers are scarce.
struct InEnd {
  const Packet* slots = nullptr;
  const Word* posted = nullptr;  // read only if `counted`
  Word* credit = nullptr;        // the wire's `drained`
  Word* kept = nullptr;          // the wire's `received`
  int peer = -1;                 // -1: no wire
  bool counted = false;          // `posted` reports what has arrived; else packets carry flags
  ShortSlot* shorts = nullptr;   // of CPU lanes; null: none
  Word received = 0;

  CCL_HD bool is_open() const { return peer >= 0; }
  template <class Proto, bool Proxied>
  CCL_HD void open(const Wire& wire, int rank) {
    slots = wire.slots;
    posted = wire.posted;
    counted = !Proto::carries_flags || (Proxied && wire.proxied);
    credit = wire.drained;
    kept = wire.received;
    peer = rank;
  }
  /// True if all steps of the next slice are posted.
  template <class Memory>
  CCL_HD bool has_slice(const SliceShape& shape) const {
    if constexpr (requires { Memory::has_short_slots; }) {
      // `posted` may be behind: see `Wire::short_slot_count`.
      return is_short<Memory>(shape) ||
             int(unsigned(Memory::load_acquire(posted)) - unsigned(received)) >= shape.steps;
    }
    return unsigned(Memory::load_acquire(posted)) - unsigned(received) >= unsigned(shape.steps);
  }
  /// True if the next slice has arrived in its short slot.
  template <class Memory>
  CCL_HD bool is_short(const SliceShape& shape) const {
    const ShortSlot* const at = shape.short_slot(shorts, received);
    return at != nullptr && at->contains<Memory>(received);
  }
  CCL_HD const Packet* slot(const SliceShape& shape) const { return shape.slot(slots, received); }
  /// Returns the short slot of the slice `ahead` slices of one step after the next one, which is
  /// posted, if it names memory of the sender; else null. CPU lanes.
  template <class Memory>
  const ShortSlot* lent(const SliceShape& shape, int ahead = 0) const {
    const Word step = received + unsigned(ahead);
    const ShortSlot* const at = shape.short_slot(shorts, step);
    return at != nullptr && at->is_lent<Memory>(step) ? at : nullptr;
  }
  /// Returns the place of the next slice, which has arrived, for CPU lanes.
  template <class Memory>
  CCL_HD const void* arrived(const SliceShape& shape) const {
    if (is_short<Memory>(shape)) return shape.short_slot(shorts, received)->data;
    return slot(shape);
  }
};

/// This rank's end of a wire to `peer`.
struct OutEnd {
  Packet* slots = nullptr;
  Word* posted = nullptr;  // written if packets carry no flags or the wire is proxied
  const Word* credit = nullptr;
  Word* kept = nullptr;         // the wire's `sent`
  int peer = -1;                // -1: no wire
  bool proxied = false;         // a proxy moves the bytes and reads how many there are
  ShortSlot* shorts = nullptr;  // of CPU lanes; null: none
  Word sent = 0;
  Word drained = 0;  // last seen credit

  CCL_HD bool is_open() const { return peer >= 0; }
  template <class Proto, bool Proxied>
  CCL_HD void open(const Wire& wire, int rank) {
    slots = wire.slots;
    posted = wire.posted;
    proxied = Proxied && wire.proxied;
    credit = wire.drained;
    kept = wire.sent;
    peer = rank;
  }
  /// True if the slots of the next slice are free, by the last seen credit.
  CCL_HD bool has_credit(const SliceShape& shape) const {
    return unsigned(sent) - unsigned(drained) <= unsigned(shape.slot_count - shape.steps);
  }
  CCL_HD Packet* slot(const SliceShape& shape) const { return shape.slot(slots, sent); }
  /// Returns the short slot for the next slice of `bytes` bytes; null: it takes the slot.
  CCL_HD ShortSlot* short_slot(const SliceShape& shape, Index bytes) const {
    return bytes <= ShortSlot::most ? shape.short_slot(shorts, sent) : nullptr;
  }
};

/// Ends of the wires of one channel that an algorithm works on.
template <int MaxIn, int MaxOut>
struct WireEnds {
  SliceShape shape;
  InEnd in[MaxIn];
  OutEnd out[MaxOut];

  /// For steps. A single wire is always open, which the compiler must know.
  CCL_HD bool uses_in(int i) const { return MaxIn == 1 || in[i].is_open(); }
  CCL_HD bool uses_out(int o) const { return MaxOut == 1 || out[o].is_open(); }

  /// Number of steps done on the first wire.
  CCL_HD Word steps_done() const { return in[0].is_open() ? in[0].received : out[0].sent; }

  template <class Proto, bool Proxied, class Format>
  CCL_HD void open_in(int i, const Wire& wire, int peer) {
    in[i].template open<Proto, Proxied>(wire, peer);
    if constexpr (Format::contiguous) in[i].shorts = wire.all_short_slots();
    shape.template take<Format>(wire);
  }
  template <class Proto, bool Proxied, class Format>
  CCL_HD void open_out(int o, const Wire& wire, int peer) {
    out[o].template open<Proto, Proxied>(wire, peer);
    if constexpr (Format::contiguous) out[o].shorts = wire.all_short_slots();
    shape.template take<Format>(wire);
  }
  /// Loads the counts that the previous launch left.
  template <class Memory>
  CCL_HD void load_counts() {
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (in[i].is_open()) in[i].received = *in[i].kept;
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (!out[o].is_open()) continue;
      out[o].sent = *out[o].kept;
      out[o].drained = Memory::load_credit(out[o].credit);
    }
  }
  /// Stores the counts for the next launch. A diagnosis may read them at any time. One lane.
  template <class Memory>
  CCL_HD void store_counts() const {
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (in[i].is_open()) Memory::store_relaxed(in[i].kept, in[i].received);
    }
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (out[o].is_open()) Memory::store_relaxed(out[o].kept, out[o].sent);
    }
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
