#pragma once

#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/wire/ends.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Writes the sizes of the slots of the next slice, for a proxy that moves steps one by one. A
/// slice fills its slots in order, the last ones perhaps not. `Lends`: bytes that carry
/// `ZeroCopy::mark` are those of one lent step. `tag`: see `NetworkStep`.
template <bool Lends>
CCL_HD void write_sizes(const Wire& wire, const OutEnd& out, const SliceShape& shape, Word bytes,
                        Word tag) {
  const Word slot_bytes = Word(shape.slot_packets) * sizeof(Packet);
  Word* const sizes = wire.sizes + (int(out.sent) & (shape.slot_count - 1));
  if constexpr (Lends) {
    if (bytes >= ZeroCopy::mark) sizes[0] = bytes;
    if (bytes >= ZeroCopy::mark) return;
  }
  CCL_ROLL for (int s = 0; s < shape.steps; ++s) {
    const Word filled = bytes < slot_bytes ? bytes : slot_bytes;
    sizes[s] = filled | tag;
    bytes -= filled;
  }
}

/// Publishes the filled slice of a wire out (release). All lanes; `lead` writes.
template <class Memory, class Proto, bool Proxied>
CCL_HD void post_slice(OutEnd& out, const SliceShape& shape, bool lead) {
  if (lead && (!Proto::carries_flags || (Proxied && out.proxied))) {
    Memory::store_release(out.posted, out.sent + unsigned(shape.steps));
  }
  out.sent += unsigned(shape.steps);
}

/// Gives the drained slice of a wire in back to the sender (credit). All lanes; `lead` writes.
template <class Memory>
CCL_HD void return_slice(InEnd& in, const SliceShape& shape, bool lead) {
  in.received += unsigned(shape.steps);
  if (lead) Memory::store_credit(in.credit, in.received);
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
