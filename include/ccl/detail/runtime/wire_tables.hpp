#pragma once

#include <ccl/types/plan.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/wire.hpp>

namespace ccl::detail {

/// Progress of a channel through the messages of one peer and direction.
struct Cursor {
  int message = 0;
  Index done = 0;  // bytes of that message's part of the channel
};

/// Tables that a launch over wires reads. Pointers are host addresses for CPU lanes and device
/// addresses on a GPU.
struct WireTables {
  const Wire* in = nullptr;             // wires from peer p on channel c: in[c * ranks + p]
  const Wire* out = nullptr;            // wires to peer p
  const RingPosition* rings = nullptr;  // one for each channel
  const TreePosition* trees = nullptr;  // one for each channel; on a GPU, of all roots
  Cursor* cursors = nullptr;            // channels * ranks for sends, then as many for receives
  bool proxied = false;                 // a proxy carries some wires
  bool unproxied = false;               // no proxy carries some wires
};

}  // namespace ccl::detail
