#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

namespace detail {
class ZeroCopy;

/// Place of a slice of a few bytes, with its own count in the line of its data: the slice then
/// crosses in one line, where a slot and `Wire::posted` are two.
struct alignas(128) ShortSlot {
  static constexpr Index most = 120;  ///< bytes of a slice
  Word filled;                        ///< one more than the step of the latest slice here
  char data[most];

  /// True if the slice of `step` is here, which the sender has published.
  template <class Memory>
  CCL_HD bool contains(Word step) const {
    return Memory::load_acquire(&filled) == step + 1;
  }
  template <class Memory>
  CCL_HD void publish(Word step) {
    Memory::store_release(&filled, step + 1);
  }

  /// Slice that lies in the sender's memory. The receiver copies it from there (`ZeroCopy::pull`).
  struct Lent {
    Word at, bytes;
  };
  static constexpr Word lent_mark = Word{1} << 63;  ///< in `filled`
  /// Names the place of the slice of `step`, in a wire's memory. `Wire::posted` publishes it, as it
  /// does a slice in a slot. CPU lanes.
  template <class Memory>
  void lend(Word step, const void* at, Index bytes) {
    const Lent lent{reinterpret_cast<Word>(at), Word(bytes)};
    __builtin_memcpy(data, &lent, sizeof lent);
    Memory::store_relaxed(&filled, (step + 1) | lent_mark);
  }
  /// True if the slice of `step`, which is posted, lies in the sender's memory.
  template <class Memory>
  bool is_lent(Word step) const {
    return Memory::load_relaxed(&filled) == ((step + 1) | lent_mark);
  }
  Lent lent() const {
    Lent lent;
    __builtin_memcpy(&lent, data, sizeof lent);
    return lent;
  }
};
}  // namespace detail

/// One direction of a connection: a ring of slots that the sender fills and the receiver drains.
/// The object is a view; the connection that created it owns the memory. Counts increase for the
/// life of the wire and never wrap.
///
/// The sender
/// - waits until `sent < drained + slot_count`,
/// - fills `slot(sent)`,
/// - writes `sizes[sent % slot_count]` for each slot of a slice, if `sizes` is not null,
/// - posts the slice, if packets carry no flags or the wire is proxied.
/// The receiver
/// - waits until the slice is posted, if packets carry no flags or the wire is proxied,
/// - reads `slot(received)`,
/// - returns the credit in `drained`.
/// A proxied wire has one ring at each end, and a proxy copies between them. The proxy acts as the
/// receiver on the sender's host and as the sender on the receiver's host.
struct Wire {
  Packet* slots = nullptr;   ///< slot_count * slot_packets packets, 128-byte aligned
  Word* posted = nullptr;    ///< steps filled, written by the sender (release)
  Word* drained = nullptr;   ///< steps returned, written by the receiver (credit)
  Word* sent = nullptr;      ///< the sender's own count of steps filled; null at the receiver
  Word* received = nullptr;  ///< the receiver's own count of steps drained; null at the sender
  Word* sizes = nullptr;  ///< slot_count byte counts, written before `posted`; null if not proxied
  int slot_count = 0;     ///< a power of two, at least 2 for a fused receive and send
  int slot_packets = 0;   ///< packets of a slot, a multiple of 8, so that slots begin on lines
  bool proxied = false;
  /// Not 0: CPU lanes without flags in their packets move slices of up to `ShortSlot::most` bytes
  /// by `short_slot(sent)` in place of the slot, and do not post them. `posted` then counts them
  /// with the next slice that is posted. It is a power of two, at least `slot_count`: a short slice
  /// may be sent while `sent < drained + short_slot_count`. The short slots are
  /// `short_slots_behind` words behind `posted`.
  int short_slot_count = 0;
  detail::ZeroCopy* zero_copy =
      nullptr;  ///< zero-copy path that skips the slots; null if there is none

  /// Returns the slot of a step.
  CCL_HD Packet* slot(Word step) const {
    return slots + Index(step & Word(slot_count - 1)) * slot_packets;
  }
  static constexpr int short_slots_behind = 64;
  /// Returns the first of the short slots; null if there are none.
  CCL_HD detail::ShortSlot* all_short_slots() const {
    if (short_slot_count == 0) return nullptr;
    return reinterpret_cast<detail::ShortSlot*>(posted + short_slots_behind);
  }
  /// Returns the short slot of a step, if the wire has them.
  CCL_HD detail::ShortSlot* short_slot(Word step) const {
    return all_short_slots() + int(step & Word(short_slot_count - 1));
  }
};

/// Shape of the wires of a connection. Equal at both ends.
struct WireShape {
  int channels = 1;      ///< wires of the connection
  int slot_count = 8;    ///< slots of a wire, a power of two
  Index slot_bytes = 0;  ///< bytes of a slot, a multiple of 128
  friend bool operator==(const WireShape&, const WireShape&) = default;
};

}  // namespace ccl

CCL_ANY_SPACE_END
