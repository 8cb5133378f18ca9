#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

namespace detail {
class ZeroCopy;
}

/// One direction of a connection: a ring of slots that the sender fills and the receiver drains.
/// A view: the connection that made it owns the memory. Counts go on for the life of the wire.
///
/// Sender:    waits until sent < drained + slot_count, fills slot(sent), writes sizes[sent % n]
///            (if `sizes`; of each slot of a slice), then, where packets carry no flags or the wire
///            is proxied, posts.
/// Receiver:  where packets carry no flags or the wire is proxied, waits until the slice is posted;
///            reads slot(received), then gives the credit back in `drained`.
/// A proxied wire has two rings, one at each end, and a proxy that copies between them: it acts as
/// the receiver on the sender's host and as the sender on the receiver's.
struct Wire {
  Packet* slots = nullptr;   // slot_count * slot_packets, 128-byte aligned
  Word* posted = nullptr;    // steps filled so far, written by the sender (release)
  Word* drained = nullptr;   // steps given back so far, written by the receiver (credit)
  Word* sent = nullptr;      // the sender's own record of steps filled; null at the receiver
  Word* received = nullptr;  // the receiver's own record of steps drained; null at the sender
  Word* sizes = nullptr;     // slot_count byte counts, written before `posted`; null if not proxied
  int slot_count = 0;        // a power of two, at least 2 for fused receive-and-send
  int slot_packets = 0;      // a multiple of 8: slots begin on lines
  bool proxied = false;
  detail::ZeroCopy* zero_copy = nullptr;  // past the slots; null if there is none

  CCL_HD Packet* slot(Word step) const {
    return slots + Index(step & Word(slot_count - 1)) * slot_packets;
  }
};

/// How a connection's wires are to be made. The same at both ends.
struct WireShape {
  int channels = 1;      // wires of the connection
  int slot_count = 8;    // a power of two
  Index slot_bytes = 0;  // a multiple of 128
  friend bool operator==(const WireShape&, const WireShape&) = default;
};

}  // namespace ccl
